/**
 * Ends processes without a namespace: the daemon, then every process with the sandbox's name in its environment. Where
 * the system does not show environments, the daemon ends its commands first.
 */

import { existsSync, readdirSync, readFileSync } from "node:fs";
import type { ObjectName } from "../../../host/layout.ts";
import { identify, killProcess, livenessOf, type ProcessId } from "../../../host/process-table.ts";
import { sleep } from "../../../world/waiting.ts";
import type { World } from "../../../world/world.ts";
import { OBJECT_VARIABLE } from "./unsafe-engine.ts";

/** The daemon gives its commands two seconds. */
const GRACE_MS = 4_000;
const LOOK_MS = 10;

export async function endUnsafe(name: ObjectName, init: ProcessId, world: World, signal?: AbortSignal): Promise<void> {
  if (!existsSync("/proc/self/environ")) await askToEnd(init, world, signal);
  killProcess(init);
  for (let left = marked(name); left.length > 0; left = marked(name)) {
    for (const id of left) killProcess(id);
    await sleep(world, LOOK_MS, signal);
  }
}

async function askToEnd(init: ProcessId, world: World, signal?: AbortSignal): Promise<void> {
  const deadline = world.monotonicMs() + GRACE_MS;
  if (livenessOf(init) === "alive") process.kill(init.pid, "SIGTERM");
  while (livenessOf(init) === "alive" && world.monotonicMs() < deadline) await sleep(world, LOOK_MS, signal);
}

/** Processes of this sandbox, where the system shows environments. */
function marked(name: ObjectName): readonly ProcessId[] {
  const wanted = `${OBJECT_VARIABLE}=${name}`;
  return list("/proc")
    .filter((pid) => /^\d+$/.test(pid) && environmentOf(pid).split("\0").includes(wanted))
    .flatMap((pid) => identify(Number(pid)) ?? []);
}

function environmentOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/environ`, "latin1");
  } catch {
    return "";
  }
}

function list(path: string): readonly string[] {
  try {
    return readdirSync(path);
  } catch {
    return [];
  }
}
