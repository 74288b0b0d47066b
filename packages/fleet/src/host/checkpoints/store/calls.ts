/**
 * The system calls of takes, restores and collections: synchronous, because a worker process makes them. All go through
 * here, so that a test can end the process before any one of them.
 *
 * Names are Latin-1 strings, one character per byte: a name that is not UTF-8 keeps its bytes.
 */

import * as fs from "node:fs";

/** For tests: called before every call. */
export const seam: { before: ((name: string) => void) | null } = { before: null };

type Path = string | Buffer;
const ASCII = /^[ -~]*$/;

/** A name below a descriptor. */
export function at(descriptor: number, name: string): Path {
  const path = `/proc/self/fd/${descriptor}/${name}`;
  return ASCII.test(name) ? path : Buffer.from(path, "latin1");
}

export function ofDescriptor(descriptor: number): string {
  return `/proc/self/fd/${descriptor}`;
}

function before(name: string): void {
  if (seam.before !== null) seam.before(name);
}

const BIG = { bigint: true } as const;
const LATIN1 = { encoding: "latin1" } as const;
const BUFFER = { encoding: "buffer" } as const;

export const calls = {
  open(path: Path, flags: number, mode?: number): number {
    before("open");
    return fs.openSync(path, flags, mode);
  },
  close(descriptor: number): void {
    before("close");
    fs.closeSync(descriptor);
  },
  read(descriptor: number, buffer: Uint8Array, offset: number, length: number, position: number | null): number {
    before("read");
    return fs.readSync(descriptor, buffer, offset, length, position);
  },
  write(descriptor: number, buffer: Uint8Array, offset: number, length: number): number {
    before("write");
    return fs.writeSync(descriptor, buffer, offset, length);
  },
  writeAt(descriptor: number, buffer: Uint8Array, offset: number, length: number, position: number): number {
    before("write");
    return fs.writeSync(descriptor, buffer, offset, length, position);
  },
  fstat(descriptor: number): fs.BigIntStats {
    before("fstat");
    return fs.fstatSync(descriptor, BIG);
  },
  lstat(path: Path): fs.BigIntStats | undefined {
    before("lstat");
    return fs.lstatSync(path, { bigint: true, throwIfNoEntry: false });
  },
  /** Latin-1 names. */
  readdir(path: string): string[] {
    before("readdir");
    return fs.readdirSync(path, LATIN1 as unknown as { encoding: "utf8" });
  },
  /** Latin-1. */
  readlink(path: Path): string {
    before("readlink");
    return fs.readlinkSync(path, BUFFER).toString("latin1");
  },
  mkdir(path: Path, mode: number): void {
    before("mkdir");
    fs.mkdirSync(path, mode);
  },
  symlink(target: string, path: Path): void {
    before("symlink");
    fs.symlinkSync(Buffer.from(target, "latin1"), path);
  },
  link(from: Path, to: Path): void {
    before("link");
    fs.linkSync(from, to);
  },
  rename(from: Path, to: Path): void {
    before("rename");
    fs.renameSync(from, to);
  },
  unlink(path: Path): void {
    before("unlink");
    fs.unlinkSync(path);
  },
  rmdir(path: Path): void {
    before("rmdir");
    fs.rmdirSync(path);
  },
  /** Follows a link; only for paths of descriptors. */
  chmod(path: Path, mode: number): void {
    before("chmod");
    fs.chmodSync(path, mode);
  },
  fchown(descriptor: number, uid: number, gid: number): void {
    before("fchown");
    fs.fchownSync(descriptor, uid, gid);
  },
  lchown(path: Path, uid: number, gid: number): void {
    before("lchown");
    fs.lchownSync(path, uid, gid);
  },
  /** Follows a link; only for paths of descriptors. Seconds. */
  utimes(path: Path, seconds: number): void {
    before("utimes");
    fs.utimesSync(path, seconds, seconds);
  },
  futimes(descriptor: number, seconds: number): void {
    before("futimes");
    fs.futimesSync(descriptor, seconds, seconds);
  },
  lutimes(path: Path, seconds: number): void {
    before("lutimes");
    fs.lutimesSync(path, seconds, seconds);
  },
  ftruncate(descriptor: number, length: number): void {
    before("ftruncate");
    fs.ftruncateSync(descriptor, length);
  },
  fsync(descriptor: number): void {
    before("fsync");
    fs.fsyncSync(descriptor);
  },
};

/** Closes, and keeps an error that is already on its way. */
export function closing<T>(descriptor: number, work: (descriptor: number) => T): T {
  try {
    return work(descriptor);
  } finally {
    calls.close(descriptor);
  }
}

export function writeAll(descriptor: number, bytes: Uint8Array): void {
  for (let done = 0; done < bytes.length; ) done += calls.write(descriptor, bytes, done, bytes.length - done);
}

/** Makes the names in a directory survive a power cut. */
export function syncDirectory(path: string): void {
  closing(calls.open(path, fs.constants.O_RDONLY | fs.constants.O_DIRECTORY), (descriptor) => calls.fsync(descriptor));
}

/** Microseconds as the seconds that set exactly these: half of one more survives the way through a double. */
export function secondsOf(microseconds: bigint): number {
  return Number(microseconds) / 1e6 + 4e-7;
}
