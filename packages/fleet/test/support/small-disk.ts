/**
 * A small file system of a test's own (tmpfs), which another program's file fills to the last byte. Takes root.
 */

import { execFileSync } from "node:child_process";
import { closeSync, mkdtempSync, openSync, rmdirSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const MEBIBYTE = 1_048_576;
/** The smallest write that is tried: below it nothing fits that a program would append. */
const PAGE = 4_096;

export interface SmallDiskOptions {
  readonly sizeBytes: number;
  readonly uid?: number;
  readonly gid?: number;
}

export class SmallDisk {
  readonly path: string;
  readonly #filler: string;

  /** Covers the directory `path`. */
  constructor(path: string, { sizeBytes, uid = 0, gid = 0 }: SmallDiskOptions) {
    const options = `size=${sizeBytes},mode=0700,uid=${uid},gid=${gid}`;
    execFileSync("mount", ["-t", "tmpfs", "-o", options, "sandlot-test", path]);
    this.path = path;
    this.#filler = join(path, "filler");
  }

  /** Other programs' data, until nothing more fits. */
  fill(): void {
    const file = openSync(this.#filler, "a");
    const block = Buffer.alloc(MEBIBYTE);
    try {
      for (let size = block.length; size >= PAGE; )
        try {
          writeSync(file, block, 0, size);
        } catch (error) {
          if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error;
          size /= 2;
        }
    } finally {
      closeSync(file);
    }
  }

  free(): void {
    rmSync(this.#filler, { force: true });
  }

  /** Also while a process still has a file of it open. */
  unmount(): void {
    execFileSync("umount", ["-l", this.path]);
  }
}

/** Why this process cannot mount, as root in a container often cannot; `null` where it can. With `CI=true` it must. */
export function missingMounts(): string | null {
  const probe = mkdtempSync(join(tmpdir(), "sl-mount-"));
  try {
    new SmallDisk(probe, { sizeBytes: MEBIBYTE }).unmount();
    return null;
  } catch (error) {
    if (process.env.CI === "true") throw error;
    return "this process may not mount; run the test as root";
  } finally {
    rmdirSync(probe);
  }
}
