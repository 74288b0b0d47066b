/** Starts a proxy's process and is killed at once, as a fleet may be. Its options come on stdin. */

import { readFileSync } from "node:fs";
import { startEgress } from "../../../../src/host/egress/process/start-egress.ts";
import { systemWorld } from "../../../../src/world/system-world.ts";

await startEgress({ ...JSON.parse(readFileSync(0, "utf8")), world: systemWorld() });
process.kill(process.pid, "SIGKILL");
