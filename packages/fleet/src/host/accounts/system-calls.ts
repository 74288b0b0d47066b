/**
 * System calls for mounts and pipes that Node lacks, through koffi: the native file that `@sandlot/sandboxd` ships.
 *
 * Invariants
 * - Either all functions exist, or `systemCalls` returns `null`.
 * - A failed call throws a `SystemCallError` with the kernel's name for the error.
 */

import { getSystemErrorName } from "node:util";
import { sandboxdFiles } from "@sandlot/sandboxd";

export interface SystemCalls {
  /** A copy of the mount at a path, with the mounts `below` it, not attached yet. The caller closes the descriptor. */
  cloneTree(path: string, below: boolean): number;
  /** Shows the files of a copied mount with the owners that the user namespace maps to. */
  mapIds(tree: number, userNamespace: number): void;
  /** Attaches a copied mount. */
  attach(tree: number, path: string): void;
  /** Unmounts at once, even while in use. */
  detach(path: string): void;
  /** A named pipe. */
  makePipe(path: string, mode: number): void;
}

export class SystemCallError extends Error {
  /** For example `EINVAL`. */
  readonly code: string;

  constructor(call: string, path: string, code: string) {
    super(`${call} ${path}: ${code}`);
    this.code = code;
  }
}

interface Koffi {
  load(path: null): { func(declaration: string): (...parameters: unknown[]) => number };
  errno(): number;
}

/** The same on every architecture, because these calls are newer than the numbers that differ. */
const CALL_NUMBERS = { openTree: 428, moveMount: 429, mountSetattr: 442 } as const;
const AT_FDCWD = -100;
const AT_EMPTY_PATH = 0x1000;
const AT_SYMLINK_NOFOLLOW = 0x100;
const AT_RECURSIVE = 0x8000;
const OPEN_TREE_CLONE = 1;
const OPEN_TREE_CLOEXEC = 0o2000000;
const MOVE_MOUNT_FROM_EMPTY_PATH = 4;
const MOUNT_ATTR_IDMAP = 0x00100000n;
const MNT_DETACH = 2;
const UMOUNT_NOFOLLOW = 8;

let found: SystemCalls | null | undefined;

/** The native file; `null` where there is none for this machine. */
export function koffiPath(): string | null {
  return process.platform === "linux" ? sandboxdFiles().koffi : null;
}

/** `null` where koffi is missing or does not load. */
export function systemCalls(): SystemCalls | null {
  if (found === undefined) found = tryLoad(koffiPath());
  return found;
}

function tryLoad(path: string | null): SystemCalls | null {
  if (path === null) return null;
  const holder = { exports: {} };
  try {
    process.dlopen(holder, path);
    return declare(holder.exports as Koffi);
  } catch {
    // Built for another C library. The capability and `sandlot doctor` report what is missing.
    return null;
  }
}

function declare(koffi: Koffi): SystemCalls {
  const library = koffi.load(null);
  const openTree = library.func("long syscall(long, long, str, unsigned int)");
  const mountSetattr = library.func("long syscall(long, long, str, unsigned int, void *, size_t)");
  const moveMount = library.func("long syscall(long, long, str, long, str, unsigned int)");
  const umount = library.func("int umount2(str, int)");
  const mkfifo = library.func("int mkfifo(str, unsigned int)");
  const checked = (call: string, path: string, result: number): number => {
    if (result < 0) throw new SystemCallError(call, path, getSystemErrorName(-koffi.errno()));
    return result;
  };
  return {
    cloneTree(path, below) {
      const recursive = below ? AT_RECURSIVE : 0;
      const flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW | recursive;
      return checked("open_tree", path, openTree(CALL_NUMBERS.openTree, AT_FDCWD, path, flags));
    },
    mapIds(tree, userNamespace) {
      const flags = AT_EMPTY_PATH | AT_RECURSIVE;
      const attributes = idMapAttributes(userNamespace);
      const { length } = attributes;
      checked("mount_setattr", "", mountSetattr(CALL_NUMBERS.mountSetattr, tree, "", flags, attributes, length));
    },
    attach(tree, path) {
      const result = moveMount(CALL_NUMBERS.moveMount, tree, "", AT_FDCWD, path, MOVE_MOUNT_FROM_EMPTY_PATH);
      checked("move_mount", path, result);
    },
    detach(path) {
      checked("umount2", path, umount(path, MNT_DETACH | UMOUNT_NOFOLLOW));
    },
    makePipe(path, mode) {
      checked("mkfifo", path, mkfifo(path, mode));
    },
  };
}

/** `struct mount_attr`: what to set, what to clear, the propagation, and the user namespace. */
function idMapAttributes(userNamespace: number): Uint8Array {
  return new Uint8Array(new BigUint64Array([MOUNT_ATTR_IDMAP, 0n, 0n, BigInt(userNamespace)]).buffer);
}
