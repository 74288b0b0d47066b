/**
 * Control groups, version 2: one tree. A controller is available in a group when every group above delegates it, and a
 * group that delegates controllers has no processes of its own.
 */

import { join } from "node:path";
import {
  CPU_PERIOD_US,
  cpuQuotaUs,
  type Dialect,
  makeDirectory,
  read,
  readPids,
  write,
  writeIfThere,
} from "./group-files.ts";
import type { Controller } from "./hierarchy.ts";

/** A fleet that is alone in its base group moves itself here, so that the base can delegate controllers. */
const FLEET_LEAF = "sandlot-fleet";

export interface VersionTwoPlace {
  readonly mountPoint: string;
  /** The parent of all our groups: the root, or a group delegated to us. */
  readonly base: string;
  /** The controllers of the base. */
  readonly controllers: readonly Controller[];
  readonly ownPid: number;
}

export function versionTwo(place: VersionTwoPlace): Dialect {
  const { mountPoint, base } = place;
  const directoryOf = (group: string) => join(mountPoint, base, group);
  return {
    version: 2,
    entry: "cgroup.procs",
    directoriesOf: (group) => [directoryOf(group)],
    prepare(parent) {
      handDown(directoryOf(""), place);
      let path = "";
      for (const name of parent.split("/")) {
        path = join(path, name);
        makeDirectory(directoryOf(path));
        handDown(directoryOf(path), place);
      }
    },
    setLimits(group, { memoryBytes, cpuCount, cpuWeight, pidsMax }) {
      const directory = directoryOf(group);
      if (memoryBytes !== undefined) {
        write(directory, "memory.max", memoryBytes);
        writeIfThere(directory, "memory.swap.max", 0);
      }
      if (cpuCount !== undefined) write(directory, "cpu.max", `${cpuQuotaUs(cpuCount)} ${CPU_PERIOD_US}`);
      if (cpuWeight !== undefined) writeIfThere(directory, "cpu.weight", cpuWeight);
      if (pidsMax !== undefined) write(directory, "pids.max", pidsMax);
    },
    directoryFor: (group) => directoryOf(group),
  };
}

function handDown(directory: string, { controllers, ownPid }: VersionTwoPlace): void {
  const given = (read(directory, "cgroup.subtree_control") ?? "").split(/\s+/);
  if (controllers.every((controller) => given.includes(controller))) return;
  const wanted = controllers.map((controller) => `+${controller}`).join(" ");
  try {
    write(directory, "cgroup.subtree_control", wanted);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EBUSY") throw error;
    stepAside(directory, ownPid, error);
    write(directory, "cgroup.subtree_control", wanted);
  }
}

/** Moves only this process: other processes in the group are not ours. */
function stepAside(directory: string, ownPid: number, cause: unknown): void {
  if (readPids(directory).some((pid) => pid !== ownPid)) throw cause;
  makeDirectory(join(directory, FLEET_LEAF));
  write(join(directory, FLEET_LEAF), "cgroup.procs", ownPid);
}
