/** A separate process that holds a thread in the memory backend and runs a command on each request. */

import { createInterface } from "node:readline";
import { openFleet } from "../../src/index.ts";

const QUICK = {
  backend: "memory",
  sessionLifetimeMs: 1_500,
  housekeepingIntervalMs: 300,
  orphanTimeoutMs: 1_500,
} as const;
const [home = ""] = process.argv.slice(2);
const fleet = await openFleet({ home, ...QUICK });
const lease = await fleet.acquire({ thread: "shared", purpose: "another process" });
console.log("holding");
for await (const _ of createInterface({ input: process.stdin })) {
  const { stdout } = await lease.sandbox.exec("echo still here");
  console.log(`${lease.generation} ${stdout.trim()}`);
}
