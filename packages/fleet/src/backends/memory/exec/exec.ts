/**
 * One run of one command, from its start to the moment when nothing of it runs any more.
 */

import { type ExecResult, SANDBOX_LIMITS, type SandlotError } from "@sandlot/contract";
import type { Timer } from "../../../world/world.ts";
import { Killed, type Machine, type Process } from "./machine.ts";
import { OutputRing } from "./output-ring.ts";

export interface Output {
  readonly stdout: OutputRing;
  readonly stderr: OutputRing;
}

/** As long as one timer can wait. */
const TIMER_MAX_MS = 2 ** 31 - 1;

export class Exec {
  readonly id: string;
  readonly fingerprint: string;
  /** When the command itself has ended. Rejects when the sandbox was lost. */
  readonly result: Promise<ExecResult>;
  /** Everything it has started and that still runs, also in the background. */
  readonly #processes = new Set<Process>();
  readonly #machine: Machine;
  readonly #startedAt: number;
  readonly #output: Output = {
    stdout: new OutputRing(SANDBOX_LIMITS.execOutputMaxBytes),
    stderr: new OutputRing(SANDBOX_LIMITS.execOutputMaxBytes),
  };
  readonly #timer: Timer | undefined;
  #heldBytes = 0;
  #resolve: (result: ExecResult) => void = () => {};
  #reject: (error: unknown) => void = () => {};

  /** A `timeoutMs` of 0 means no limit. */
  constructor(
    machine: Machine,
    id: string,
    fingerprint: string,
    timeoutMs: number,
    run: (process: Process, output: Output) => Promise<number>,
  ) {
    this.id = id;
    this.fingerprint = fingerprint;
    this.#machine = machine;
    this.#startedAt = machine.world.monotonicMs();
    this.result = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    // Who asked may have gone; a loss that nobody waits for is no accident.
    this.result.catch(() => {});
    const main = machine.start(this.#processes, false, (process) => run(process, this.#output));
    this.#timer =
      timeoutMs === 0
        ? undefined
        : machine.world.timer(Math.min(timeoutMs, TIMER_MAX_MS), () => this.end("timed_out", "SIGTERM"));
    void main.ended.then((ended) => {
      if (ended instanceof Killed) this.#settle("killed", null, ended.signal);
      else this.#settle("completed", ended & 255, null);
    });
  }

  /** What its result keeps in memory. */
  get heldBytes(): number {
    return this.#heldBytes;
  }

  /** Ends the whole tree. The result is settled first: nothing that ends changes it any more. */
  end(status: "timed_out" | "killed", signal: string): void {
    this.#settle(status, null, signal);
    this.#killAll(signal);
  }

  lose(error: SandlotError): void {
    this.#timer?.cancel();
    this.#reject(error);
    this.#killAll("SIGKILL");
  }

  /** When nothing of it runs any more. */
  async gone(): Promise<void> {
    while (this.#processes.size > 0) await Promise.all([...this.#processes].map((process) => process.ended));
  }

  #killAll(signal: string): void {
    for (const process of [...this.#processes]) process.kill(signal);
  }

  #settle(status: ExecResult["status"], exitCode: number | null, signal: string | null): void {
    this.#timer?.cancel();
    const stdout = this.#output.stdout.finish();
    const stderr = this.#output.stderr.finish();
    this.#heldBytes = Math.max(this.#heldBytes, stdout.text.length + stderr.text.length);
    this.#resolve({
      execId: this.id,
      status,
      exitCode,
      signal,
      stdout: stdout.text,
      stderr: stderr.text,
      stdoutDroppedBytes: stdout.droppedBytes,
      stderrDroppedBytes: stderr.droppedBytes,
      durationMs: this.#machine.world.monotonicMs() - this.#startedAt,
    });
  }
}
