/**
 * A persistent shell: directory, variables and functions stay from one command to the next.
 *
 *   command ─▶ wait for its turn ─▶ a shell, fresh if the last one has ended ─▶ evaluate ─▶ result
 *                                                                     └ timeout, kill: the shell ends with it
 *
 * Invariants
 * - One command at a time, in the order of arrival.
 * - The shell's own record or the shell's end settles a result, never anything a command prints.
 * - A timeout or a kill ends the shell and everything the command started; background processes of earlier commands go
 *   on. Closing the session ends all of them.
 * - A command's output can be read while it runs, and until the next one begins or the table needs the room.
 */

import { rmSync, writeFileSync } from "node:fs";
import {
  type ExecStatus,
  SANDBOX_LIMITS,
  SandlotError,
  type SessionExecResult,
  type SessionInfo,
} from "@sandlot/contract";
import { bootTicks, monotonicMs, timer, wallMs } from "../clock.ts";
import { checkDirectory } from "../exec/command.ts";
import { endTree } from "../exec/end-tree.ts";
import type { ExecTable, Resident } from "../exec/exec-table.ts";
import type { Fifo } from "../exec/fifo-pool.ts";
import type { OutputTail } from "../exec/output-ring.ts";
import { type ExecTrace, MARKER_NAME, type ProcessRow } from "../exec/process-table.ts";
import { randomDigits } from "../random.ts";
import { CommandOutput, type PrintedOutput } from "./command-output.ts";
import { noPipes, type ShellEnd, ShellProcess } from "./shell.ts";
import { programFor } from "./shell-script.ts";

export interface SessionCommand {
  readonly command: string;
  readonly stdin: Uint8Array | null;
  readonly timeoutMs: number;
  /** How much of each stream's end the result has. Default: all that is held. */
  readonly outputMaxBytes?: number;
  /** Its caller has disconnected; `onAbandoned` is called when that happens while it runs. */
  isAbandoned(): boolean;
  onAbandoned(listener: () => void): void;
}

/** The output of the running command, or of the last one. */
export interface SessionOutput extends PrintedOutput, Pick<SessionResult, "execId" | "exitCode"> {
  readonly status: "running" | ExecStatus;
}

/** With the output as bytes; the caller decodes them. */
export interface SessionResult extends Omit<SessionExecResult, "stdout" | "stderr" | `std${string}DroppedBytes`> {
  readonly stdout: OutputTail;
  readonly stderr: OutputTail;
}

/** The output that can be read. */
interface Readable extends Pick<SessionOutput, "execId" | "status" | "exitCode"> {
  readonly output: CommandOutput;
}

type Outcome = { readonly status: ExecStatus } & ShellEnd & { readonly shellEnded: boolean };

/** Commands that wait for their turn. An agent with more has lost count. */
const WAITING_MAX = 64;
const RETRY_AFTER_MS = 1_000;
const PIPE_TRIES_MAX = 3;
/** After the shell's end its last record may still be in the pipe. */
const RECORD_GRACE_MS = 5;

export class Session implements Resident {
  readonly id: string;
  readonly #execs: ExecTable;
  readonly #key: string;
  readonly #startCwd: string;
  readonly #env: Readonly<Record<string, string>>;
  readonly #onPrinted: () => void;
  readonly #createdAt = wallMs();
  readonly #nonce = randomDigits(8);
  #cwd: string;
  #shell: ShellProcess | null = null;
  #shellTicks = 0;
  #lastStatus = 0;
  #serial = 0;
  #waiting = 0;
  #turn: Promise<unknown> = Promise.resolve();
  #running = false;
  #closed = false;
  #readable: Readable | null = null;

  /** `onPrinted` is called when a command has ended and its output is held. */
  constructor(execs: ExecTable, id: string, cwd: string, env: Readonly<Record<string, string>>, onPrinted: () => void) {
    checkDirectory(cwd);
    this.#onPrinted = onPrinted;
    this.id = id;
    this.#execs = execs;
    this.#key = execs.admit();
    this.#startCwd = cwd;
    this.#cwd = cwd;
    this.#env = { ...execs.around.environment, ...env, [MARKER_NAME]: execs.around.marker(this.#key) };
  }

  get trace(): ExecTrace {
    return { key: this.#key, pid: this.#shell?.pid ?? null, startTicks: this.#shellTicks, alone: false };
  }

  get info(): SessionInfo {
    return { sessionId: this.id, cwd: this.#cwd, createdAt: this.#createdAt, busy: this.#running };
  }

  isBusy(members: readonly ProcessRow[]): boolean {
    return this.#running || members.some(({ pid }) => pid !== this.#shell?.pid);
  }

  /** Runs a command after those before it. */
  async exec(command: SessionCommand): Promise<SessionResult> {
    if (this.#waiting >= WAITING_MAX)
      throw new SandlotError("session_busy", { sessionId: this.id, retryAfterMs: RETRY_AFTER_MS });
    this.#waiting++;
    const before = this.#turn;
    const mine = before.then(() => {
      this.#waiting--;
      if (this.#closed) throw new SandlotError("session_not_found", { sessionId: this.id });
      // The caller is gone, so the command does not run, and this error reaches no one.
      if (command.isAbandoned()) throw new SandlotError("internal", { problem: "the caller has gone" });
      return this.#run(command);
    });
    this.#turn = mine.catch(() => {});
    return mine;
  }

  /** `exec_not_found` when no command has run, or its output was dropped. */
  output(from: { readonly stdout: number; readonly stderr: number }, maxBytes: number): SessionOutput {
    if (this.#readable === null) throw new SandlotError("exec_not_found", { execId: `${this.id}:${this.#serial}` });
    const { output, ...rest } = this.#readable;
    return { ...rest, ...output.read(from, maxBytes) };
  }

  get heldBytes(): number {
    return this.#readable?.output.heldBytes ?? 0;
  }

  /** Drops the output of the last command. That of a running one stays. */
  forgetOutput(): void {
    if (this.#running) return;
    this.#readable?.output.retire();
    this.#readable = null;
  }

  /** Ends the shell and everything started in it. */
  async close(): Promise<void> {
    this.#closed = true;
    await endTree(() => this.#pids(() => true), this.#execs.around.killGraceMs);
    await this.#turn;
  }

  async #run(command: SessionCommand): Promise<SessionResult> {
    this.forgetOutput();
    this.#running = true;
    try {
      return await this.#runWith(command, new CommandOutput(await this.#pipe("take"), await this.#pipe("take")));
    } finally {
      this.#running = false;
    }
  }

  async #runWith(command: SessionCommand, output: CommandOutput): Promise<SessionResult> {
    const startTicks = bootTicks();
    const startedAt = monotonicMs();
    const stdinPath = this.#stdinPath(command.stdin);
    const execId = `${this.id}:${this.#serial + 1}`;
    this.#readable = { execId, status: "running", exitCode: null, output };
    try {
      const shell = await this.#liveShell();
      const outcome = await this.#evaluate(shell, command, output, stdinPath ?? "/dev/null", startTicks);
      await output.drain();
      const tails = output.tails(command.outputMaxBytes ?? SANDBOX_LIMITS.execOutputMaxBytes);
      output.freeze();
      this.#readable = { execId, status: outcome.status, exitCode: outcome.exitCode, output };
      this.#onPrinted();
      return this.#result(execId, outcome, tails, monotonicMs() - startedAt);
    } catch (error) {
      output.retire();
      this.#readable = null;
      throw error;
    } finally {
      if (stdinPath !== null) rmSync(stdinPath, { force: true });
    }
  }

  async #evaluate(
    shell: ShellProcess,
    command: SessionCommand,
    output: CommandOutput,
    stdin: string,
    startTicks: number,
  ): Promise<Outcome> {
    const nonce = `${this.#nonce}.${this.#serial++}`;
    const { stdout, stderr } = output.paths;
    const program = { nonce, command: command.command, lastStatus: this.#lastStatus, stdin, stdout, stderr };
    const record = shell
      .tell(programFor({ ...program, statusPipe: shell.statusPipe }), nonce)
      .then(({ status, cwd }) => {
        this.#cwd = cwd;
        return { status: "completed", exitCode: status, signal: null, shellEnded: false } as const;
      });
    const ended = shell.ended.then(async (end) => {
      await new Promise<void>((resolve) => void timer(RECORD_GRACE_MS, resolve));
      return { status: end.signal === null ? "completed" : "killed", ...end, shellEnded: true } as const;
    });
    let stop = (_status: "timed_out" | "killed"): void => {};
    const stopped = new Promise<"timed_out" | "killed">((resolve) => {
      stop = resolve;
    });
    const late = command.timeoutMs > 0 ? timer(command.timeoutMs, () => stop("timed_out")) : null;
    command.onAbandoned(() => stop("killed"));
    const first = await Promise.race([record, ended, stopped]);
    late?.cancel();
    if (typeof first !== "string") return first;
    await endTree(
      () => this.#pids((row) => row.pid === shell.pid || row.startTicks >= startTicks),
      this.#execs.around.killGraceMs,
    );
    const { signal } = await shell.ended;
    return { status: first, exitCode: null, signal: signal ?? "SIGTERM", shellEnded: true };
  }

  #result(
    execId: string,
    outcome: Outcome,
    output: ReturnType<CommandOutput["tails"]>,
    durationMs: number,
  ): SessionResult {
    const { status, exitCode, signal, shellEnded } = outcome;
    this.#lastStatus = exitCode ?? 0;
    return { execId, status, exitCode, signal, ...output, durationMs, cwd: this.#cwd, shellEnded };
  }

  async #liveShell(): Promise<ShellProcess> {
    if (this.#shell !== null && !this.#shell.isOver) return this.#shell;
    this.#lastStatus = 0;
    if (!isDirectory(this.#cwd)) this.#cwd = isDirectory(this.#startCwd) ? this.#startCwd : "/";
    const { temporaryDirectory, commandPrefix } = this.#execs.around;
    const status = await this.#pipe("take");
    const script = await this.#pipe("takeInput");
    this.#shellTicks = bootTicks();
    this.#shell = new ShellProcess(
      { status, script },
      { cwd: this.#cwd, temporaryDirectory, commandPrefix },
      this.#env,
      this.#key,
    );
    return this.#shell;
  }

  /** If the pipes were removed, new ones are created. */
  async #pipe(how: "take" | "takeInput"): Promise<Fifo> {
    const { fifos } = this.#execs.around;
    for (let tries = 0; tries < PIPE_TRIES_MAX; tries++) {
      await fifos.settled();
      const fifo = fifos[how]();
      if (fifo !== null) return fifo;
    }
    throw noPipes();
  }

  #stdinPath(bytes: Uint8Array | null): string | null {
    if (bytes === null) return null;
    const path = `${this.#execs.around.temporaryDirectory}/.sandboxd-stdin-${process.pid}-${this.#key}-${this.#serial}`;
    writeFileSync(path, bytes, { mode: 0o600, flag: "wx" });
    return path;
  }

  #pids(isMeant: (row: ProcessRow) => boolean): number[] {
    return this.#execs
      .membersOf(this.trace)
      .filter(isMeant)
      .map(({ pid }) => pid);
  }
}

function isDirectory(path: string): boolean {
  try {
    checkDirectory(path);
    return true;
  } catch {
    return false;
  }
}
