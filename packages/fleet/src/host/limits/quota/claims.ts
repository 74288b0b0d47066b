/**
 * A fleet's project claims: one empty file each, whose name holds all facts, so that one rename(2) changes it.
 *
 *   projects/<threadKey>/<id>.<inode>.<KiB>.<files>           a workspace that the kernel limits
 *   projects/<threadKey>/<id>.<inode>.<KiB>.<files>.coming    one whose limits are being set
 *
 * Invariants
 * - A claim exists before its number is used, and is removed after the number has neither files nor limits.
 * - A thread whose workspace was replaced has a claim for each workspace that is still on the disk.
 */

import { closeSync, mkdirSync, openSync, readdirSync, renameSync, rmdirSync, statSync, unlinkSync } from "node:fs";
import { join } from "node:path";
import type { ThreadKey } from "@sandlot/contract";
import type { ProjectLimits } from "./programs.ts";

export interface Claim {
  readonly thread: ThreadKey;
  readonly id: number;
  /** Of the workspace's own directory. */
  readonly inode: bigint;
  readonly limits: ProjectLimits;
  readonly isComplete: boolean;
}

const PATTERN = /^(\d+)\.(\d+)\.(\d+)\.(\d+)(\.coming)?$/;
const THREAD_PATTERN = /^[0-9a-f]{32}$/;

export class Claims {
  readonly #directory: string;

  constructor(root: string) {
    this.#directory = join(root, "projects");
  }

  all(): readonly Claim[] {
    return (names(this.#directory) as ThreadKey[])
      .filter((name) => THREAD_PATTERN.test(name))
      .flatMap((thread) => this.of(thread));
  }

  of(thread: ThreadKey): readonly Claim[] {
    return names(join(this.#directory, thread)).flatMap((name) => {
      const parts = PATTERN.exec(name);
      if (parts === null) return [];
      const [, id = "", inode = "", kib = "", files = "", coming] = parts;
      const limits = { kib: Number(kib), files: Number(files) };
      return [{ thread, id: Number(id), inode: BigInt(inode), limits, isComplete: coming === undefined }];
    });
  }

  write(claim: Claim): void {
    mkdirSync(join(this.#directory, claim.thread), { recursive: true, mode: 0o700 });
    closeSync(openSync(this.#path(claim), "w", 0o600));
  }

  change(from: Claim, to: Claim): void {
    renameSync(this.#path(from), this.#path(to));
  }

  drop(claim: Claim): void {
    unlessGone(() => unlinkSync(this.#path(claim)));
    unlessGone(() => rmdirSync(join(this.#directory, claim.thread)));
  }

  /** When it was written; `null` when it is gone. */
  writtenAtMs(claim: Claim): number | null {
    return unlessGone(() => statSync(this.#path(claim)).mtimeMs) ?? null;
  }

  #path({ thread, id, inode, limits, isComplete }: Claim): string {
    const name = `${id}.${inode}.${limits.kib}.${limits.files}${isComplete ? "" : ".coming"}`;
    return join(this.#directory, thread, name);
  }
}

function names(directory: string): readonly string[] {
  return unlessGone(() => readdirSync(directory)) ?? [];
}

/** Other processes of the fleet claim and drop concurrently. */
function unlessGone<T>(call: () => T): T | undefined {
  try {
    return call();
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ENOTEMPTY" || code === "EEXIST") return undefined;
    throw error;
  }
}
