/**
 * Pipes for the output of commands.
 *
 * Node gives its children socket pairs, and a program cannot open those again by name: `echo x > /dev/stderr` fails
 * with ENXIO. A FIFO is a real pipe, so commands get FIFOs. Node cannot make one either: the C library does, or the
 * program `mkfifo`, many at once. A FIFO can be used again when no process has it open.
 *
 * Invariants
 * - A FIFO in `#free` is open in no process: its last reader has seen its end. So two commands never share one.
 * - A FIFO that a command has removed or replaced is dropped.
 * - Without FIFOs (no means to make them, no directory) `take` returns `null`, and the caller falls back to socket
 *   pairs.
 */

import { spawn } from "node:child_process";
import { closeSync, constants, fstatSync, mkdtempSync, openSync, rmSync } from "node:fs";
import { SYSTEM_PATH } from "@sandlot/contract";
import { libc } from "../processes/libc.ts";

export interface Fifo {
  /** Its name, valid until it is given back. */
  readonly path: string;
  /** The daemon's end, non-blocking. */
  readonly readFd: number;
  /** The command's end. */
  readonly writeFd: number;
  /** Gives it back. Only when both ends are closed, in every process. */
  release(): void;
  /**
   * Forgets it instead: processes that have it open may go on. `cat /dev/stdin` opens it by its descriptor, not by its
   * name.
   */
  discard(): void;
}

const BATCH = 32;
const LOW_WATER = 8;
/** More than this many at once means more than a hundred commands with open streams; further ones get socket pairs. */
const FIFOS_MAX = 384;

export class FifoPool {
  readonly #parentDirectory: string;
  #directory: string | null = null;
  #free: string[] = [];
  #made = 0;
  #filling: Promise<void> | null = null;
  #broken = false;

  constructor(parentDirectory: string) {
    this.#parentDirectory = parentDirectory;
  }

  /** Makes the first ones, so that the first command does not wait for them. */
  prepare(): void {
    this.#fill();
  }

  /** Waits until there is a FIFO for each of a command's two streams, if there can be. It rarely has to wait. */
  async settled(): Promise<void> {
    while (this.#free.length < 2 && this.#canGrow()) await this.#fill();
  }

  /** Opens a pipe from a command: reads do not block, writes do. */
  take(): Fifo | null {
    if (this.#free.length < LOW_WATER) void this.#fill();
    for (let path = this.#free.pop(); path !== undefined; path = this.#free.pop()) {
      const ends = openBoth(path);
      if (ends !== null) {
        const used = path;
        return { path: used, ...ends, release: () => this.#free.push(used), discard: () => this.#discard(used) };
      }
      this.#made--;
    }
    return null;
  }

  /** Opens a pipe to a command: the command's reads block, our writes do not. */
  takeInput(): Fifo | null {
    const fifo = this.take();
    if (fifo === null) return null;
    const readFd = attempt(() => openSync(fifo.path, constants.O_RDONLY));
    const writeFd = attempt(() => openSync(fifo.path, constants.O_WRONLY | constants.O_NONBLOCK));
    closeSync(fifo.readFd);
    closeSync(fifo.writeFd);
    if (readFd !== null && writeFd !== null) return { ...fifo, readFd, writeFd };
    for (const fd of [readFd, writeFd]) if (fd !== null) closeSync(fd);
    return null;
  }

  close(): void {
    this.#broken = true;
    if (this.#directory !== null) rmSync(this.#directory, { recursive: true, force: true });
  }

  #discard(path: string): void {
    rmSync(path, { force: true });
    this.#made--;
  }

  #canGrow(): boolean {
    return !this.#broken && this.#made + BATCH <= FIFOS_MAX;
  }

  #fill(): Promise<void> {
    if (!this.#canGrow()) return Promise.resolve();
    this.#filling ??= this.#make().then(
      (paths) => {
        this.#free.push(...paths);
        this.#made += paths.length;
        this.#filling = null;
      },
      () => {
        // Without a directory or the program the next attempt would fail as well.
        this.#broken = true;
        this.#filling = null;
      },
    );
    return this.#filling;
  }

  #serial = 0;

  async #make(): Promise<string[]> {
    this.#directory ??= mkdtempSync(`${this.#parentDirectory}/.sandboxd-`);
    const paths = Array.from({ length: BATCH }, () => `${this.#directory}/${this.#serial++}`);
    const code = makeFifos(paths) ?? (await runMkfifo(paths));
    if (code === 0) return paths;
    // A command has removed the directory: the next attempt makes another one.
    const gone = this.#directory !== null && attempt(() => openAndClose(this.#directory ?? "")) === null;
    if (!gone) throw new Error(`mkfifo ended with ${String(code)}`);
    this.#directory = null;
    return [];
  }
}

/** 0 when all are made; `null` without a C library. */
function makeFifos(paths: readonly string[]): number | null {
  const library = libc();
  if (library === null) return null;
  return paths.every((path) => library.makeFifo(path, 0o600) === 0) ? 0 : 1;
}

function runMkfifo(paths: readonly string[]): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const child = spawn("mkfifo", ["-m", "600", ...paths], { stdio: "ignore", env: { PATH: SEARCH_PATH } });
    child.once("error", reject);
    child.once("exit", resolve);
  });
}

/** The search path for the daemon's own programs. */
export const SEARCH_PATH: string = process.env.PATH ?? SYSTEM_PATH;

/** `null`: it is gone, or another file took its place, whose other end might never open. */
function openBoth(path: string): { readFd: number; writeFd: number } | null {
  const readFd = attempt(() => openSync(path, constants.O_RDONLY | constants.O_NONBLOCK));
  if (readFd === null) return null;
  const writeFd = fstatSync(readFd).isFIFO() ? attempt(() => openSync(path, constants.O_WRONLY)) : null;
  if (writeFd !== null) return { readFd, writeFd };
  closeSync(readFd);
  return null;
}

function openAndClose(path: string): true {
  closeSync(openSync(path, constants.O_RDONLY));
  return true;
}

function attempt<T>(work: () => T): T | null {
  try {
    return work();
  } catch {
    return null;
  }
}
