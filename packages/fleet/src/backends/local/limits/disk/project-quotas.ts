/**
 * Disk budgets that the file system holds itself: project quotas of ext4 and XFS, where they are switched on for the
 * mount and the fleet is root with the programs to set them. A write beyond the budget fails with EDQUOT, at once.
 *
 * A workspace's project is its directory's inode number: unique on its disk as long as the directory lives, kept when it
 * is moved, and nowhere to be written down. Processes in a user namespace cannot change the project of a file.
 *
 * Not measured: no kernel that this was run on had project quotas. The watcher (watcher.ts) is what is measured, and it
 * watches in either case.
 */

import { execFile } from "node:child_process";
import { accessSync, constants, readFileSync } from "node:fs";
import { stat } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { type Mount, mountsOf } from "../hierarchy.ts";
import type { Enforcement } from "../limits.ts";
import { LOOK_EVERY_MS } from "./watcher.ts";

export interface ProjectQuotas {
  /** Holds everything that is made below `directory` from now on to a budget. */
  limit(directory: string, budget: { readonly maxBytes: number; readonly maxFiles: number }): Promise<void>;
}

type Run = (file: string, args: readonly string[]) => Promise<unknown>;

export interface ProjectQuotaOptions {
  readonly isRoot?: boolean;
  /** The text of `/proc/self/mountinfo`. */
  readonly mountInfo?: string;
  readonly findProgram?: (name: string) => string | null;
  readonly run?: Run;
}

const TYPES = new Set(["ext4", "xfs", "f2fs"]);
const OPTIONS = ["prjquota", "pquota"];
const PROGRAM_DIRECTORIES = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
const KILOBYTE = 1024;

/** The quotas of the file system that holds `directory`, or in words why there are none. */
export function findProjectQuotas(directory: string, options: ProjectQuotaOptions = {}): ProjectQuotas | string {
  const { isRoot = process.geteuid?.() === 0, findProgram = programPath, run = promisify(execFile) } = options;
  const mount = mountOf(directory, options.mountInfo ?? readFileSync("/proc/self/mountinfo", "utf8"));
  if (mount === null || !TYPES.has(mount.type)) return `${mount?.type ?? "its file system"} has no project quotas`;
  if (!OPTIONS.some((option) => mount.options.includes(option)))
    return `${mount.mountPoint} is mounted without the option prjquota`;
  if (!isRoot) return "only root may set project quotas";
  const [chattr, setquota] = [findProgram("chattr"), findProgram("setquota")];
  if (chattr === null || setquota === null) return "the packages e2fsprogs and quota are not both installed";
  return {
    async limit(path, { maxBytes, maxFiles }) {
      const project = String((await stat(path)).ino);
      const blocks = String(Math.ceil(maxBytes / KILOBYTE));
      await run(setquota, ["-P", project, "0", blocks, "0", String(maxFiles), mount.mountPoint]);
      await run(chattr, ["-R", "+P", "-p", project, path]);
    },
  };
}

/** How the disk budget of workspaces below `directory` is held. */
export function describeDisk(directory: string, options: ProjectQuotaOptions = {}): Enforcement {
  const quotas = findProjectQuotas(directory, options);
  const why = typeof quotas === "string" ? quotas : "project quotas could hold it here, and are not used";
  return {
    by: "watcher",
    scope: "sandbox",
    measured: true,
    says:
      "API writes beyond the budget are refused; commands that write past it are stopped within about " +
      `${2 * LOOK_EVERY_MS} ms, so what they wrote until then is past it (${why}). No single file outgrows it.`,
  };
}

/** The mount that a path lies on is the last of those with the longest path above it. */
function mountOf(directory: string, mountInfo: string): Mount | null {
  const above = mountsOf(mountInfo).filter(({ mountPoint }) => `${directory}/`.startsWith(join(mountPoint, "/")));
  return above.reduce<Mount | null>(
    (best, mount) => (best === null || mount.mountPoint.length >= best.mountPoint.length ? mount : best),
    null,
  );
}

function programPath(name: string): string | null {
  const path = PROGRAM_DIRECTORIES.map((directory) => join(directory, name)).find((candidate) => {
    try {
      accessSync(candidate, constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
  return path ?? null;
}
