/**
 * One run of one command, from its start to the moment when none of its processes can write any more.
 *
 *   start ──▶ running ──▶ ended (result is known) ──▶ closed (its streams have ended)
 *                │ timeout, kill
 *                └──▶ ending: TERM, grace, KILL of the whole tree ──▶ ended
 *
 * Invariants
 * - The result is settled once. A command that is being ended settles when its whole tree is gone.
 * - A timeout after the command's end does nothing: its background processes go on.
 */

import { closeSync } from "node:fs";
import {
  type ExecCall,
  type ExecInfo,
  type ExecResult,
  type ExecSignal,
  type ExecStatus,
  SANDBOX_LIMITS,
} from "@sandlot/contract";
import { bootTicks, monotonicMs, type Timer, timer, wallMs } from "../clock.ts";
import { type StartedProcess, startProcess } from "../processes/start-process.ts";
import { asCommand } from "./as-command.ts";
import { prefixed, programOf } from "./command.ts";
import { endTree } from "./end-tree.ts";
import type { FifoPool } from "./fifo-pool.ts";
import { maskedStdio, type Stdio } from "./masked-descriptors.ts";
import { OutputHold } from "./output-hold.ts";
import { OutputRing } from "./output-ring.ts";
import { type ExecTrace, MARKER_NAME } from "./process-table.ts";
import { tagNextChild } from "./process-tag.ts";
import { stdinFile } from "./stdin-file.ts";
import { OpenStdin } from "./stdin-pipe.ts";
import { DRAIN_MAX_BYTES, type OutputStream, outputStream } from "./streams.ts";

/** The surroundings of an exec. */
export interface ExecSurroundings {
  readonly fifos: FifoPool;
  readonly temporaryDirectory: string;
  readonly environment: Readonly<Record<string, string>>;
  readonly defaultCwd: string;
  readonly killGraceMs: number;
  readonly outputHoldMs: number;
  readonly commandPrefix: readonly string[];
  marker(key: string): string;
  /** The living processes of this exec; `null` where the system does not report them. */
  processesOf(exec: Exec): readonly number[] | null;
}

/** A command that has ended by then needs no reader. */
const FOLLOW_AFTER_MS = 2;

export class Exec {
  readonly id: string;
  readonly key: string;
  readonly fingerprint: string;
  readonly stdout = new OutputRing(SANDBOX_LIMITS.execOutputMaxBytes);
  readonly stderr = new OutputRing(SANDBOX_LIMITS.execOutputMaxBytes);
  /** Resolves when the command itself has ended. */
  readonly ended: Promise<void>;
  /** Resolves when no process can write to its streams any more. */
  readonly closed: Promise<void>;
  alone: boolean;
  /** The open stdin, for a command that was started with one. */
  readonly stdin: OpenStdin | null;
  /** The holds of stdout and stderr, for a command that waits for its followers. */
  readonly holds: readonly [OutputHold, OutputHold] | null;
  readonly #command: ExecCall["command"];
  readonly #around: ExecSurroundings;
  readonly #startedAt = monotonicMs();
  readonly #startedWallMs = wallMs();
  readonly #startTicks = bootTicks();
  readonly #streams: readonly OutputStream[];
  /** `null` when the start failed. */
  readonly #child: StartedProcess | null;
  #timers: Timer[] = [];
  #ending: Promise<boolean> | null = null;
  #outcome: Pick<ExecResult, "status" | "exitCode" | "signal" | "durationMs"> | null = null;
  #markEnded: () => void = () => {};

  constructor(around: ExecSurroundings, key: string, fingerprint: string, call: ExecCall, stdin: Uint8Array | null) {
    this.id = call.execId;
    this.key = key;
    this.fingerprint = fingerprint;
    this.#command = call.command;
    this.#around = around;
    this.alone = true;
    this.stdin = call.keepStdinOpen === true ? new OpenStdin(call.execId, around.fifos) : null;
    this.ended = new Promise((resolve) => {
      this.#markEnded = resolve;
    });
    this.closed = Promise.all([closing(this.stdout), closing(this.stderr)]).then(() => {});
    const held = (ring: OutputRing) => new OutputHold(ring, around.outputHoldMs);
    this.holds = call.output === "hold" ? [held(this.stdout), held(this.stderr)] : null;
    const streamOf = (ring: OutputRing, at: 0 | 1) => outputStream(around.fifos.take(), ring, this.holds?.[at] ?? null);
    this.#streams = [streamOf(this.stdout, 0), streamOf(this.stderr, 1)];
    this.#child = this.#start(call, stdin);
    this.#setTimers(call.timeoutMs ?? SANDBOX_LIMITS.execTimeoutMs);
  }

  get pid(): number | null {
    return this.#child?.pid ?? null;
  }

  get hasEnded(): boolean {
    return this.#outcome !== null;
  }

  /** Whether a process still has one of its streams open. */
  get isOpen(): boolean {
    return !this.hasEnded || !this.stdout.closed || !this.stderr.closed;
  }

  get trace(): ExecTrace {
    return { key: this.key, pid: this.pid, startTicks: this.#startTicks, alone: this.alone };
  }

  get outcome(): Pick<ExecResult, "status" | "exitCode" | "signal" | "durationMs"> | null {
    return this.#outcome;
  }

  /** How it ended, once it has. */
  get settled(): Pick<ExecResult, "status" | "exitCode" | "signal" | "durationMs"> {
    return this.#outcome ?? LOST;
  }

  info(): ExecInfo {
    return {
      execId: this.id,
      command: this.#command,
      status: this.#outcome?.status ?? "running",
      exitCode: this.#outcome?.exitCode ?? null,
      pid: this.pid,
      startedAt: this.#startedWallMs,
      stdoutBytes: this.stdout.endOffset,
      stderrBytes: this.stderr.endOffset,
      ...(this.holds !== null && !this.hasEnded && { output: "hold" as const }),
    };
  }

  /** To the command's own process group. `false`: it does not run. */
  signal(name: ExecSignal): boolean {
    if (this.pid === null || this.hasEnded || this.#child?.exitCode !== null || this.#child.signalCode !== null)
      return false;
    try {
      return process.kill(-this.pid, name);
    } catch {
      return false;
    }
  }

  /** Only after its end. Holds the output of this moment. */
  result(): ExecResult {
    const { status, exitCode, signal, durationMs } = this.settled;
    const stdout = this.stdout.text();
    const stderr = this.stderr.text();
    return {
      execId: this.id,
      status,
      exitCode,
      signal,
      stdout: stdout.text,
      stderr: stderr.text,
      stdoutDroppedBytes: stdout.droppedBytes,
      stderrDroppedBytes: stderr.droppedBytes,
      durationMs,
    };
  }

  /** Ends the whole tree, also when only background processes are left. */
  async end(status: "timed_out" | "killed"): Promise<void> {
    this.#cancelTimers();
    this.#ending ??= endTree(() => this.#members(), this.#around.killGraceMs);
    await this.#ending;
    if (this.hasEnded) return;
    await this.#settle(status, null, this.#child?.signalCode ?? "SIGTERM");
  }

  #start(call: ExecCall, stdin: Uint8Array | null): StartedProcess | null {
    const { file, args } = prefixed(this.#around.commandPrefix, programOf(call.command));
    const stdinFd = stdin === null || this.stdin ? null : stdinFile(this.#around.temporaryDirectory, stdin);
    const input = this.stdin?.stdio ?? (stdin === null ? "ignore" : (stdinFd ?? "pipe"));
    const child = this.#spawn(call, file, args, [input, ...this.#streams.map(({ stdio }) => stdio)]);
    if (stdinFd !== null) closeSync(stdinFd);
    this.#streams[0]?.started(child?.stdout ?? null);
    this.#streams[1]?.started(child?.stderr ?? null);
    if (this.stdin !== null) {
      this.stdin.started(child?.stdin ?? null);
      if (stdin !== null && stdin.length > 0) void this.stdin.write(stdin, false).catch(() => {});
      void this.ended.then(() => this.stdin?.close());
      return child;
    }
    // For stdin without room for a file. A command that does not read it is no error.
    child?.stdin?.on("error", () => {});
    child?.stdin?.end(stdin);
    return child;
  }

  #spawn(call: ExecCall, file: string, args: readonly string[], stdio: Stdio): StartedProcess | null {
    try {
      tagNextChild(this.key);
      const options = {
        cwd: call.cwd ?? this.#around.defaultCwd,
        env: { ...this.#around.environment, ...call.env, [MARKER_NAME]: this.#around.marker(this.key) },
        // A session of its own: signals to the daemon's group never reach it, and ours reach all of its processes.
        detached: true,
        stdio: maskedStdio(stdio),
      };
      const child = asCommand(() => startProcess(file, args, options));
      child.once("error", (error) => void this.#couldNotStart(file, error));
      child.once("exit", (exitCode, signalName) => void this.#exited(exitCode, signalName));
      return child;
    } catch (error) {
      // Some failures come as an event, some are thrown. An event always comes after the constructor.
      queueMicrotask(() => void this.#couldNotStart(file, error as NodeJS.ErrnoException));
      return null;
    }
  }

  #setTimers(timeoutMs: number): void {
    if (this.pid === null) return;
    this.#timers.push(timer(FOLLOW_AFTER_MS, () => this.#follow()));
    if (timeoutMs > 0) this.#timers.push(timer(timeoutMs, () => void this.end("timed_out")));
  }

  #cancelTimers(): void {
    for (const timer of this.#timers) timer.cancel();
    this.#timers = [];
    this.#follow();
  }

  #follow(): void {
    for (const stream of this.#streams) stream.follow();
  }

  /** The command itself has ended. Its background processes keep its streams. */
  async #exited(exitCode: number | null, signalName: string | null): Promise<void> {
    for (const timer of this.#timers) timer.cancel();
    if (this.#ending !== null) return;
    const durationMs = monotonicMs() - this.#startedAt;
    this.#endHolds();
    for (const stream of this.#streams) {
      const waiting = stream.drain();
      if (waiting !== undefined) await waiting;
    }
    if (signalName === null) this.#finish("completed", exitCode ?? 0, null, durationMs);
    else this.#finish("killed", null, signalName, durationMs);
    this.#follow();
  }

  /** As a shell reports it: 127 when there is no such program, 126 when there is one that cannot be run. */
  async #couldNotStart(file: string, error: NodeJS.ErrnoException): Promise<void> {
    const missing = error.code === "ENOENT" || file === "";
    const reason = missing ? "command not found" : (START_PROBLEMS[error.code ?? ""] ?? error.message);
    this.stderr.write(Buffer.from(`${file}: ${reason}\n`));
    await this.#settle("completed", missing ? 127 : 126, null);
  }

  async #settle(status: ExecStatus, exitCode: number | null, signalName: string | null): Promise<void> {
    this.#endHolds();
    for (const stream of this.#streams) await stream.drain();
    this.#finish(status, exitCode, signalName, monotonicMs() - this.#startedAt);
  }

  /** Delivers what it wrote before its end: the rest in the pipe gets room beside a full ring. */
  #endHolds(): void {
    for (const hold of this.holds ?? []) hold.end(DRAIN_MAX_BYTES);
  }

  #finish(status: ExecStatus, exitCode: number | null, signalName: string | null, durationMs: number): void {
    if (this.#outcome !== null) return;
    this.#outcome = { status, exitCode, signal: signalName, durationMs };
    this.#markEnded();
  }

  #members(): readonly number[] {
    const known = this.#around.processesOf(this);
    if (known !== null) return known;
    return this.pid !== null && groupIsAlive(this.pid) ? [-this.pid] : [];
  }
}

const LOST = { status: "lost", exitCode: null, signal: null, durationMs: 0 } as const;

const START_PROBLEMS: Readonly<Record<string, string>> = {
  EACCES: "Permission denied",
  E2BIG: "Argument list too long",
  EAGAIN: "Resource temporarily unavailable",
  ENOMEM: "Cannot allocate memory",
  ENOEXEC: "Exec format error",
  ENOTDIR: "Not a directory",
  ELOOP: "Too many levels of symbolic links",
};

function closing(ring: OutputRing): Promise<void> {
  return new Promise((resolve) => {
    const stop = ring.listen(() => {
      if (!ring.closed) return;
      stop();
      resolve();
    });
  });
}

function groupIsAlive(group: number): boolean {
  try {
    return process.kill(-group, 0);
  } catch {
    return false;
  }
}
