/**
 * The workers of one backend: processes that take one job each, and stay for the next one for a while.
 *
 * Invariants
 * - A job's worker is its own: cancelling a job kills the worker, and nothing else is harmed. Jobs are repaired by
 *   repeating them.
 * - Nothing that a worker says is used before it was parsed. One that says something else is killed.
 * - A worker that says nothing for `silenceMaxMs` is killed.
 */

import { type ChildProcess, fork } from "node:child_process";
import type { CheckpointChange } from "@sandlot/contract";
import { SandlotError } from "@sandlot/contract";
import type { z } from "zod";
import type { CheckpointProgress } from "../../../backend/checkpoints.ts";
import { FROM_SOURCE, programFile } from "../../../package-files.ts";
import type { Timer, World } from "../../../world/world.ts";
import {
  changesSchema,
  type FromWorker,
  fromWorkerSchema,
  type JobName,
  type Jobs,
  receivedError,
  resultSchemas,
  type ToWorker,
  type WorkerSettings,
} from "./messages.ts";

export interface Listening {
  readonly signal?: AbortSignal;
  readonly onProgress?: ((progress: CheckpointProgress) => void) | undefined;
  readonly onProblem?: (problem: string) => void;
  readonly onChanges?: (changes: readonly CheckpointChange[]) => void;
  /** The worker waits until it resolves. */
  readonly onPiece?: (piece: Uint8Array) => Promise<void>;
}

interface Worker {
  readonly child: ChildProcess;
  said: string;
  idle: Timer | null;
  hear: ((message: FromWorker) => void) | null;
  fail: ((problem: string) => void) | null;
}

const STDERR_MAX = 2_000;
const RETRY_AFTER_MS = 1_000;

export class WorkerPool {
  readonly #settings: WorkerSettings;
  readonly #world: World;
  readonly #free: Worker[] = [];
  readonly #all = new Set<Worker>();
  readonly #waiting: (() => void)[] = [];
  #running = 0;
  #isClosed = false;

  constructor(settings: WorkerSettings, world: World) {
    this.#settings = settings;
    this.#world = world;
  }

  /** For tests. */
  get pids(): readonly number[] {
    return [...this.#all].flatMap(({ child }) => child.pid ?? []);
  }

  async run<Name extends JobName>(
    job: Name,
    args: Jobs[Name],
    listening: Listening = {},
  ): Promise<z.infer<(typeof resultSchemas)[Name]>> {
    listening.signal?.throwIfAborted();
    await this.#turn(listening.signal);
    try {
      listening.signal?.throwIfAborted();
      if (this.#isClosed) throw this.#unavailable("the fleet was closed");
      const worker = this.#free.pop() ?? this.#start();
      return await this.#ask(worker, job, args, listening);
    } finally {
      this.#running--;
      this.#waiting.shift()?.();
    }
  }

  /** Jobs end with an error; what they have begun is finished when they are asked for again. */
  async close(): Promise<void> {
    this.#isClosed = true;
    const gone = [...this.#all].map((worker) => this.#end(worker, "the fleet was closed"));
    await Promise.all(gone);
  }

  async #turn(signal: AbortSignal | undefined): Promise<void> {
    if (this.#running < this.#settings.options.workersMax) {
      this.#running++;
      return;
    }
    await new Promise<void>((resolve, reject) => {
      const go = () => {
        signal?.removeEventListener("abort", stop);
        this.#running++;
        resolve();
      };
      const stop = () => {
        this.#waiting.splice(this.#waiting.indexOf(go), 1);
        reject(signal?.reason);
      };
      this.#waiting.push(go);
      signal?.addEventListener("abort", stop, { once: true });
    });
  }

  #ask<Name extends JobName>(
    worker: Worker,
    job: Name,
    args: Jobs[Name],
    listening: Listening,
  ): Promise<z.infer<(typeof resultSchemas)[Name]>> {
    worker.idle?.cancel();
    const { signal } = listening;
    let silence: Timer | null = null;
    const promise = new Promise<unknown>((resolve, reject) => {
      const stop = () => {
        void this.#end(worker, "the call was cancelled");
        reject(signal?.reason);
      };
      const listen = () => {
        silence?.cancel();
        silence = this.#world.timer(this.#settings.options.silenceMaxMs, () => {
          const problem = `it has said nothing for ${this.#settings.options.silenceMaxMs} ms`;
          void this.#end(worker, problem);
          reject(this.#unavailable(problem));
        });
      };
      worker.fail = (problem) => reject(this.#unavailable(problem));
      worker.hear = (message) => {
        listen();
        if ("progress" in message) listening.onProgress?.(message.progress);
        else if ("problem" in message) listening.onProblem?.(message.problem);
        else if ("changes" in message) listening.onChanges?.(changesSchema.parse(message.changes));
        else if ("piece" in message) {
          // Time that the caller takes does not count.
          silence?.cancel();
          void listening.onPiece?.(message.piece).then(() => {
            if (worker.hear === null) return;
            listen();
            this.#send(worker, { more: true });
          });
        } else if ("error" in message) reject(receivedError(message));
        else if ("result" in message) resolve(message.result);
      };
      listen();
      signal?.addEventListener("abort", stop, { once: true });
      this.#send(worker, { job, args });
    });
    return promise
      .then((result) => resultSchemas[job].parse(result) as z.infer<(typeof resultSchemas)[Name]>)
      .finally(() => {
        silence?.cancel();
        worker.hear = null;
        worker.fail = null;
        if (this.#all.has(worker)) this.#keep(worker);
      });
  }

  #keep(worker: Worker): void {
    this.#free.push(worker);
    const end = () => void this.#end(worker, "it had nothing to do");
    worker.idle = this.#world.timer(this.#settings.options.workerIdleMs, end, { background: true });
    worker.child.unref();
    worker.child.channel?.unref();
  }

  #start(): Worker {
    // Certificates and options of the operator's own Node are none of a worker's business.
    const { PATH = "", LANG = "", TZ = "" } = process.env;
    const child = fork(programFile("host/checkpoints/worker/worker-main"), [], {
      execArgv: [
        ...(FROM_SOURCE ? ["--conditions=sandlot-source"] : []),
        `--max-old-space-size=${this.#settings.options.workerHeapMb}`,
        "--max-semi-space-size=8",
      ],
      env: { PATH, LANG, TZ, UV_THREADPOOL_SIZE: "1" },
      serialization: "advanced",
      stdio: ["ignore", "ignore", "pipe", "ipc"],
      cwd: "/",
    });
    const worker: Worker = { child, said: "", idle: null, hear: null, fail: null };
    this.#all.add(worker);
    child.stderr?.on("data", (chunk: Buffer) => {
      worker.said = (worker.said + chunk.toString()).slice(-STDERR_MAX);
    });
    child.on("message", (message: unknown) => this.#heard(worker, message));
    child.on("error", (error) => this.#gone(worker, `its process failed: ${error.message}`));
    child.on("exit", (code, signal) =>
      this.#gone(worker, `its process ended with ${signal ?? code}: ${worker.said.trim().slice(-500)}`),
    );
    this.#send(worker, { settings: this.#settings });
    return worker;
  }

  #heard(worker: Worker, message: unknown): void {
    try {
      worker.hear?.(fromWorkerSchema.parse(message));
    } catch (error) {
      const problem = `it said something else than a worker may: ${error instanceof Error ? error.message : String(error)}`;
      worker.fail?.(problem.slice(0, STDERR_MAX));
      void this.#end(worker, problem);
    }
  }

  #gone(worker: Worker, problem: string): void {
    worker.idle?.cancel();
    this.#all.delete(worker);
    const at = this.#free.indexOf(worker);
    if (at >= 0) this.#free.splice(at, 1);
    worker.fail?.(problem);
  }

  /** Resolves when the process is gone: what it held is free then. */
  #end(worker: Worker, problem: string): Promise<void> {
    this.#gone(worker, problem);
    const { child } = worker;
    if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return Promise.resolve();
    const gone = new Promise<void>((resolve) => child.once("exit", () => resolve()));
    // A worker without work holds no process open; one that is waited for does.
    child.ref();
    child.kill("SIGKILL");
    return gone;
  }

  #send(worker: Worker, message: ToWorker): void {
    worker.child.ref();
    worker.child.channel?.ref();
    // A failure is followed by the exit of the process, which ends the job.
    worker.child.send(message, () => {});
  }

  #unavailable(problem: string): SandlotError {
    const tried = [this.#settings.root];
    return new SandlotError("engine_unavailable", {
      ...{ engine: "checkpoints", problem, tried, retryAfterMs: RETRY_AFTER_MS },
    });
  }
}
