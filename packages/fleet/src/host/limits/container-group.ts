/**
 * A container's control group, as far as this process may look into it: who is in it, how to end them, what the kernel has
 * counted. The engine made it and sets its limits; nothing is changed here.
 *
 * Invariant: a group is taken for the container's only while the container's first process is in it.
 */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { read, readCounter, readNumber } from "./group-files.ts";
import { findHierarchies, type Hierarchies, type Tree } from "./hierarchy.ts";
import type { LimitGroup, LimitHits } from "./limits.ts";

/** `init` is the host's pid of the container's first process; 0 where it is no process of this machine. */
export function containerGroup(name: string, init: number): LimitGroup {
  const found = init > 0 ? directoriesOf(init, findHierarchies()) : NOWHERE;
  const { memory, pids, cpuacct, isUnified } = found;
  const canKill = process.getuid?.() === 0;
  const hits = (): LimitHits => ({
    oomKills: readCounter(memory, isUnified ? "memory.events" : "memory.oom_control", "oom_kill"),
    pidsRefusals: readCounter(pids, "pids.events", "max"),
  });
  const processes = () => (canKill && pids !== null ? readPids(pids) : null);
  return {
    name,
    startPrefix: [],
    commandPrefix: [],
    isCounted: memory !== null || pids !== null,
    processes,
    events: () => ({ ...hits(), cpuThrottles: null }),
    hits,
    usage: () => ({
      memoryBytes: readNumber(memory, isUnified ? "memory.current" : "memory.usage_in_bytes"),
      memoryMaxBytes: readNumber(memory, isUnified ? "memory.max" : "memory.limit_in_bytes"),
      processCount: readNumber(pids, "pids.current"),
      processMax: readNumber(pids, "pids.max"),
      cpuMs: isUnified ? scaled(readCounter(cpuacct, "cpu.stat", "usage_usec"), 1e3) : usedMs(cpuacct),
    }),
    killExcept: (keep) => (processes() ?? []).filter((pid) => !keep.includes(pid) && tryKill(pid)),
    release: async () => {},
  };
}

interface Directories extends Readonly<Record<"memory" | "pids" | "cpuacct", string | null>> {
  readonly isUnified: boolean;
}

const NOWHERE: Directories = { memory: null, pids: null, cpuacct: null, isUnified: false };

/** Where version 1 has the controllers that every engine uses, or where version 2 is. */
function directoriesOf(init: number, { trees, unified }: Hierarchies): Directories {
  const groups = tryRead(`/proc/${init}/cgroup`) ?? "";
  const inTree = (tree: Tree): string | null => {
    const mountPoint = trees[tree];
    const path = new RegExp(`^\\d+:(?:[^:\\n]*,)?${tree}(?:,[^:\\n]*)?:(/.+)$`, "m").exec(groups)?.[1];
    return mountPoint === undefined || path === undefined ? null : holding(join(mountPoint, path), init);
  };
  const [memory, pids, cpuacct] = [inTree("memory"), inTree("pids"), inTree("cpuacct")];
  if (memory !== null || pids !== null) return { memory, pids, cpuacct, isUnified: false };
  const path = /^0::(\/.+)$/m.exec(groups)?.[1];
  const one = unified === null || path === undefined ? null : holding(join(unified, path), init);
  return one === null ? NOWHERE : { memory: one, pids: one, cpuacct: one, isUnified: true };
}

/** `null` where it cannot be looked into, such as from another container. */
function holding(directory: string, init: number): string | null {
  return readPids(directory)?.includes(init) === true ? directory : null;
}

function readPids(directory: string): readonly number[] | null {
  const text = read(directory, "cgroup.procs");
  return text === null ? null : text.split("\n").filter(Boolean).map(Number);
}

function usedMs(cpuacct: string | null): number | null {
  return scaled(readNumber(cpuacct, "cpuacct.usage"), 1e6);
}

function scaled(value: number | null, by: number): number | null {
  return value === null ? null : value / by;
}

function tryRead(path: string): string | null {
  try {
    return readFileSync(path, "latin1");
  } catch {
    return null;
  }
}

function tryKill(pid: number): boolean {
  try {
    process.kill(pid, "SIGKILL");
    return true;
  } catch {
    return false;
  }
}
