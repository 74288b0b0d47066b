/** Whether blanks can take a thread's workspace late on this machine, by trying. */

import { mkdirSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { errnoOf, statIfThere } from "../../world/disk-trouble.ts";
import { namesOf } from "./homes.ts";
import { USER_DATA } from "./layout.ts";
import type { DiskParts } from "./parts.ts";

export type LateBinding = { readonly possible: true } | { readonly possible: false; readonly reason: string };

const PROBE_PREFIX = ".probe-";
/** A probe takes no time, so one this old was left by a killed process. */
const LEFTOVER_MS = 3_600_000;

export function probeLateBinding({ account, layout, world }: DiskParts): LateBinding {
  if (account === null || account.uid === process.getuid?.()) {
    const reason = "sandboxes run as the fleet's own account, and could then rename what is in their slot";
    return { possible: false, reason };
  }
  const name = `${PROBE_PREFIX}${world.randomHex(6)}`;
  const [home, slot] = [join(layout.homes, name), join(layout.slots, name)];
  try {
    mkdirSync(join(home, USER_DATA, "workspace"), { recursive: true, mode: 0o700 });
    mkdirSync(slot, 0o700);
    renameSync(join(home, USER_DATA), join(slot, USER_DATA));
    // A slot's content may have to go here, too.
    renameSync(join(slot, USER_DATA), join(layout.quarantine, name));
    renameSync(join(layout.quarantine, name), join(home, USER_DATA));
    return { possible: true };
  } catch (error) {
    const why = errnoOf(error) === "EXDEV" ? "they are on different mounts" : String(error);
    return {
      possible: false,
      reason: `a directory cannot be moved between ${layout.homes} and ${layout.slots}: ${why}`,
    };
  } finally {
    // Ours alone: the name is random, and no sandbox mounts it.
    for (const path of [home, slot, join(layout.quarantine, name)]) rmSync(path, { recursive: true, force: true });
  }
}

/** Removes what was left of a probe. */
export async function sweepProbes({ layout, world }: DiskParts): Promise<void> {
  for (const directory of [layout.homes, layout.slots, layout.quarantine]) {
    for await (const name of namesOf(directory)) {
      if (!name.startsWith(PROBE_PREFIX)) continue;
      const path = join(directory, name);
      if ((statIfThere(path)?.mtimeMs ?? Number.POSITIVE_INFINITY) < world.wallMs() - LEFTOVER_MS)
        rmSync(path, { recursive: true, force: true });
    }
  }
}
