/**
 * The commands of this sandbox: started, found again, ended.
 *
 * Invariants
 * - One exec id is one run. The same call again, also after it has ended, finds that run; another command under the
 *   same id is `exec_conflict`.
 * - What runs, in front or in the background with an open stream, is never forgotten. What has ended is remembered when
 *   somebody may come again for it, within a limit on number and on held bytes, the newest longest.
 */

import { DEFAULT_CWD, type ExecCall, SANDBOX_LIMITS, SandlotError } from "@sandlot/contract";
import { checkDirectory } from "./command.ts";
import { killTree } from "./end-tree.ts";
import { Exec, type ExecSurroundings } from "./exec.ts";
import { FifoPool } from "./fifo-pool.ts";
import { type ExecTrace, ProcessTable } from "./process-table.ts";

export interface ExecSettings {
  readonly environment: Readonly<Record<string, string>>;
  readonly defaultCwd?: string;
  readonly ownsPidNamespace?: boolean;
  readonly killGraceMs?: number;
  readonly temporaryDirectory: string;
}

/** Ended execs that callers may come again for; together they hold at most this much output. */
const REMEMBERED_MAX = 256;
const REMEMBERED_MAX_BYTES = 64 * 1024 * 1024;

export class ExecTable {
  readonly processes: ProcessTable;
  readonly #fifos: FifoPool;
  readonly #around: ExecSurroundings;
  /** By id: what runs or has a stream open. */
  readonly #open = new Map<string, Exec>();
  /** By id: what callers may ask for again, the oldest first. */
  readonly #remembered = new Map<string, Exec>();
  #serial = 0;

  constructor(settings: ExecSettings) {
    this.processes = new ProcessTable(settings.ownsPidNamespace ?? false);
    this.#fifos = new FifoPool(settings.temporaryDirectory);
    this.#around = {
      fifos: this.#fifos,
      temporaryDirectory: settings.temporaryDirectory,
      environment: { ...BASE_ENVIRONMENT, ...settings.environment },
      defaultCwd: settings.defaultCwd ?? DEFAULT_CWD,
      killGraceMs: settings.killGraceMs ?? SANDBOX_LIMITS.killGraceMs,
      marker: (key) => this.processes.marker(key),
      processesOf: (exec) => this.#pidsOf(exec),
    };
  }

  prepare(): void {
    this.#fifos.prepare();
  }

  /** Starts a command, or finds the one that this very call has started before. */
  async start(call: ExecCall, stdin: Uint8Array | null, options: { remember: boolean }): Promise<Exec> {
    // Nothing before this line may wait once it has passed: two calls with one id must not both start.
    await this.#fifos.settled();
    const fingerprint = fingerprintOf(call, stdin);
    const known = this.#remembered.get(call.execId) ?? this.#open.get(call.execId);
    if (known !== undefined) {
      if (known.fingerprint === fingerprint) return known;
      throw new SandlotError("exec_conflict", { execId: call.execId });
    }
    checkDirectory(call.cwd ?? this.#around.defaultCwd);
    const exec = new Exec(this.#around, (this.#serial++).toString(36), fingerprint, call, stdin);
    this.#track(exec, options.remember);
    return exec;
  }

  find(execId: string): Exec {
    const exec = this.#remembered.get(execId) ?? this.#open.get(execId);
    if (exec === undefined) throw new SandlotError("exec_not_found", { execId });
    return exec;
  }

  /** Ends an exec and all it started. `false`: there is none of that id, so it has ended. */
  async kill(execId: string): Promise<boolean> {
    const exec = this.#remembered.get(execId) ?? this.#open.get(execId);
    if (exec === undefined) return false;
    await exec.end("killed");
    return true;
  }

  /** How many execs have something running, in front or in the background. */
  runningCount(): number {
    const keys = new Set([...this.#open.values()].filter((exec) => !exec.hasEnded).map(({ key }) => key));
    for (const key of this.processes.byExec(this.traces()).keys()) keys.add(key);
    return keys.size;
  }

  /** The caller's name for the exec with this key, where it is still known. */
  idOf(key: string): string | null {
    for (const exec of this.#open.values()) if (exec.key === key) return exec.id;
    for (const exec of this.#remembered.values()) if (exec.key === key) return exec.id;
    return null;
  }

  traces(): readonly ExecTrace[] {
    return [...this.#open.values()].map(({ trace }) => trace);
  }

  /** The daemon ends: nothing it has started stays. */
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
      // One that still runs stays: its caller would start it a second time.
      if (this.#open.has(id)) continue;
      this.#remembered.delete(id);
      bytes -= exec.stdout.heldBytes + exec.stderr.heldBytes;
    }
  }
}

const BASE_ENVIRONMENT: Readonly<Record<string, string>> = {
  HOME: "/home/sandbox",
  LANG: "C.UTF-8",
  PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
  TMPDIR: "/tmp",
  USER: "sandbox",
};

/** What makes two calls the same call. How long a caller is willing to wait does not. */
function fingerprintOf({ command, cwd, env = {}, repeatable }: ExecCall, stdin: Uint8Array | null): string {
  // Nobody comes again for the others, and their ids are random.
  if (!repeatable) return "";
  const sorted = Object.entries(env).sort(([a], [b]) => (a < b ? -1 : 1));
  return JSON.stringify([command, cwd ?? null, sorted, stdin === null ? null : digest(stdin)]);
}

/** Tells two inputs apart that a caller mixed up; nobody attacks himself. */
function digest(bytes: Uint8Array): string {
  let [low, high] = [0x811c9dc5, 0x01000193];
  for (const byte of bytes) {
    low = Math.imul(low ^ byte, 0x01000193);
    high = Math.imul(high ^ byte, 0x85ebca6b) + 1;
  }
  return `${bytes.length}.${low >>> 0}.${high >>> 0}`;
}
