/**
 * The commands of one sandbox: started, followed, ended.
 *
 * Invariants
 * - One exec id is one run. The same call again, also after it has ended, gets that run's result; another command under
 *   the same id is `exec_conflict`.
 * - A result is ready when the command itself has ended. Its background processes go on and still count as running.
 * - A timeout, a kill and the sandbox's death end all processes of the command.
 */

import { createHash } from "node:crypto";
import {
  DEFAULT_CWD,
  ENV_NAME_PATTERN,
  type ExecInfo,
  type ExecResult,
  SANDBOX_LIMITS,
  SandlotError,
  type SpawnedExec,
} from "@sandlot/contract";
import { checkPath } from "../files/tree.ts";
import { Exec, type Output } from "./exec.ts";
import type { Machine, Process } from "./machine.ts";
import { Pipe, Source, type Streams } from "./streams.ts";

/** An exec request, as plain data. */
export interface ExecRequest {
  readonly execId: string;
  readonly command: string | readonly string[];
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly stdin?: Uint8Array;
  readonly timeoutMs?: number;
  /** How much of the end of each stream the result holds. */
  readonly outputMaxBytes?: number;
  /** The caller chose the id and may repeat the call with it. */
  readonly repeatable: boolean;
  /** Takes more input later. Only for spawned commands. */
  readonly keepStdinOpen?: boolean;
  /** Waits for its followers. Only for spawned commands. */
  readonly held?: boolean;
}

/** Runs a checked command in a process, with any shell. */
export type RunCommand = (
  process: Process,
  command: string | readonly string[],
  options: RunOptions,
) => Promise<number>;

export interface RunOptions {
  readonly cwd: string;
  readonly environment: ReadonlyMap<string, string>;
  readonly streams: Streams;
}

/** How many ended execs, and how much of their output, are kept for repeated calls. */
const REMEMBERED_MAX = 64;
const REMEMBERED_MAX_BYTES = 64 * 1024 * 1024;
const EXEC_ID_MAX_CHARS = 256;

export class ExecTable {
  readonly #machine: Machine;
  readonly #run: RunCommand;
  /** By id: running execs, in front or in the background. */
  readonly #running = new Map<string, Exec>();
  /** By id: execs that callers may request again, the oldest first. */
  readonly #remembered = new Map<string, Exec>();

  constructor(machine: Machine, run: RunCommand) {
    this.#machine = machine;
    this.#run = run;
  }

  get runningCount(): number {
    return this.#running.size;
  }

  exec(request: ExecRequest): Promise<ExecResult> {
    const exec = this.#begin(request, { kept: request.repeatable, timeoutMs: SANDBOX_LIMITS.execTimeoutMs });
    // Its caller may read what the result leaves out.
    const keep = ({ omitted }: ExecResult) => omitted !== undefined && this.#remembered.set(exec.id, exec);
    exec.result.then(keep, () => {});
    return exec.result;
  }

  spawn(request: ExecRequest): SpawnedExec {
    const { execId, pid } = this.#begin(request, { kept: true, timeoutMs: 0 }).info;
    return { execId, pid };
  }

  list(): readonly ExecInfo[] {
    return [...new Set([...this.#remembered.values(), ...this.#running.values()])].map(({ info }) => info);
  }

  find(execId: string): Exec {
    const exec = this.#remembered.get(execId) ?? this.#running.get(execId);
    if (exec === undefined) throw new SandlotError("exec_not_found", { execId });
    return exec;
  }

  /** Ends an exec and all its processes. `false`: no exec of that id runs. */
  kill(execId: string, signal = "SIGKILL"): boolean {
    const exec = this.#running.get(execId);
    exec?.end("killed", signal);
    return exec !== undefined;
  }

  async writeStdin(execId: string, content: Uint8Array, end: boolean): Promise<void> {
    const { stdin } = this.find(execId);
    if (stdin === null) throw new SandlotError("stdin_closed", { execId });
    try {
      if (content.length > 0) await stdin.write(content);
    } catch {
      // Its stdin has no reader any more.
      throw new SandlotError("stdin_closed", { execId });
    }
    if (end) stdin.closeWrite();
  }

  /** The sandbox is gone: waiting callers get the error. */
  lose(error: SandlotError): void {
    for (const exec of [...this.#running.values()]) exec.lose(error);
    this.#machine.killAll();
  }

  #check({ execId, command, cwd = DEFAULT_CWD, env = {}, timeoutMs = 0 }: ExecRequest): void {
    if (execId === "" || execId.length > EXEC_ID_MAX_CHARS)
      throw invalid("execId", `it must have 1 to ${EXEC_ID_MAX_CHARS} characters`);
    if (typeof command !== "string" && command.length === 0) throw invalid("command", "it is empty");
    if ([command].flat().some((text) => text.includes("\0"))) throw invalid("command", "it contains a NUL byte");
    if (!Number.isFinite(timeoutMs) || timeoutMs < 0) throw invalid("timeoutMs", "it is not a duration");
    for (const [name, value] of Object.entries(env)) {
      if (!ENV_NAME_PATTERN.test(name)) throw invalid("env", `${JSON.stringify(name)} is not the name of a variable`);
      if (value.includes("\0")) throw invalid("env", `the value of ${name} contains a NUL byte`);
    }
    checkPath(cwd);
    this.#machine.tree.directory(cwd);
  }

  /** Starts a command, or finds the one that the same call has started before. */
  #begin(request: ExecRequest, defaults: { readonly kept: boolean; readonly timeoutMs: number }): Exec {
    const { execId: id, command, timeoutMs = defaults.timeoutMs } = request;
    const fingerprint = fingerprintOf(request);
    const known = this.#remembered.get(id) ?? this.#running.get(id);
    if (known !== undefined) {
      if (known.fingerprint === fingerprint) return known;
      throw new SandlotError("exec_conflict", { execId: id });
    }
    this.#check(request);
    const machine = this.#machine;
    const stdin = request.keepStdinOpen === true ? new Pipe(new AbortController().signal) : null;
    if (stdin !== null && request.stdin !== undefined) void stdin.write(request.stdin).catch(() => {});
    const source = stdin?.source ?? (request.stdin === undefined ? Source.empty() : Source.of(request.stdin));
    const exec = new Exec(machine, {
      ...{ id, command, fingerprint, timeoutMs, stdin, kept: defaults.kept, held: request.held === true },
      outputMaxBytes: request.outputMaxBytes ?? SANDBOX_LIMITS.execResultMaxBytes,
      run: (process, output) => this.#run(process, command, runOptions(machine, request, source, output)),
    });
    this.#track(exec, defaults.kept);
    return exec;
  }

  #track(exec: Exec, kept: boolean): void {
    this.#running.set(exec.id, exec);
    if (kept) this.#remembered.set(exec.id, exec);
    void exec.gone().then(() => {
      this.#running.delete(exec.id);
      this.#forgetSurplus();
    });
  }

  /** A running exec is not forgotten: its caller would start it a second time. */
  #forgetSurplus(): void {
    let bytes = 0;
    for (const exec of this.#remembered.values()) bytes += exec.heldBytes;
    for (const [id, exec] of this.#remembered) {
      if (this.#remembered.size <= REMEMBERED_MAX && bytes <= REMEMBERED_MAX_BYTES) return;
      if (this.#running.has(id)) continue;
      this.#remembered.delete(id);
      bytes -= exec.heldBytes;
    }
  }
}

function runOptions(machine: Machine, request: ExecRequest, stdin: Source, output: Output): RunOptions {
  const cwd = request.cwd ?? DEFAULT_CWD;
  const environment = new Map(Object.entries({ ...BASE_ENVIRONMENT, ...machine.environment, ...request.env }));
  return { cwd, environment, streams: { stdin, ...output } };
}

const BASE_ENVIRONMENT: Readonly<Record<string, string>> = {
  LANG: "C.UTF-8",
  TMPDIR: "/tmp",
  USER: "sandbox",
};

/** The fields that make two calls the same call. The caller's timeout is not one. */
function fingerprintOf({ command, cwd = DEFAULT_CWD, env = {}, stdin }: ExecRequest): string {
  const sorted = Object.entries(env).sort(([a], [b]) => (a < b ? -1 : 1));
  const hash = createHash("sha256").update(JSON.stringify([command, cwd, sorted, stdin === undefined]));
  return hash.update(stdin ?? "").digest("hex");
}

function invalid(field: string, problem: string): SandlotError {
  return new SandlotError("invalid_request", { field, problem });
}
