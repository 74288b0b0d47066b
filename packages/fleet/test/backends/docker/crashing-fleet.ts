/**
 * A process that creates and destroys containers from the first line on its stdin until it is killed. Prints each step
 * before it does it.
 *
 *   node --conditions=sandlot-source crashing-fleet.ts '<settings>' '<installation>'
 */

import { once } from "node:events";
import { flushCompileCache } from "node:module";
import type { Generation, SandboxId, ThreadId, Token, UserId } from "@sandlot/contract";
import type { CreateSpec } from "../../../src/backend/backend.ts";
import { type Blueprint, hashBlueprint } from "../../../src/backend/blueprint.ts";
import { threadKeyOf } from "../../../src/backend/labels.ts";
import { openDockerBackend } from "../../../src/backends/docker/backend.ts";
import { systemWorld } from "../../../src/world/system-world.ts";

const world = systemWorld();
const [settings, installation] = process.argv.slice(2).map((text) => JSON.parse(text));
const backend = await openDockerBackend({ settings, installation, world });
const blueprint: Blueprint = { environment: {}, limits: {}, mounts: [], network: { mode: "none", allow: [] } };
const { signal } = new AbortController();
// A killed process writes no cache, and the next ones would have to compile everything again.
flushCompileCache();
process.stdin.on("end", () => process.exit(0));
await once(process.stdin, "data");

for (let turn = 0; ; turn++) {
  const spec = specOf(turn);
  process.stdout.write("create\n");
  const { ref } = await backend.create(spec, signal);
  process.stdout.write("use\n");
  const target = { ...spec, sandboxId: spec.labels.sandboxId, ref };
  const attachment = await backend.attach(target, signal);
  await attachment.sandbox.exec("true", { cwd: "/" });
  process.stdout.write("destroy\n");
  await backend.destroy(ref, signal);
}

function specOf(turn: number): CreateSpec {
  const user = "user" as UserId;
  const thread = `thread-${world.randomHex(4)}` as ThreadId;
  const sandboxId = world.randomHex(10) as SandboxId;
  const token = world.randomHex(16) as Token;
  const generation = (world.wallMs() + turn) as Generation;
  const blueprintHash = hashBlueprint("docker", blueprint);
  const isBlank = turn % 2 === 1;
  const threadKey = isBlank ? null : threadKeyOf(user, thread);
  const labels = { fleet: settings.fleetId, sandboxId, generation, threadKey, blueprintHash };
  const marker = isBlank ? null : { user, thread, sandboxId, generation, token, blueprint: "default", blueprintHash };
  return { labels, blueprint, marker, generation, token };
}
