/** Processes of this machine, by pid and start time: a pid alone may be reused. */

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { errnoOf, unlessMissing } from "../world/disk-trouble.ts";
import { startTimeOf } from "../world/system-world.ts";
import { sleep } from "../world/waiting.ts";
import type { Liveness, World } from "../world/world.ts";

export interface ProcessId {
  readonly pid: number;
  /** In clock ticks since boot. */
  readonly startTime: string;
}

/** The same across boots; empty where the system has none. */
export function machineId(): string {
  try {
    return readFileSync("/etc/machine-id", "utf8").trim();
  } catch {
    return "";
  }
}

/** The process that has this pid now; `null` when there is none, or only a zombie; `undefined` when that is unknown. */
export function identify(pid: number): ProcessId | null | undefined {
  const startTime = startTimeOf(pid);
  if (startTime === undefined) return undefined;
  return startTime === "" ? null : { pid, startTime };
}

export function livenessOf({ pid, startTime }: ProcessId): Liveness {
  const now = identify(pid);
  if (now === undefined) return "unknown";
  return now?.startTime === startTime ? "alive" : "dead";
}

/**
 * A process and everything that it has started, as far as it still runs. In a pid namespace whose init it is, that is all
 * of the namespace. A process that starts or ends meanwhile may be missing.
 */
export function withDescendants(pid: number): readonly number[] {
  const found = [pid];
  for (const one of found) found.push(...childrenOf(one));
  return found;
}

function childrenOf(pid: number): readonly number[] {
  const threads = unlessEnded(() => readdirSync(`/proc/${pid}/task`)) ?? [];
  return threads.flatMap((thread) => {
    const text = unlessEnded(() => readFileSync(childrenFile(pid, thread), "latin1")) ?? "";
    return text.split(" ").filter(Boolean).map(Number);
  });
}

/** Whether this kernel can say what a process has started. */
export function knowsDescendants(): boolean {
  return existsSync(childrenFile(process.pid, String(process.pid)));
}

function childrenFile(pid: number, thread: string): string {
  return `/proc/${pid}/task/${thread}/children`;
}

function unlessEnded<T>(read: () => T): T | undefined {
  try {
    return unlessMissing(read);
  } catch (error) {
    if (errnoOf(error) === "ESRCH") return undefined;
    throw error;
  }
}

/** Kills exactly that process. One that has already ended is fine. */
export function killProcess(id: ProcessId): void {
  if (livenessOf(id) === "dead") return;
  try {
    process.kill(id.pid, "SIGKILL");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}

const LOOK_FIRST_MS = 1;
const LOOK_AT_MOST_MS = 25;

/** Resolves when that process has ended. For the init of a pid namespace this means that the namespace is empty. */
export async function processEnd(id: ProcessId, world: World, signal?: AbortSignal): Promise<void> {
  for (let waitMs = LOOK_FIRST_MS; livenessOf(id) !== "dead"; waitMs = Math.min(waitMs * 2, LOOK_AT_MOST_MS))
    await sleep(world, waitMs, signal);
}
