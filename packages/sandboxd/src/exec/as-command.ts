/**
 * Distinguishes a command from the daemon, from its first instruction: the kernel kills commands before the daemon when
 * memory runs out, and the host can tell them apart.
 *
 * A process inherits its out-of-memory score, so the daemon has a command's score while it starts one. A later write
 * would miss the processes that the command has started meanwhile. As with `process-tag.ts`, a daemon that is closed to
 * its own account gets the open file.
 */

import { closeSync, openSync, readSync, writeFileSync, writeSync } from "node:fs";

const COMMAND_SCORE = 1_000;

let fd: number | null | undefined;
/** The daemon's own score. */
let ownScore = 0;

/** The file `/proc/self/oom_score_adj` is open already. */
export function useScoreDescriptor(given: number): void {
  fd = given;
  prepare();
}

/** Every process that `start` starts has a command's score. */
export function asCommand<T extends { readonly pid?: number | undefined }>(start: () => T): T {
  if (fd === undefined) {
    fd = attempt(() => openSync("/proc/self/oom_score_adj", "r+"));
    prepare();
  }
  if (fd === null || !write(fd, COMMAND_SCORE)) return markLater(start());
  try {
    return start();
  } finally {
    if (!write(fd, ownScore)) stopUsing(fd);
  }
}

/** For a daemon that cannot change its own score. A process that has ended, or is not in /proc, has none. */
function markLater<T extends { readonly pid?: number | undefined }>(child: T): T {
  if (child.pid !== undefined) attempt(() => writeFileSync(`/proc/${child.pid}/oom_score_adj`, String(COMMAND_SCORE)));
  return child;
}

/** Reads the daemon's own score. */
function prepare(): void {
  const opened = fd ?? null;
  if (opened === null) return;
  const text = Buffer.alloc(16);
  const length = attempt(() => readSync(opened, text, 0, text.length, 0));
  ownScore = Number.parseInt(text.toString("latin1", 0, length ?? 0), 10);
  if (!Number.isInteger(ownScore) || !write(opened, ownScore)) stopUsing(opened);
}

function stopUsing(opened: number): void {
  attempt(() => closeSync(opened));
  fd = null;
}

function write(opened: number, score: number): boolean {
  return attempt(() => writeSync(opened, String(score), 0)) !== null;
}

function attempt<T>(work: () => T): T | null {
  try {
    return work();
  } catch {
    return null;
  }
}
