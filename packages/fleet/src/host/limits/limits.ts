/**
 * The contract of limits, independent of how they are enforced.
 *
 * Words
 * - A **requested** is the blueprint's limits. An absent key is not limited.
 * - A **group** is one sandbox's share: it contains everything that its start prefix starts, with all descendants.
 * - A **start prefix** is put before the engine's command line, so that the limits hold before the engine's first step.
 * - A **command prefix** is put before every command inside, by the daemon, where only the process can limit itself.
 *
 * Invariants
 * - The daemon is in the group too, and protected: the start gives it a lower out-of-memory score than the daemon gives
 *   to commands, so that the kernel kills commands first, however small each of them is.
 * - A group's name includes its fleet; groups of another fleet are never found, killed or removed.
 * - `release` resolves when the group is gone, and rejects when processes are left in it.
 */

import type { ResourceUsage } from "@sandlot/contract";

export interface RequestedLimits {
  readonly memoryBytes?: number | undefined;
  readonly cpuCount?: number | undefined;
  readonly cpuWeight?: number | undefined;
  readonly pidsMax?: number | undefined;
  /** The maximum size of a single file: the part of a disk budget that every kernel can enforce. */
  readonly fileMaxBytes?: number | undefined;
}

export interface Limits {
  readonly description: LimitsDescription;
  /** Creates a sandbox's group. `name` is unique for ever, such as sandbox id and generation. */
  create(name: string, requested: RequestedLimits): LimitGroup;
  /** The group of a sandbox that an earlier process created. */
  open(name: string): LimitGroup;
  /** Names of this fleet's existing groups, from all of its processes. */
  findGroups(): readonly string[];
  /** Removes the fleet's own part of the tree when it has no groups. Groups stay. */
  close(): void;
}

export interface LimitGroup {
  readonly name: string;
  /** Enters the group and runs what follows. Needs the fleet's rights: privileges are dropped after it. */
  readonly startPrefix: readonly string[];
  /** Put before every command inside; empty where the group itself is limited. */
  readonly commandPrefix: readonly string[];
  /** Whether the kernel counts events in it. */
  readonly isCounted: boolean;
  /** Host pids in the group; `null` where there is no group to read. */
  processes(): readonly number[] | null;
  /** How often limits were hit since the group was created. */
  events(): LimitEvents;
  /** The hits that end or hinder a command: read before and after each. */
  hits(): LimitHits;
  usage(): ResourceUsage;
  /** Kills all but these host pids and returns the killed. Blocks new processes meanwhile, where the kernel can. */
  killExcept(keep: readonly number[]): readonly number[];
  /** Removes the group once it is empty, within a bounded time. A missing group is fine. */
  release(): Promise<void>;
}

/** Counters only grow. `null` where nothing counts. */
export interface LimitHits {
  /** Processes killed because the group was out of memory. */
  readonly oomKills: number | null;
  /** Process starts refused because the group was full. */
  readonly pidsRefusals: number | null;
}

export interface LimitEvents extends LimitHits {
  /** Periods in which the group waited for its share of the processors. */
  readonly cpuThrottles: number | null;
}

export type Enforcer = "cgroup-v1" | "cgroup-v2" | "rlimit" | "project-quota" | "watcher" | "none";

export interface Enforcement {
  readonly by: Enforcer;
  /** Whether the limit holds for the sandbox as a whole, or for each of its processes. */
  readonly scope: "sandbox" | "process" | "none";
  /** Whether tests have shown it on a real kernel. */
  readonly measured: boolean;
  /** One sentence for the operator: what is enforced, and what is not. */
  readonly says: string;
}

export interface LimitsDescription {
  readonly memory: Enforcement;
  readonly cpu: Enforcement;
  readonly pids: Enforcement;
  /** Why there are no control groups, or only some; `null` when all are there. */
  readonly missing: string | null;
}

/** A group's name becomes a directory name. */
export const GROUP_NAME_PATTERN = /^[A-Za-z0-9_-]{1,128}$/;

/** The limit that ended or hindered a command, from the counters before and after; `null` when there was none. */
export function limitHit(before: LimitHits, after: LimitHits): "memory" | "pids" | null {
  if ((after.oomKills ?? 0) > (before.oomKills ?? 0)) return "memory";
  if ((after.pidsRefusals ?? 0) > (before.pidsRefusals ?? 0)) return "pids";
  return null;
}

/** The message about it. */
export function explainHit(group: LimitGroup, hit: "memory" | "pids"): string {
  const { memoryMaxBytes, processMax } = group.usage();
  return hit === "memory"
    ? `out of memory: the sandbox may use ${memoryMaxBytes ?? "no more"} bytes, and a process of it was killed`
    : `too many processes: the sandbox may have ${processMax ?? "no more"}, and one could not be started`;
}

/** There are four file systems in memory, so half of the memory is left for programs when all are full. */
const SHARE = 8;

/**
 * The size of a file system in memory (`/tmp`, the home, `/dev/shm`, the daemon's own). Its content counts as the
 * sandbox's memory and cannot be reclaimed. If together they were as large as its limit, filling them would make the
 * kernel kill everything, the daemon last.
 */
export function memoryFileSystemBytes(wantedBytes: number, memoryBytes: number | undefined): number {
  return memoryBytes === undefined ? wantedBytes : Math.min(wantedBytes, Math.floor(memoryBytes / SHARE));
}
