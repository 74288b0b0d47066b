/** Timelines in a fleet's directory of this host, for backends whose workspaces are elsewhere: with locks of their own. */

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { threadKeyOf } from "../../backend/labels.ts";
import type { World } from "../../world/world.ts";
import { DiskLocks } from "../workspaces/locks.ts";
import { DiskTimelines } from "./disk-timelines.ts";

export function homeTimelines(root: string, world: World): DiskTimelines {
  const directory = join(root, "timelines", ".locks");
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const locks = new DiskLocks(directory, world);
  return new DiskTimelines({
    ...{ root, world },
    locked: ({ user, thread }, work) => locks.hold([threadKeyOf(user, thread)], work),
    close: () => locks.close(),
  });
}
