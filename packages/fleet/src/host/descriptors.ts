/**
 * Ways to a file that a sandbox cannot bend.
 *
 * A path is walked name by name, each opened relative to the descriptor of its parent: `/proc/self/fd/N/name` is Node's
 * way to say openat(2). Nothing is followed, and what was checked is what is used, because both are one descriptor.
 * `O_PATH` opens the name only: a FIFO does not block, a device is not touched, and no permission to read is needed.
 */

import { constants } from "node:fs";

/** Node does not name it. The same number on every architecture that Node runs on. */
const O_PATH = 0o10000000;

/** Opens whatever stands there, also a symbolic link itself, to be looked at. */
export const OPEN_ANY = O_PATH | constants.O_NOFOLLOW;
/** Opens a directory, and only a directory: a symbolic link to one is ENOTDIR. */
export const OPEN_DIRECTORY = O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW;
/** A new file, never one that is there. */
export const OPEN_NEW = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
/** For a descriptor that is known to be a plain file's: should it be none, this neither blocks nor gets a terminal. */
export const OPEN_READ = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY;

/** The path of what a descriptor of this process is open on, or of a name below it. */
export function fdPath(descriptor: number, name?: string): string {
  return name === undefined ? `/proc/self/fd/${descriptor}` : `/proc/self/fd/${descriptor}/${name}`;
}

/** The same for a name of any bytes, given as Latin-1. */
export function fdBytePath(descriptor: number, name: string): Buffer {
  return Buffer.from(fdPath(descriptor, name), "latin1");
}
