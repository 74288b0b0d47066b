/** The real machine. The only file of the fleet that reads the time, sets a timer or draws a random number. */

import { randomFillSync } from "node:crypto";
import { readFileSync, readlinkSync } from "node:fs";
import { performance } from "node:perf_hooks";
import type { Liveness, ProcessIdentity, World } from "./world.ts";

/** `performance.now` counts from the start of the process; `hrtime` shows the same clock without an offset. */
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

/** Yields to all other pending work: for work that is cut into pieces. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** Drawn in advance, many ids at a time: each single draw is a call to the kernel. Used bytes are wiped. */
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
  // Another boot of this machine looks like another machine, so the liveness is unknown.
  if (other.bootId !== self.bootId || other.pidNamespace !== self.pidNamespace) return "unknown";
  const startTime = startTimeOf(other.pid);
  if (startTime === undefined) return "unknown";
  return startTime === other.startTime ? "alive" : "dead";
}

/** Empty where the system has none; then no conclusion uses it. */
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

/** In clock ticks since boot. `""` when there is no such process (or only a zombie), `undefined` if unknown. */
export function startTimeOf(pid: number): string | undefined {
  let stat: string;
  try {
    stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  } catch (error) {
    const errno = error instanceof Error && "code" in error ? error.code : undefined;
    return errno === "ENOENT" || errno === "ESRCH" ? "" : undefined;
  }
  // The command name is in parentheses and may contain anything, so the fields are counted from the last parenthesis.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  if (fields[0] === "Z" || fields[0] === "X") return "";
  return fields[19];
}
