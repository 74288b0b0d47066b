/**
 * Default limits of one sandbox: enough for a coding agent that builds and tests a project, and never so much that one
 * sandbox takes the machine.
 *
 * Invariants
 * - Where the backend can limit, every blueprint has these limits unless it sets another value or `unlimited`.
 * - They are not part of a blueprint's hash: a process that runs under its own limits computes other defaults on the
 *   same machine. They are rounded so that a reboot does not change them, and each sandbox keeps those it was created
 *   with.
 */

import { readFileSync, statfsSync } from "node:fs";
import { availableParallelism, totalmem } from "node:os";
import { dirname } from "node:path";
import type { Blueprint } from "../backend/blueprint.ts";

export const UNLIMITED = "unlimited";

/** The facts that limits are derived from. `0`: unknown. */
export interface Machine {
  readonly memoryBytes: number;
  readonly processors: number;
  readonly pidMax: number;
  readonly diskBytes: number;
  readonly diskFiles: number;
}

type Limits = Blueprint["limits"];
type LimitName = keyof Limits;
export type GivenLimits = { readonly [Name in LimitName]?: number | typeof UNLIMITED | undefined };

const MIB = 1024 * 1024;
const GIB = 1024 * MIB;

/** Compilers and test runners take some gigabytes. Half of a machine leaves the other half to all others. */
const MEMORY = { most: 8 * GIB, least: 512 * MIB, share: 0.5, step: 256 * MIB } as const;
/** Threads count too, and build tools start many per processor. The machine's own pids must not run out. */
const PROCESSES = { perProcessor: 256, least: 1_024, most: 4_096, shareOfPids: 1 / 8 } as const;
/** Packages, a few builds and data. One sandbox takes at most a tenth of the disk. */
const DISK = { most: 10 * GIB, share: 0.1, least: 256 * MIB, step: 64 * MIB } as const;
/** Several large dependency trees. */
const FILES = { most: 500_000, share: 0.1, least: 10_000 } as const;
/** Equal among sandboxes; half of another container's on an engine. A whole local fleet weighs as much as a service. */
const CPU_WEIGHT = 50;

/** The limits that apply by default, without `cpuCount`: an idle processor would be wasted. */
export const DEFAULT_LIMIT_NAMES = ["memoryBytes", "pidsMax", "cpuWeight", "diskBytes", "filesMax"] as const;

export function defaultLimits(machine: Machine): Required<Pick<Limits, (typeof DEFAULT_LIMIT_NAMES)[number]>> {
  const share = (
    of: number,
    { most, least, share, step = 1 }: { most: number; least: number; share: number; step?: number },
  ) => (of === 0 ? most : Math.max(least, Math.min(most, Math.floor((of * share) / step) * step)));
  const wanted = Math.max(PROCESSES.least, Math.min(PROCESSES.most, machine.processors * PROCESSES.perProcessor));
  const pids = machine.pidMax === 0 ? wanted : Math.min(wanted, Math.floor(machine.pidMax * PROCESSES.shareOfPids));
  return {
    memoryBytes: share(machine.memoryBytes, MEMORY),
    pidsMax: pids,
    cpuWeight: CPU_WEIGHT,
    diskBytes: share(machine.diskBytes, DISK),
    filesMax: share(machine.diskFiles, FILES),
  };
}

/** A blueprint's limits; `machine` is `null` where the backend cannot limit: then only configured limits apply. */
export function resolveLimits(given: GivenLimits, machine: Machine | null): Limits {
  const all = { ...(machine === null ? {} : defaultLimits(machine)), ...withoutGaps(given) };
  return Object.fromEntries(Object.entries(all).filter(([, limit]) => limit !== UNLIMITED)) as Limits;
}

/** This machine, for workspaces at `home`, which need not exist yet. */
export function thisMachine(home: string): Machine {
  const disk = fileSystemOf(home);
  return {
    memoryBytes: Math.min(totalmem(), process.constrainedMemory() || Number.POSITIVE_INFINITY),
    processors: availableParallelism(),
    pidMax: pidMax(),
    diskBytes: disk === null ? 0 : Number(disk.blocks) * Number(disk.bsize),
    diskFiles: Number(disk?.files ?? 0),
  };
}

export function withoutGaps(given: GivenLimits): GivenLimits {
  return Object.fromEntries(Object.entries(given).filter(([, limit]) => limit !== undefined));
}

function fileSystemOf(path: string): ReturnType<typeof statfsSync> | null {
  try {
    return statfsSync(path);
  } catch {
    const parent = dirname(path);
    return parent === path ? null : fileSystemOf(parent);
  }
}

function pidMax(): number {
  try {
    return Number(readFileSync("/proc/sys/kernel/pid_max", "latin1")) || 0;
  } catch {
    return 0;
  }
}
