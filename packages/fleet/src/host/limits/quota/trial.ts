/**
 * Whether the kernel can enforce budgets of workspaces here. The mount table rules most machines out without starting a
 * program; otherwise a trial sets limits on a small directory and reads them back.
 */

import { mkdirSync, readdirSync, rmSync, statfsSync, statSync } from "node:fs";
import { join } from "node:path";
import type { World } from "../../../world/world.ts";
import { type MountedAt, mountOf } from "./mount.ts";
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
