/**
 * What limits are, whoever enforces them.
 *
 * Words
 * - A **wish** is what the blueprint asks for. What is not in it is not limited.
 * - A **group** is one sandbox's share: everything that its start prefix starts, and all that comes of it, is in it.
 * - A **start prefix** is put before the engine's command line, so that the limits hold before the engine's first step.
 * - A **command prefix** is put before every command inside, by the daemon, where only the process can limit itself.
 *
 * Invariants
 * - The daemon is in the group too, and protected: the start gives it a lower out-of-memory score than the daemon gives
 *   to commands, so that the kernel takes commands first, however small each of them is.
 * - A group belongs to its fleet by its name; nothing of another fleet is found, killed or removed.
 * - `release` resolves when the group is gone, and rejects when processes are left in it.
 */

import type { ResourceUsage } from "@sandlot/contract";

export interface LimitWish {
  readonly memoryBytes?: number | undefined;
  readonly cpuCount?: number | undefined;
  readonly cpuWeight?: number | undefined;
  readonly pidsMax?: number | undefined;
  /** No single file grows beyond this: what the kernel can hold of a disk budget everywhere. */
  readonly fileMaxBytes?: number | undefined;
}

export interface Limits {
  readonly description: LimitsDescription;
  /** Makes a sandbox's group. `name` is unique for ever, such as sandbox id and generation. */
  create(name: string, wish: LimitWish): LimitGroup;
  /** The group of a sandbox that an earlier process has made. */
  open(name: string): LimitGroup;
  /** Names of this fleet's groups that exist, whoever made them. */
  findGroups(): readonly string[];
  /** Removes the fleet's own part of the tree when no group is left in it. Groups stay. */
  close(): void;
}

export interface LimitGroup {
  readonly name: string;
  /** Enters the group and runs what follows. It needs the fleet's rights: privileges are dropped behind it. */
  readonly startPrefix: readonly string[];
  /** Put before every command inside; empty where the group itself is limited. */
  readonly commandPrefix: readonly string[];
  /** Whether the kernel counts what happens in it. */
  readonly isCounted: boolean;
  /** Host pids of what is in the group; `null` where there is no group to ask. */
  processes(): readonly number[] | null;
  /** How often limits were hit since the group was made. */
  events(): LimitEvents;
  /** Of these, what ends or hinders a command: asked before and after each. */
  hits(): LimitHits;
  usage(): ResourceUsage;
  /** Kills everything but these host pids and returns what it killed. Nothing can be started meanwhile, where the kernel can hold that. */
  killExcept(keep: readonly number[]): readonly number[];
  /** Removes the group once it is empty, within a bounded time. A group that is gone is fine. */
  release(): Promise<void>;
}

/** Counters only grow. `null` where nobody counts. */
export interface LimitHits {
  /** Processes that were killed because the group was out of memory. */
  readonly oomKills: number | null;
  /** Times that a process could not be started because the group was full. */
  readonly pidsRefusals: number | null;
}

export interface LimitEvents extends LimitHits {
  /** Periods in which the group had to wait for its share of the processors. */
  readonly cpuThrottles: number | null;
}

export type Enforcer = "cgroup-v1" | "cgroup-v2" | "rlimit" | "project-quota" | "watcher" | "none";

export interface Enforcement {
  readonly by: Enforcer;
  /** Whether the limit holds for the sandbox as a whole, or for each of its processes. */
  readonly scope: "sandbox" | "process" | "none";
  /** Whether tests have shown it on a real kernel. */
  readonly measured: boolean;
  /** One sentence for a person: what is enforced, and what is not. */
  readonly says: string;
}

export interface LimitsDescription {
  readonly memory: Enforcement;
  readonly cpu: Enforcement;
  readonly pids: Enforcement;
  /** Why there are no control groups, or only some; `null` when all are there. */
  readonly missing: string | null;
}

/** A group's name becomes a directory's. */
export const GROUP_NAME_PATTERN = /^[A-Za-z0-9_-]{1,128}$/;

/** What a command was ended or hindered by, told from the counters before and after; `null` when it was none of them. */
export function limitHit(before: LimitHits, after: LimitHits): "memory" | "pids" | null {
  if ((after.oomKills ?? 0) > (before.oomKills ?? 0)) return "memory";
  if ((after.pidsRefusals ?? 0) > (before.pidsRefusals ?? 0)) return "pids";
  return null;
}

/** What a person is told of it. */
export function explainHit(group: LimitGroup, hit: "memory" | "pids"): string {
  const { memoryMaxBytes, processMax } = group.usage();
  return hit === "memory"
    ? `out of memory: the sandbox may use ${memoryMaxBytes ?? "no more"} bytes, and a process of it was killed`
    : `too many processes: the sandbox may have ${processMax ?? "no more"}, and one could not be started`;
}
