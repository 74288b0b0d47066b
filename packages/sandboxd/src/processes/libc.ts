/**
 * The functions of the C library that starting a process needs and Node lacks, through the native file beside the
 * daemon (koffi's, as its package ships it). Where it is missing or does not load, as in an image with another C
 * library, the daemon uses Node's own means.
 *
 * Invariants
 * - Either all of the functions are available, or none is used.
 * - Memory that a function keeps a pointer to outlives the call: memory of the attributes is never freed.
 */

import { existsSync } from "node:fs";
import { dirname } from "node:path";

/** Results are 0, or an error number. */
export interface Libc {
  fileActionsInit(actions: Uint8Array): number;
  fileActionsDestroy(actions: Uint8Array): number;
  addOpen(actions: Uint8Array, fd: number, path: string, flags: number, mode: number): number;
  addDup2(actions: Uint8Array, fd: number, as: number): number;
  addChdir(actions: Uint8Array, path: string): number;
  /** Writes the pid to `pid`. Lists end with `null`. */
  spawn(
    pid: Int32Array,
    path: string,
    actions: Uint8Array,
    attributes: Uint8Array,
    args: readonly (string | null)[],
    environment: readonly (string | null)[],
  ): number;
  attributesInit(attributes: Uint8Array): number;
  attributesSetFlags(attributes: Uint8Array, flags: number): number;
  attributesSetDefaults(attributes: Uint8Array, signals: Uint8Array): number;
  attributesSetMask(attributes: Uint8Array, signals: Uint8Array): number;
  /** Returns 0, or -1. */
  makeFifo(path: string, mode: number): number;
  /** Returns the pid of a child that has ended, 0 for one that runs. */
  wait(pid: number, status: Int32Array, options: number): number;
}

interface Koffi {
  load(path: null): { func(declaration: string): unknown };
}

const FILE = "koffi.node";
/** The C declarations. Structures are memory that only the C library reads (`OPAQUE_BYTES`). */
const DECLARATIONS: Readonly<Record<keyof Libc, string>> = {
  fileActionsInit: "int posix_spawn_file_actions_init(void *)",
  fileActionsDestroy: "int posix_spawn_file_actions_destroy(void *)",
  addOpen: "int posix_spawn_file_actions_addopen(void *, int, str, int, unsigned int)",
  addDup2: "int posix_spawn_file_actions_adddup2(void *, int, int)",
  addChdir: "int posix_spawn_file_actions_addchdir_np(void *, str)",
  spawn: "int posix_spawn(void *, str, void *, void *, const char **, const char **)",
  attributesInit: "int posix_spawnattr_init(void *)",
  attributesSetFlags: "int posix_spawnattr_setflags(void *, short)",
  attributesSetDefaults: "int posix_spawnattr_setsigdefault(void *, void *)",
  attributesSetMask: "int posix_spawnattr_setsigmask(void *, void *)",
  makeFifo: "int mkfifo(str, unsigned int)",
  wait: "int waitpid(int, void *, int)",
};
/** More than any C library's structure for attributes (glibc: 336) or actions (glibc: 80), and than a set of signals (128). */
export const OPAQUE_BYTES = 1024;

let found: Libc | null | undefined;

/** `null` where the functions are not available. */
export function libc(): Libc | null {
  if (found === undefined) found = tryLoad(`${dirname(process.argv[1] ?? "")}/${FILE}`);
  return found;
}

function tryLoad(path: string): Libc | null {
  if (process.platform !== "linux" || !existsSync(path)) return null;
  const holder = { exports: {} };
  try {
    process.dlopen(holder, path);
    const library = (holder.exports as Koffi).load(null);
    const functions = Object.entries(DECLARATIONS).map(([name, declaration]) => [name, library.func(declaration)]);
    return Object.fromEntries(functions) as Libc;
  } catch {
    // The file is for another system or an older C library. The fleet's doctor reports a missing file.
    return null;
  }
}
