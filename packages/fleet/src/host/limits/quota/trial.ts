/**
 * Whether the kernel can enforce budgets of workspaces here. The mount table rules most machines out without starting a
 * program; otherwise a trial sets limits on a small directory and reads them back.
 */

import { mkdirSync, readdirSync, readFileSync, rmSync, statfsSync, statSync } from "node:fs";
import { join } from "node:path";
import type { World } from "../../../world/world.ts";
import { plainPath } from "../hierarchy.ts";
import { giveProject, type ProjectLimits, setLimits } from "./programs.ts";

export type QuotaSight =
  | { readonly possible: true; readonly mountPoint: string; readonly type: string }
  | { readonly possible: false; readonly reason: string };

const TYPES: readonly string[] = ["ext4", "xfs"];
const OPTIONS: readonly string[] = ["prjquota", "pquota"];
const TRIAL = ".quota-trial-";
const TRIAL_LIMITS: ProjectLimits = { kib: 64, files: 8 };
/** A trial takes no time, so one this old was left by a killed process. */
const LEFTOVER_MS = 3_600_000;

/** What is known without trying. */
export function lookForQuotas(
  root: string,
  isRoot = process.geteuid?.() === 0,
  find: (root: string) => MountedAt | null = mountOf,
): QuotaSight {
  if (process.platform !== "linux") return { possible: false, reason: "they need Linux" };
  const mount = find(root);
  if (mount === null) return { possible: false, reason: "the mount table does not show the file system" };
  const { mountPoint, type, options } = mount;
  if (!TYPES.includes(type)) return { possible: false, reason: `the file system is ${type}, not ext4 or xfs` };
  if (!options.some((option) => OPTIONS.includes(option)))
    return { possible: false, reason: `${mountPoint} is mounted without prjquota` };
  if (!isRoot) return { possible: false, reason: "setting them takes root" };
  return { possible: true, mountPoint, type };
}

/** Lends a number: `use` gets one, and it is released in any case. */
export type Lend = (directory: string, use: (id: number) => Promise<void>) => Promise<void>;

/** Sets limits and reads them back. Leaves nothing behind. */
export async function tryQuotas(
  root: string,
  mountPoint: string,
  world: Pick<World, "randomHex" | "wallMs">,
  lend: Lend,
): Promise<void> {
  sweepTrials(root, world);
  const directory = join(root, `${TRIAL}${world.randomHex(6)}`);
  mkdirSync(directory, { mode: 0o700 });
  try {
    await lend(directory, async (id) => {
      await giveProject({ root: directory, directories: [directory], hasFiles: false }, id);
      await setLimits(mountPoint, id, TRIAL_LIMITS);
      const { blocks, bsize, files } = statfsSync(directory);
      rmSync(directory, { recursive: true, force: true });
      if (blocks * bsize !== TRIAL_LIMITS.kib * 1024 || files !== TRIAL_LIMITS.files)
        throw new Error("limits can be set, but the kernel does not enforce them");
    });
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

function sweepTrials(root: string, world: Pick<World, "wallMs">): void {
  for (const name of readdirSync(root)) {
    if (!name.startsWith(TRIAL)) continue;
    const path = join(root, name);
    const stats = statSync(path, { throwIfNoEntry: false });
    if (stats !== undefined && stats.mtimeMs < world.wallMs() - LEFTOVER_MS)
      rmSync(path, { recursive: true, force: true });
  }
}

/** A mounted file system, from the kernel's table: quotas are set on file systems, not on paths. */
export interface MountedAt {
  readonly mountPoint: string;
  readonly type: string;
  /** The file system's own options. */
  readonly options: readonly string[];
}

/** `null` where the table does not show the device, as with file systems that invent device numbers. */
export function mountOf(directory: string, table = "/proc/self/mountinfo"): MountedAt | null {
  return findMount(readFileSync(table, "utf8"), statSync(directory).dev);
}

/** Of several mounts of one device, the one that shows its root: programs look for that. */
export function findMount(table: string, device: number): MountedAt | null {
  const wanted = deviceNumbers(device);
  const mounts = table.split("\n").flatMap((line) => {
    const [before = "", after = ""] = line.split(" - ");
    const [, , numbers = "", root = "", mountPoint = ""] = before.split(" ");
    const [type = "", , options = ""] = after.split(" ");
    return numbers === wanted ? [{ root, mountPoint: plainPath(mountPoint), type, options: options.split(",") }] : [];
  });
  const found = mounts.find(({ root }) => root === "/") ?? mounts[0];
  if (found === undefined) return null;
  const { mountPoint, type, options } = found;
  return { mountPoint, type, options };
}

/** The kernel's format of a device number: the low parts of both come first. */
function deviceNumbers(device: number): string {
  const number = BigInt(device);
  const major = ((number >> 8n) & 0xfffn) | ((number >> 32n) & ~0xfffn);
  const minor = (number & 0xffn) | ((number >> 12n) & 0xffffff00n);
  return `${major}:${minor}`;
}
