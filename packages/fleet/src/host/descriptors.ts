/**
 * Opens files below a directory that a sandbox can change, without race conditions.
 *
 * A path is walked name by name, each opened relative to the descriptor of its parent: `/proc/self/fd/N/name` is Node's
 * form of openat(2). No link is followed, and the checked file is the used file, because both are one descriptor.
 * `O_PATH` opens the name only: a FIFO does not block, a device is not touched, and no permission to read is needed.
 */

import { constants } from "node:fs";

/** Node does not export it. The number is the same on every architecture that Node supports. */
const O_PATH = 0o10000000;

/** Opens any kind of file for inspection, including a symbolic link itself. */
export const OPEN_ANY = O_PATH | constants.O_NOFOLLOW;
/** Opens a directory, and only a directory: a symbolic link to one is ENOTDIR. */
export const OPEN_DIRECTORY = O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW;
/** Creates a new file, never opens an existing one. */
export const OPEN_NEW = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
/** For a descriptor of a regular file: if it is none after all, the open neither blocks nor gets a terminal. */
export const OPEN_READ = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY;

/** The path of a descriptor of this process, or of a name below it. */
export function fdPath(descriptor: number, name?: string): string {
  return name === undefined ? `/proc/self/fd/${descriptor}` : `/proc/self/fd/${descriptor}/${name}`;
}

/** The same for a name of any bytes, given as Latin-1. */
export function fdBytePath(descriptor: number, name: string): Buffer {
  return Buffer.from(fdPath(descriptor, name), "latin1");
}
