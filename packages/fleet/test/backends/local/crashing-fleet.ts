/**
 * A fleet that creates sandboxes until it is killed: threads' own and blanks. It destroys some, and prints a line for
 * each ready one. Started by `crash.test.ts`.
 *
 *   node crashing-fleet.ts <settings as JSON> <daemon's files as JSON>
 */

import { flushCompileCache } from "node:module";
import type { SandboxId, ThreadId, Token, UserId } from "@sandlot/contract";
import { threadKeyOf } from "../../../src/backend/labels.ts";
import { createLocalBackend } from "../../../src/backends/local/backend.ts";
import { systemWorld } from "../../../src/world/system-world.ts";

const world = systemWorld();
const settings = JSON.parse(process.argv[2]!);
const daemon = JSON.parse(process.argv[3]!);
const backend = createLocalBackend({ settings, world, installation: { daemon } });
const signal = new AbortController().signal;
const blueprint = { environment: {}, limits: {}, mounts: [], network: { mode: "none", allow: [] } } as const;
let generation = Date.now();

async function make(thread: string | null): Promise<void> {
  const sandboxId = world.randomHex(16) as SandboxId;
  const [user, token, blueprintHash] = ["u" as UserId, world.randomHex(8) as Token, "b" as never];
  const own = ++generation as never;
  const threadKey = thread === null ? null : threadKeyOf(user, thread as ThreadId);
  const labels = { fleet: settings.fleetId, sandboxId, generation: own, threadKey, blueprintHash };
  const credentials = { generation: own, token };
  const named = { sandboxId, user, thread: thread as ThreadId, blueprint: "default", blueprintHash };
  const marker = thread === null ? null : { ...named, ...credentials };
  const { ref } = await backend.create({ labels, blueprint, marker, ...credentials }, signal);
  process.stdout.write(`${ref}\n`);
  if (world.random() < 0.3) await backend.destroy(ref, signal);
}

// A killed process writes no cache, and the next one would have to compile everything again.
flushCompileCache();
process.stdout.write("begin\n");
for (let round = 0; ; round++) {
  await Promise.all([make(`t${round}`), make(null)]);
}
