/**
 * One run of one command, from its start to the end of its last process.
 */

import {
  type ExecInfo,
  type ExecResult,
  type FollowEnd,
  type FollowEvent,
  SANDBOX_LIMITS,
  type SandlotError,
} from "@sandlot/contract";
import { omittedRemedy } from "@sandlot/contract/live-exec";
import type { Timer } from "../../../world/world.ts";
import { Killed, type Machine, type Process } from "./machine.ts";
import { OutputHold } from "./output-hold.ts";
import { OutputRing } from "./output-ring.ts";
import type { Pipe } from "./streams.ts";

export interface Output {
  readonly stdout: OutputRing;
  readonly stderr: OutputRing;
}

export interface ExecParts {
  readonly id: string;
  readonly command: string | readonly string[];
  readonly fingerprint: string;
  /** 0 means no limit. */
  readonly timeoutMs: number;
  /** A caller may read its output again. */
  readonly kept: boolean;
  /** It waits for its followers. */
  readonly held: boolean;
  /** How much of the end of each stream the result holds. */
  readonly outputMaxBytes: number;
  run(process: Process, output: Output): Promise<number>;
  /** Receives writes to a stdin that was kept open. */
  readonly stdin: Pipe | null;
}

export interface FollowOffsets {
  readonly stdout: number;
  readonly stderr: number;
  /** The follower that a held command waits for, from this request until `leave`. Absent: it does not wait. */
  readonly follower?: string;
}

/** The longest delay of one timer. */
const TIMER_MAX_MS = 2 ** 31 - 1;

export class Exec {
  readonly id: string;
  readonly fingerprint: string;
  /** When the command itself has ended. Rejects when the sandbox was lost. */
  readonly result: Promise<ExecResult>;
  /** All its processes that still run, also in the background. */
  readonly #processes = new Set<Process>();
  readonly #machine: Machine;
  readonly #startedAt: number;
  readonly #output: Output = {
    stdout: new OutputRing(SANDBOX_LIMITS.execOutputMaxBytes),
    stderr: new OutputRing(SANDBOX_LIMITS.execOutputMaxBytes),
  };
  readonly #holds: { readonly stdout: OutputHold; readonly stderr: OutputHold } | null;
  readonly #timer: Timer | undefined;
  readonly #parts: ExecParts;
  readonly #startedAtWall: number;
  readonly #pid: number;
  readonly #wake = new Set<() => void>();
  #end: FollowEnd | null = null;
  #lost: SandlotError | null = null;
  #isGone = false;
  #resolve: (result: ExecResult) => void = () => {};
  #reject: (error: unknown) => void = () => {};

  constructor(machine: Machine, parts: ExecParts) {
    this.id = parts.id;
    this.fingerprint = parts.fingerprint;
    this.#parts = parts;
    this.#machine = machine;
    this.#startedAt = machine.world.monotonicMs();
    this.#startedAtWall = machine.world.wallMs();
    const { stdout, stderr } = this.#output;
    const held = (ring: OutputRing) => new OutputHold(ring, machine.world);
    this.#holds = parts.held ? { stdout: held(stdout), stderr: held(stderr) } : null;
    this.result = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    // The caller may have gone, so an unread rejection is no fault.
    this.result.catch(() => {});
    const main = machine.start(this.#processes, false, (process) => parts.run(process, this.#output));
    this.#pid = main.pid;
    const { timeoutMs } = parts;
    this.#timer =
      timeoutMs === 0
        ? undefined
        : machine.world.timer(Math.min(timeoutMs, TIMER_MAX_MS), () => this.end("timed_out", "SIGTERM"));
    void main.ended.then((ended) => {
      if (ended instanceof Killed) this.#settle("killed", null, ended.signal);
      else this.#settle("completed", ended & 255, null);
    });
    void this.gone().then(() => {
      this.#isGone = true;
      this.#stir();
    });
  }

  get stdin(): Pipe | null {
    return this.#end === null ? this.#parts.stdin : null;
  }

  get info(): ExecInfo {
    const { stdout, stderr } = this.#output;
    return {
      execId: this.id,
      command: this.#parts.command,
      status: this.#end?.status ?? "running",
      exitCode: this.#end?.exitCode ?? null,
      pid: this.#pid,
      startedAt: this.#startedAtWall,
      stdoutBytes: stdout.totalBytes,
      stderrBytes: stderr.totalBytes,
      ...(this.#holds !== null && this.#end === null ? { output: "hold" as const } : {}),
    };
  }

  /** This follower reads no more. */
  leave(follower: string): void {
    this.#holds?.stdout.left(follower);
    this.#holds?.stderr.left(follower);
  }

  /** The output from these offsets on, as soon as there is some; the end comes last, after all output. */
  async follow(offsets: FollowOffsets, until: "exit" | "closed"): Promise<readonly FollowEvent[]> {
    const { follower } = offsets;
    if (follower !== undefined) {
      this.#holds?.stdout.took(follower, offsets.stdout);
      this.#holds?.stderr.took(follower, offsets.stderr);
    }
    for (;;) {
      if (this.#lost !== null) throw this.#lost;
      const events = [...this.#outputFrom("stdout", offsets.stdout), ...this.#outputFrom("stderr", offsets.stderr)];
      if (events.length > 0) return events;
      const end = this.#end;
      if (end !== null && (until === "exit" || this.#isGone)) return [{ type: "end", end: this.#counted(end) }];
      await this.#stirred();
    }
  }

  /** The memory that its result takes. */
  get heldBytes(): number {
    return this.#output.stdout.heldBytes + this.#output.stderr.heldBytes;
  }

  /** Ends the whole tree. The result is settled first, so a later end does not change it. */
  end(status: "timed_out" | "killed", signal: string): void {
    this.#settle(status, null, signal);
    this.#killAll(signal);
  }

  lose(error: SandlotError): void {
    this.#timer?.cancel();
    this.#lost = error;
    this.#reject(error);
    this.#killAll("SIGKILL");
    this.#stir();
  }

  /** Resolves when its last process has ended. */
  async gone(): Promise<void> {
    while (this.#processes.size > 0) await Promise.all([...this.#processes].map((process) => process.ended));
  }

  #killAll(signal: string): void {
    for (const process of [...this.#processes]) process.kill(signal);
  }

  *#outputFrom(stream: "stdout" | "stderr", fromOffset: number): Generator<FollowEvent> {
    const { offset, bytes } = this.#output[stream].from(fromOffset);
    if (offset > fromOffset) yield { type: "gap", stream, fromOffset, toOffset: offset };
    if (bytes.length > 0) yield { type: "output", stream, offset, bytes };
  }

  #counted(end: FollowEnd): FollowEnd {
    const { stdout, stderr } = this.#output;
    return { ...end, stdoutBytes: stdout.totalBytes, stderrBytes: stderr.totalBytes };
  }

  #stirred(): Promise<void> {
    return new Promise((resolve) => {
      const { stdout, stderr } = this.#output;
      const stops = [stdout.listen(() => wake()), stderr.listen(() => wake())];
      const wake = () => {
        for (const stop of stops) stop();
        this.#wake.delete(wake);
        resolve();
      };
      this.#wake.add(wake);
    });
  }

  #stir(): void {
    for (const wake of [...this.#wake]) wake();
  }

  #settle(status: ExecResult["status"], exitCode: number | null, signal: string | null): void {
    this.#timer?.cancel();
    this.#holds?.stdout.end();
    this.#holds?.stderr.end();
    if (this.#end !== null) return;
    const execId = this.id;
    const stdout = this.#output.stdout.tail(this.#parts.outputMaxBytes);
    const stderr = this.#output.stderr.tail(this.#parts.outputMaxBytes);
    const isPartial = stdout.omittedBytes + stderr.omittedBytes > 0;
    const remedy = omittedRemedy(execId, { stdout: stdout.droppedBytes, stderr: stderr.droppedBytes });
    const durationMs = this.#machine.world.monotonicMs() - this.#startedAt;
    this.#end = { execId, status, exitCode, signal, stdoutBytes: 0, stderrBytes: 0, durationMs };
    this.#resolve({
      execId,
      status,
      exitCode,
      signal,
      stdout: stdout.text,
      stderr: stderr.text,
      stdoutDroppedBytes: stdout.droppedBytes,
      stderrDroppedBytes: stderr.droppedBytes,
      durationMs,
      ...(isPartial ? { omitted: { stdoutBytes: stdout.omittedBytes, stderrBytes: stderr.omittedBytes, remedy } } : {}),
    });
    if (!this.#parts.kept && !isPartial) {
      this.#output.stdout.release();
      this.#output.stderr.release();
    }
    this.#parts.stdin?.closeRead();
    this.#stir();
  }
}
