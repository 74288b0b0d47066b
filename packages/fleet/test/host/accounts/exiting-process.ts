/**
 * A process that exits, or closes its namespaces, while its thread mounts:
 * `node exiting-process.ts exit|close <delayMs>`. It exits with 0, unless the thread takes the process with it.
 */

import { closeSync } from "node:fs";
import { MountNamespaces } from "../../../src/host/accounts/mount-namespaces.ts";

const [how, delayMs] = process.argv.slice(2);
const namespaces = new MountNamespaces();
const steps = [{ do: "cover", path: "/mnt" }] as const;

/** A next request always waits, so that the thread is at work at every moment. */
async function keepBusy(): Promise<void> {
  for (;;) closeSync(await namespaces.make({ mapped: [], steps }));
}

for (let count = 0; count < 4; count++) keepBusy().catch(() => {});
setTimeout(() => {
  if (how === "close") namespaces.close();
  process.exit(0);
}, Number(delayMs));
