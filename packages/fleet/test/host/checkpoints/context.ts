/** What a worker has, in the process of a test. */

import type { Context } from "../../../src/host/checkpoints/context.ts";
import { CHECKPOINT_DEFAULTS, type CheckpointOptions } from "../../../src/host/checkpoints/options.ts";
import { DiskWorkspaces } from "../../../src/host/workspaces/disk-workspaces.ts";
import { systemWorld } from "../../../src/world/system-world.ts";

export function contextAt(root: string, options: Partial<CheckpointOptions> = {}): Context {
  const world = systemWorld();
  const account = process.getuid?.() === 0 ? { uid: 64_321, gid: 64_321 } : null;
  return {
    root,
    world,
    workspaces: new DiskWorkspaces({ root, account, world }),
    options: { ...CHECKPOINT_DEFAULTS, freeBytesMin: 0, ...options },
    onProgress: () => {},
  };
}
