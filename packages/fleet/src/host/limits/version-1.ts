/**
 * Control groups, version 1: a tree per controller. A sandbox's group is the same path in each of them.
 *
 * A process enters by `tasks`, which moves one thread. To move a whole process (`cgroup.procs`) the kernel blocks every
 * fork and exit of the machine, and takes 3 ms in each tree; a thread that moves itself needs none of it.
 */

import { join } from "node:path";
import {
  CPU_PERIOD_US,
  cpuQuotaUs,
  cpuShares,
  type Dialect,
  makeDirectory,
  write,
  writeIfThere,
} from "./group-files.ts";
import type { Tree } from "./hierarchy.ts";

export function versionOne(trees: Readonly<Partial<Record<Tree, string>>>): Dialect {
  const mountPoints = [...new Set(Object.values(trees))];
  const directoryFor = (group: string, tree: Tree) => {
    const mountPoint = trees[tree];
    return mountPoint === undefined ? null : join(mountPoint, group);
  };
  return {
    version: 1,
    entry: "tasks",
    directoriesOf: (group) => mountPoints.map((mountPoint) => join(mountPoint, group)),
    prepare(parent) {
      for (const mountPoint of mountPoints) makeDirectory(join(mountPoint, parent));
    },
    setLimits(group, { memoryBytes, cpuCount, cpuWeight, pidsMax }) {
      const memory = directoryFor(group, "memory");
      if (memory !== null && memoryBytes !== undefined) setMemory(memory, memoryBytes);
      const cpu = directoryFor(group, "cpu");
      if (cpu !== null && cpuCount !== undefined) {
        write(cpu, "cpu.cfs_period_us", CPU_PERIOD_US);
        write(cpu, "cpu.cfs_quota_us", cpuQuotaUs(cpuCount));
      }
      if (cpu !== null && cpuWeight !== undefined) writeIfThere(cpu, "cpu.shares", cpuShares(cpuWeight));
      const pids = directoryFor(group, "pids");
      if (pids !== null && pidsMax !== undefined) write(pids, "pids.max", pidsMax);
    },
    directoryFor,
  };
}

/** The limit with swap may not be below the one without, hence the order. Without swap accounting there is none. */
function setMemory(directory: string, memoryBytes: number): void {
  write(directory, "memory.limit_in_bytes", memoryBytes);
  writeIfThere(directory, "memory.memsw.limit_in_bytes", memoryBytes);
}
