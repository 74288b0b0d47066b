/**
 * The pulse of a sandbox: a named pipe that only its init holds open for writing. The kernel closes it when the init
 * ends for any reason, so every reader learns of the death at once; in any process, also one that did not make the
 * sandbox.
 *
 * Its content is discarded: a sandbox may write any bytes.
 */

import { closeSync, constants, openSync, readdirSync, readSync, statSync } from "node:fs";
import { listenToPipe } from "./named-pipe.ts";

/** The writing end, to pass to the sandbox and close here. */
export function openPulse(path: string): number {
  // Opening for writing alone would wait for a reader.
  const reader = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    return openSync(path, constants.O_WRONLY | constants.O_NONBLOCK);
  } finally {
    closeSync(reader);
  }
}

/** Whether a process holds it. `false` too when the pipe does not exist. */
export function hasPulse(path: string): boolean {
  let fd: number;
  try {
    fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return false;
    throw error;
  }
  try {
    return readSync(fd, Buffer.alloc(1)) > 0;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EAGAIN") return true;
    throw error;
  } finally {
    closeSync(fd);
  }
}

/**
 * Calls `stopped` once, when no process holds it any more. Does not keep this process alive. Returns a function that
 * stops listening.
 */
export function listenToPulse(path: string, stopped: () => void): () => void {
  const pipe = listenToPipe(path);
  pipe.resume();
  pipe.once("close", stopped);
  return () => {
    pipe.off("close", stopped);
    pipe.destroy();
  };
}

/** The processes that hold it, as far as this account can see: for a sandbox that was started but not recorded. */
export function pulseHolders(path: string): readonly number[] {
  const pulse = statSync(path, { throwIfNoEntry: false });
  if (pulse === undefined) return [];
  return list("/proc")
    .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
    .filter((pid) => list(`/proc/${pid}/fd`).some((fd) => isSame(`/proc/${pid}/fd/${fd}`, pulse)))
    .map(Number);
}

function isSame(path: string, { dev, ino }: { readonly dev: number; readonly ino: number }): boolean {
  try {
    const other = statSync(path);
    return other.ino === ino && other.dev === dev;
  } catch {
    return false;
  }
}

function list(path: string): readonly string[] {
  try {
    return readdirSync(path);
  } catch {
    return [];
  }
}
