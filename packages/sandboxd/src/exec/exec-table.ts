/**
 * The commands of this sandbox: started, found again, ended. Shells of sessions and terminals are not commands, but
 * this table tracks their processes too, and all share one limit.
 *
 * Invariants
 * - One exec id is one run. The same call again, also after it has ended, finds that run; another command under the
 *   same id is `exec_conflict`.
 * - A running exec, in front or in the background with an open stream, is never forgotten. An ended one is kept when
 *   its caller may repeat the call, within a limit on number and on held bytes; the oldest goes first.
 */

import {
  DEFAULT_CWD,
  EXEC_MAX,
  type ExecCall,
  type ExecInfo,
  KEPT_HOME,
  ownPath,
  SANDBOX_LIMITS,
  SandlotError,
  SYSTEM_PATH,
} from "@sandlot/contract";
import { checkDirectory } from "./command.ts";
import { killTree } from "./end-tree.ts";
import { Exec, type ExecSurroundings } from "./exec.ts";
import { FifoPool } from "./fifo-pool.ts";
import { type ExecTrace, type ProcessRow, ProcessTable } from "./process-table.ts";

export interface ExecSettings {
  readonly environment: Readonly<Record<string, string>>;
  readonly defaultCwd?: string;
  readonly ownsPidNamespace?: boolean;
  readonly killGraceMs?: number;
  readonly outputHoldMs?: number;
  readonly temporaryDirectory: string;
  readonly execMax?: number;
  readonly commandPrefix?: readonly string[];
}

/** A shell that lives on between commands. */
export interface Resident {
  readonly trace: ExecTrace;
  /** Whether it is busy, given its living processes. */
  isBusy(members: readonly ProcessRow[]): boolean;
}

const RETRY_AFTER_MS = 500;

/** Ended execs for repeated calls; together they hold at most this much output. */
const REMEMBERED_MAX = 256;
const REMEMBERED_MAX_BYTES = 64 * 1024 * 1024;

export class ExecTable {
  readonly processes: ProcessTable;
  readonly #fifos: FifoPool;
  readonly #around: ExecSurroundings;
  /** By id: execs that run or have an open stream. */
  readonly #open = new Map<string, Exec>();
  /** By id: execs that callers may request again, the oldest first. */
  readonly #remembered = new Map<string, Exec>();
  /** By key. */
  readonly #residents = new Map<string, Resident>();
  readonly #max: number;
  #serial = 0;

  constructor(settings: ExecSettings) {
    this.processes = new ProcessTable(settings.ownsPidNamespace ?? false);
    this.#fifos = new FifoPool(settings.temporaryDirectory);
    this.#max = settings.execMax ?? EXEC_MAX;
    this.#around = {
      fifos: this.#fifos,
      temporaryDirectory: settings.temporaryDirectory,
      environment: { ...BASE_ENVIRONMENT, ...settings.environment },
      defaultCwd: settings.defaultCwd ?? DEFAULT_CWD,
      commandPrefix: settings.commandPrefix ?? [],
      killGraceMs: settings.killGraceMs ?? SANDBOX_LIMITS.killGraceMs,
      outputHoldMs: settings.outputHoldMs ?? SANDBOX_LIMITS.outputHoldMs,
      marker: (key) => this.processes.marker(key),
      processesOf: (exec) => this.#pidsOf(exec),
    };
  }

  prepare(): void {
    this.#fifos.prepare();
  }

  /** The surroundings of every command of this sandbox. */
  get around(): ExecSurroundings {
    return this.#around;
  }

  /** A key for a new exec or shell; `exec_limit` when the table is full. */
  admit(): string {
    let running = this.#residents.size;
    for (const exec of this.#open.values()) if (!exec.hasEnded) running++;
    if (running >= this.#max)
      throw new SandlotError("exec_limit", { running, max: this.#max, retryAfterMs: RETRY_AFTER_MS });
    return (this.#serial++).toString(36);
  }

  /** Tracks its processes from now on. Returns a function that forgets it. */
  settle(resident: Resident): () => void {
    for (const exec of this.#open.values()) exec.alone = false;
    this.#residents.set(resident.trace.key, resident);
    return () => this.#residents.delete(resident.trace.key);
  }

  /** The living processes of a present or former resident. */
  membersOf(trace: ExecTrace): readonly ProcessRow[] {
    const traces = this.#residents.has(trace.key) ? this.traces() : [...this.traces(), trace];
    return this.processes.byExec(traces).get(trace.key) ?? [];
  }

  /** Starts a command, or finds the one that the same call has started before. */
  async start(call: ExecCall, stdin: Uint8Array | null, options: { remember: boolean }): Promise<Exec> {
    // No `await` may follow this one: two calls with one id must not both start.
    await this.#fifos.settled();
    const fingerprint = fingerprintOf(call, stdin);
    const known = this.peek(call.execId);
    if (known !== undefined) {
      if (known.fingerprint === fingerprint) return known;
      throw new SandlotError("exec_conflict", { execId: call.execId });
    }
    checkDirectory(call.cwd ?? this.#around.defaultCwd);
    const exec = new Exec(this.#around, this.admit(), fingerprint, call, stdin);
    this.#track(exec, options.remember);
    return exec;
  }

  /** A caller may repeat the call after all. */
  remember(exec: Exec): void {
    this.#remembered.set(exec.id, exec);
    this.#forget();
  }

  /** Running execs, then kept ones, the oldest first. */
  list(): ExecInfo[] {
    const all = new Set([...this.#remembered.values(), ...this.#open.values()]);
    return [...all].map((exec) => exec.info()).sort((a, b) => a.startedAt - b.startedAt);
  }

  peek(execId: string): Exec | undefined {
    return this.#remembered.get(execId) ?? this.#open.get(execId);
  }

  find(execId: string): Exec {
    const exec = this.peek(execId);
    if (exec === undefined) throw new SandlotError("exec_not_found", { execId });
    return exec;
  }

  /** Ends an exec and all its processes. `false`: there is none of that id, so it has ended. */
  async kill(execId: string): Promise<boolean> {
    const exec = this.peek(execId);
    if (exec === undefined) return false;
    await exec.end("killed");
    return true;
  }

  /** How many execs have a running process, in front or in the background. All strays together count as one more. */
  runningCount(): number {
    const keys = new Set([...this.#open.values()].filter((exec) => !exec.hasEnded).map(({ key }) => key));
    const { byExec, strays } = this.processes.census(this.traces());
    for (const [key, members] of byExec) {
      const resident = this.#residents.get(key);
      if (resident === undefined || resident.isBusy(members)) keys.add(key);
    }
    return keys.size + (strays.length > 0 ? 1 : 0);
  }

  /** The caller's id of the exec with this key, where it is still known. */
  idOf(key: string): string | null {
    for (const exec of this.#open.values()) if (exec.key === key) return exec.id;
    for (const exec of this.#remembered.values()) if (exec.key === key) return exec.id;
    return null;
  }

  traces(): readonly ExecTrace[] {
    return [...this.#open.values(), ...this.#residents.values()].map(({ trace }) => trace);
  }

  /** The daemon ends: all its processes end with it. */
  async close(): Promise<void> {
    await killTree(() => {
      const members = [...this.processes.byExec(this.traces()).values()].flat();
      return members.map(({ pid }) => pid);
    });
    this.#fifos.close();
  }

  #pidsOf(exec: Exec): readonly number[] | null {
    const rows = this.processes.rows();
    if (rows.length === 0) return null;
    const traces = [...this.traces(), ...(this.#open.get(exec.id) === exec ? [] : [exec.trace])];
    return (this.processes.byExec(traces, rows).get(exec.key) ?? []).map(({ pid }) => pid);
  }

  #track(exec: Exec, remember: boolean): void {
    if (this.#residents.size > 0) exec.alone = false;
    for (const other of this.#open.values()) {
      if (other.hasEnded && !other.isOpen) continue;
      other.alone = false;
      exec.alone = false;
    }
    this.#open.set(exec.id, exec);
    if (remember) this.#remembered.set(exec.id, exec);
    const settle = () => {
      if (exec.isOpen) return;
      this.#open.delete(exec.id);
      this.#forget();
    };
    void exec.ended.then(settle);
    void exec.closed.then(settle);
  }

  #forget(): void {
    let bytes = 0;
    for (const { stdout, stderr } of this.#remembered.values()) bytes += stdout.heldBytes + stderr.heldBytes;
    for (const [id, exec] of this.#remembered) {
      if (this.#remembered.size <= REMEMBERED_MAX && bytes <= REMEMBERED_MAX_BYTES) return;
      // A running exec stays: its caller would start it a second time.
      if (this.#open.has(id)) continue;
      this.#remembered.delete(id);
      bytes -= exec.stdout.heldBytes + exec.stderr.heldBytes;
    }
  }
}

const BASE_ENVIRONMENT: Readonly<Record<string, string>> = {
  HOME: KEPT_HOME,
  LANG: "C.UTF-8",
  PATH: `${ownPath(KEPT_HOME)}:${SYSTEM_PATH}`,
  TMPDIR: "/tmp",
  USER: "sandbox",
};

/** The fields that make two calls the same call. The caller's timeout is not one. */
function fingerprintOf(call: ExecCall, stdin: Uint8Array | null): string {
  const { command, cwd, env = {}, repeatable, keepStdinOpen } = call;
  // Other calls are never repeated, and their ids are random.
  if (!repeatable) return "";
  const sorted = Object.entries(env).sort(([a], [b]) => (a < b ? -1 : 1));
  return JSON.stringify([command, cwd ?? null, sorted, stdin === null ? null : digest(stdin), keepStdinOpen === true]);
}

/** Tells apart two inputs that a caller mixed up. Collisions only affect the caller itself. */
function digest(bytes: Uint8Array): string {
  let [low, high] = [0x811c9dc5, 0x01000193];
  for (const byte of bytes) {
    low = Math.imul(low ^ byte, 0x01000193);
    high = Math.imul(high ^ byte, 0x85ebca6b) + 1;
  }
  return `${bytes.length}.${low >>> 0}.${high >>> 0}`;
}
