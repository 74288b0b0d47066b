/**
 * The real machine. The one file of the fleet that asks for the time, sets a timer or draws a random number.
 */

import { randomFillSync } from "node:crypto";
import { readFileSync, readlinkSync } from "node:fs";
import { performance } from "node:perf_hooks";
import type { Liveness, ProcessIdentity, World } from "./world.ts";

/** `performance.now` counts from the start of the process on the clock that `hrtime` shows as it is. */
const MONOTONIC_ORIGIN_MS = Number(process.hrtime.bigint()) / 1e6 - performance.now();

export function systemWorld(): World {
  const identity = ownIdentity();
  return {
    wallMs: Date.now,
    monotonicMs: () => MONOTONIC_ORIGIN_MS + performance.now(),
    timer: systemTimer,
    random: Math.random,
    randomHex,
    identity,
    processLiveness: (other) => processLiveness(identity, other),
  };
}

export const systemTimer: World["timer"] = (delayMs, fire, options) => {
  const timeout = setTimeout(fire, delayMs);
  if (options?.background === true) timeout.unref();
  return { cancel: () => clearTimeout(timeout) };
};

/** Lets everything else that waits have its turn: for work that is cut into pieces. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** Drawn ahead, many ids at a time: each draw by itself is a call to the kernel. What was given out is wiped. */
const drawn = Buffer.allocUnsafeSlow(1_024);
let used = drawn.length;

function randomHex(bytes: number): string {
  if (bytes > drawn.length) return randomFillSync(Buffer.allocUnsafeSlow(bytes)).toString("hex");
  if (used + bytes > drawn.length) {
    randomFillSync(drawn);
    used = 0;
  }
  const text = drawn.toString("hex", used, used + bytes);
  drawn.fill(0, used, used + bytes);
  used += bytes;
  return text;
}

function ownIdentity(): ProcessIdentity {
  const pid = process.pid;
  return { bootId: bootId(), pidNamespace: pidNamespace(), pid, startTime: startTimeOf(pid) ?? "" };
}

function processLiveness(self: ProcessIdentity, other: ProcessIdentity): Liveness {
  const comparable = self.bootId !== "" && self.pidNamespace !== "" && other.startTime !== "";
  if (!comparable) return "unknown";
  // Another boot of this very machine cannot be told from another machine, so it says nothing.
  if (other.bootId !== self.bootId || other.pidNamespace !== self.pidNamespace) return "unknown";
  const startTime = startTimeOf(other.pid);
  if (startTime === undefined) return "unknown";
  return startTime === other.startTime ? "alive" : "dead";
}

/** The empty string where the system does not say; then nothing is ever concluded from it. */
function bootId(): string {
  return readOrEmpty(() => readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim());
}

function pidNamespace(): string {
  return readOrEmpty(() => readlinkSync("/proc/self/ns/pid"));
}

function readOrEmpty(read: () => string): string {
  try {
    return read();
  } catch {
    return "";
  }
}

/** In clock ticks since boot. `""` when there is no such process (or only its remains), `undefined` when it cannot be told. */
export function startTimeOf(pid: number): string | undefined {
  let stat: string;
  try {
    stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  } catch (error) {
    const errno = error instanceof Error && "code" in error ? error.code : undefined;
    return errno === "ENOENT" || errno === "ESRCH" ? "" : undefined;
  }
  // The command name stands in parentheses and may hold anything, so the fields are counted from the last one.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  if (fields[0] === "Z" || fields[0] === "X") return "";
  return fields[19];
}
