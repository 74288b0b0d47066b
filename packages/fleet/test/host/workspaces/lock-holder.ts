/** Takes a lock, says so, and never releases it: `lock-holder.ts <directory> <name>`. */

import { writeSync } from "node:fs";
import { DiskLocks } from "../../../src/host/workspaces/locks.ts";
import { systemWorld } from "../../../src/world/system-world.ts";

const [directory = "", name = ""] = process.argv.slice(2);
await new DiskLocks(directory, systemWorld()).hold([name], () => {
  writeSync(1, "held\n");
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
});
