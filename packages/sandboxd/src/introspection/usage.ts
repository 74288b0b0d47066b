/**
 * Usage of the sandbox's control group, where the kernel shows it inside: version 2 at the root of its mount, version 1
 * below its controllers. Hidden values are `null`.
 */

import { readFileSync } from "node:fs";
import { resolve } from "node:path";
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
    ...network(),
  };
}

/**
 * Of every interface but the loopback, in the daemon's own network namespace, which is its sandbox's. Each row: name,
 * then eight columns of what was received, then eight of what was sent.
 */
function network(): Pick<ResourceUsage, "networkReceivedBytes" | "networkSentBytes"> {
  const rows = [...(read("/proc/net/dev") ?? "").matchAll(/(\S+): *(\d+)(?: +\d+){7} +(\d+)/g)];
  const used = rows.filter(([, name]) => name !== "lo");
  if (used.length === 0) return {};
  const sum = (column: number) => used.reduce((all, row) => all + Number(row[column]), 0);
  return { networkReceivedBytes: sum(2), networkSentBytes: sum(3) };
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
    return readFileSync(resolve(ROOT, name), "latin1").trim();
  } catch {
    return null;
  }
}
