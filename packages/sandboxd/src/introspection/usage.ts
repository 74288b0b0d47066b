/**
 * Usage of the sandbox's control group, where the kernel shows it inside: version 2 at the root of its mount, version 1
 * below its controllers. Hidden values are `null`.
 */

import { readFileSync } from "node:fs";
import type { ResourceUsage } from "@sandlot/contract";

const ROOT = "/sys/fs/cgroup";
/** Version 1 writes "no limit" as a number near the largest one. */
const UNLIMITED_FROM = 2 ** 60;

export function resourceUsage(): ResourceUsage {
  return {
    memoryBytes: first(["memory.current", "memory/memory.usage_in_bytes"]),
    memoryMaxBytes: first(["memory.max", "memory/memory.limit_in_bytes"]),
    processCount: first(["pids.current", "pids/pids.current"]),
    processMax: first(["pids.max", "pids/pids.max"]),
    cpuMs: cpuMs(),
  };
}

function cpuMs(): number | null {
  const microseconds = /^usage_usec (\d+)$/m.exec(read("cpu.stat") ?? "")?.[1];
  if (microseconds !== undefined) return Number(microseconds) / 1_000;
  const nanoseconds = read("cpuacct/cpuacct.usage");
  return nanoseconds === null ? null : Number(nanoseconds) / 1e6;
}

function first(names: readonly string[]): number | null {
  for (const name of names) {
    const value = Number(read(name) ?? "none");
    if (Number.isFinite(value) && value < UNLIMITED_FROM) return value;
  }
  return null;
}

function read(name: string): string | null {
  try {
    return readFileSync(`${ROOT}/${name}`, "latin1").trim();
  } catch {
    return null;
  }
}
