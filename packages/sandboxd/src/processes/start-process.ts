/**
 * Starts a process. Node forks: it copies the daemon's page tables and then writes to memory that it shares with the
 * copy, which is a large part of a short command's cost. `posix_spawn` borrows the daemon's memory instead, until the
 * program runs.
 *
 * Invariants
 * - A process cannot tell which of both has started it: descriptors, directory, environment, signals and session are
 *   the same.
 * - Node handles every start that is not plain, and every one that `posix_spawn` refuses. So all errors are Node's.
 * - The daemon waits for each of its processes by its pid, and for no other.
 */

import { spawn } from "node:child_process";
import { EventEmitter } from "node:events";
import { existsSync, constants as fileConstants } from "node:fs";
import { constants } from "node:os";
import type { Readable, Writable } from "node:stream";
import type { Stdio } from "../exec/masked-descriptors.ts";
import { type Libc, libc, OPAQUE_BYTES } from "./libc.ts";

export interface StartOptions {
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
  /** With masked descriptors, for those that the child must not get. */
  readonly stdio: Stdio;
  /** In a session of its own. */
  readonly detached?: boolean;
}

/** The used part of Node's `ChildProcess`. */
export interface StartedProcess {
  readonly pid?: number | undefined;
  readonly exitCode: number | null;
  readonly signalCode: string | null;
  readonly stdin: Writable | null;
  readonly stdout: Readable | null;
  readonly stderr: Readable | null;
  once(event: "exit", listener: (exitCode: number | null, signalName: string | null) => void): unknown;
  /** The start failed. */
  once(event: "error", listener: (error: NodeJS.ErrnoException) => void): unknown;
}

/** Fails as Node's `spawn` does: throws, or emits `error`. */
export function startProcess(file: string, args: readonly string[], options: StartOptions): StartedProcess {
  return startPlainly(file, args, options) ?? spawn(file, args, options);
}

/** For longer lists than this, the copy of the page tables is not the main cost. */
const LISTS_MAX_CHARS = 64 * 1024;
const NEW_SESSION = 0x80;
const SET_DEFAULTS = 0x04;
const SET_MASK = 0x08;
const WITHOUT_WAITING = 1;
const NOTHING = "/dev/null";

const actions = new Uint8Array(OPAQUE_BYTES);
const startedPid = new Int32Array(1);
const status = new Int32Array(1);

function startPlainly(file: string, args: readonly string[], options: StartOptions): StartedProcess | null {
  const library = isPlain(options.stdio) ? libc() : null;
  if (library === null) return null;
  const path = pathOf(file, options.env.PATH);
  const environment = Object.entries(options.env).map(([name, value]) => `${name}=${value}`);
  if (path === null || !canBePassed(args) || !canBePassed(environment)) return null;
  if (library.fileActionsInit(actions) !== 0) return null;
  try {
    if (!describeStart(library, options)) return null;
    const attributes = attributesFor(library, options.detached === true);
    listen(library);
    if (library.spawn(startedPid, path, actions, attributes, [file, ...args, null], [...environment, null]) !== 0)
      return null;
  } finally {
    library.fileActionsDestroy(actions);
  }
  const started = new SpawnedProcess(startedPid[0] ?? 0);
  running.set(started.pid, started);
  return started;
}

/** Descriptors only, and none that another would overwrite before it is passed on. */
function isPlain(stdio: Stdio): boolean {
  return stdio.length >= 3 && stdio.every((given) => given === "ignore" || (typeof given === "number" && given > 2));
}

/** The path for the kernel. `null`: only the C library's search can find it. */
function pathOf(file: string, searchPath: string | undefined): string | null {
  if (file === "" || file.includes("\0")) return null;
  if (file.includes("/")) return file;
  for (const directory of searchPath?.split(":") ?? []) {
    // Relative to a directory other than the daemon's.
    if (!directory.startsWith("/")) return null;
    const path = `${directory}/${file}`;
    if (existsSync(path)) return path;
  }
  return null;
}

function canBePassed(texts: readonly string[]): boolean {
  let chars = 0;
  for (const text of texts) {
    if (text.includes("\0")) return false;
    chars += text.length + 1;
  }
  return chars <= LISTS_MAX_CHARS;
}

/** In the order of the child's steps. Node's "ignore" means no descriptor at all beyond the first three. */
function describeStart(library: Libc, { stdio, cwd }: StartOptions): boolean {
  if (cwd.includes("\0") || library.addChdir(actions, cwd) !== 0) return false;
  return stdio.every((given, fd) => {
    if (typeof given === "number") return given !== fd && library.addDup2(actions, given, fd) === 0;
    if (fd > 2) return true;
    const flags = fd === 0 ? fileConstants.O_RDONLY : fileConstants.O_RDWR;
    return library.addOpen(actions, fd, NOTHING, flags, 0) === 0;
  });
}

const attributesBySession = new Map<boolean, Uint8Array>();

/** Resets every signal to its default and blocks none, independent of the daemon's own handlers. */
function attributesFor(library: Libc, newSession: boolean): Uint8Array {
  const known = attributesBySession.get(newSession);
  if (known !== undefined) return known;
  const attributes = new Uint8Array(OPAQUE_BYTES);
  library.attributesInit(attributes);
  library.attributesSetFlags(attributes, SET_DEFAULTS | SET_MASK | (newSession ? NEW_SESSION : 0));
  library.attributesSetDefaults(attributes, new Uint8Array(OPAQUE_BYTES).fill(0xff));
  library.attributesSetMask(attributes, new Uint8Array(OPAQUE_BYTES));
  attributesBySession.set(newSession, attributes);
  return attributes;
}

class SpawnedProcess extends EventEmitter implements StartedProcess {
  readonly pid: number;
  readonly stdin = null;
  readonly stdout = null;
  readonly stderr = null;
  exitCode: number | null = null;
  signalCode: string | null = null;

  constructor(pid: number) {
    super();
    this.pid = pid;
  }

  /** The status of `waitpid`. */
  end(waitStatus: number): void {
    const signal = waitStatus & 0x7f;
    if (signal === 0) this.exitCode = (waitStatus >> 8) & 0xff;
    else this.signalCode = nameOf(signal);
    this.emit("exit", this.exitCode, this.signalCode);
  }
}

const running = new Map<number, SpawnedProcess>();
let isListening = false;

function listen(library: Libc): void {
  if (isListening) return;
  isListening = true;
  process.on("SIGCHLD", () => reap(library));
}

/** One signal may stand for several ends, and for those of Node's own children. */
function reap(library: Libc): void {
  const ended: (readonly [SpawnedProcess, number])[] = [];
  for (const [pid, child] of running) {
    const found = library.wait(pid, status, WITHOUT_WAITING);
    if (found === 0) continue;
    running.delete(pid);
    // No other code waits for it, so it is found. If it is not, it is gone and its status is unknown.
    ended.push([child, found === pid ? (status[0] ?? 0) : constants.signals.SIGKILL]);
  }
  for (const [child, waitStatus] of ended) child.end(waitStatus);
}

let names: ReadonlyMap<number, string> | undefined;
const FIRST_REAL_TIME_SIGNAL = 34;

function nameOf(signal: number): string {
  if (names === undefined) {
    // Of two names for one signal the first is the usual one.
    const entries = Object.entries(constants.signals).map(([name, number]) => [number, name] as const);
    names = new Map(entries.reverse());
  }
  return names.get(signal) ?? `SIGRTMIN+${signal - FIRST_REAL_TIME_SIGNAL}`;
}
