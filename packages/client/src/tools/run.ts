/**
 * One execution of an agent or a sub-agent, and the one lease it has.
 *
 *   idle ──(first use)──▶ leased ──(release, or nothing used for a while)──▶ idle
 *     └───────────────────────┴──(end: the execution is over, or was aborted)──▶ ended
 *
 * Invariants
 * - No sandbox is asked for before something needs it, and at most one lease is held at a time.
 * - Whatever happens, the lease is given back: by `end`, by the run's signal, and, where a framework tells neither of
 *   an error nor of an end, after `idleReleaseMs` without a use. What died with its process is given back by the
 *   fleet, or by the lease's time to live.
 * - A lost sandbox is replaced by the next use. A use that certainly had no effect is repeated unasked; one that was
 *   under way fails with `sandbox_lost`, because nobody knows how far it got.
 * - A change of generation is told exactly once, through `takeNotice`.
 */

import { isSandlotError, RESTORED, type Recovery, SANDBOX_LIMITS, type Sandbox, SandlotError } from "@sandlot/contract";
import { SHOWN } from "../shown.ts";
import { PathTurns } from "./path-turns.ts";
import type { SandboxLease, SandboxRequest, SandboxSource } from "./source.ts";
import { threadFrom, userFrom } from "./thread-identity.ts";
import { anySignal, later, unlessAborted } from "./waiting.ts";

/** Longer than a model thinks, shorter than anybody wants to pay for a forgotten lease. */
const IDLE_RELEASE_MS = 600_000;
/** Ending a process tree takes its grace, and the answer its way back. */
const SETTLING_MAX_MS = SANDBOX_LIMITS.killGraceMs + 3_000;
/** What a new sandbox lacks, whatever became of the files. */
const REPLACED: Recovery = { ...RESTORED, survived: [] };
const EMPTIED: Recovery = { kind: "empty", lost: [...REPLACED.lost, "workspace"], survived: [] };
/** A use is repeated this often: once for the loss, once more for a loss right after it. */
const ATTEMPTS_MAX = 3;

export interface RunOptions {
  /** Any text; what does not fit the pattern of our ids is mapped one to one. */
  readonly thread: string;
  readonly user?: string;
  readonly purpose?: string;
  readonly blueprint?: string;
  readonly acquireTimeoutMs?: number;
  /** For a source that asks for it; a fleet in this process needs none. */
  readonly ttlMs?: number;
  /** Ends the run. */
  readonly signal?: AbortSignal;
  readonly idleReleaseMs?: number;
}

export interface UseOptions {
  readonly signal?: AbortSignal | undefined;
  /** The use changes nothing, so it may be made again after a loss. */
  readonly repeatable?: boolean;
}

export class SandboxRun implements AsyncDisposable {
  readonly source: SandboxSource;
  /** For changing a file: one at a time, among all runs of the thread in this process. */
  readonly turns: PathTurns;
  readonly #options: RunOptions;
  readonly #ending = new AbortController();
  readonly #beforeRelease = new Set<(sandbox: Sandbox) => Promise<void>>();
  #leasing: Promise<SandboxLease> | null = null;
  #lease: SandboxLease | null = null;
  #ended: Promise<void> | null = null;
  #generation: number | null = null;
  /** The lease whose generation that is. */
  #seen: WeakRef<SandboxLease> | null = null;
  #notice: Recovery | null = null;
  /** Actions and streams; only actions are waited for at the end, since a stream's reader may never come back. */
  #usesUnderWay = 0;
  #actionsUnderWay = 0;
  #onSettled: (() => void) | null = null;
  #useCount = 0;
  #idleArmed = false;
  #releaseWanted = false;

  constructor(source: SandboxSource, options: RunOptions) {
    this.source = source;
    this.turns = new PathTurns(source, options);
    this.#options = options;
    const { signal } = options;
    if (signal?.aborted) void this.end();
    else signal?.addEventListener("abort", () => void this.end(), { once: true, signal: this.#ending.signal });
  }

  /** What `console.log` shows: for which thread, and how far it is. */
  [SHOWN](): string {
    const state = this.isEnded() ? "ended" : this.isLeased() ? "leased" : "idle";
    return `SandboxRun { thread: ${JSON.stringify(this.#options.thread)}, state: '${state}' }`;
  }

  /** Fires when the run is over. */
  get ending(): AbortSignal {
    return this.#ending.signal;
  }

  isLeased(): boolean {
    return this.#lease !== null;
  }

  isEnded(): boolean {
    return this.#ended !== null;
  }

  /** Which sandbox in which life was used last; `null` before the first use. */
  get generation(): number | null {
    return this.#generation;
  }

  /** What was lost since the model was last told, once. */
  takeNotice(): Recovery | null {
    const notice = this.#notice;
    this.#notice = null;
    return notice;
  }

  /** Uses the sandbox, taking a lease first where there is none. */
  async use<T>(action: (sandbox: Sandbox) => Promise<T>, options: UseOptions = {}): Promise<T> {
    const signal = anySignal(this.#options.signal, options.signal);
    this.#actionsUnderWay += 1;
    this.#usesUnderWay += 1;
    this.#useCount += 1;
    try {
      for (let attempt = 1; ; attempt++) {
        signal?.throwIfAborted();
        const lease = await unlessAborted(this.#leased(), signal);
        try {
          return await action(lease.sandbox);
        } catch (error) {
          if (isGone(error)) await this.#drop(lease);
          if (attempt === ATTEMPTS_MAX || this.isEnded() || !mayRepeat(error, options.repeatable ?? false)) throw error;
        } finally {
          this.#see(lease);
        }
      }
    } finally {
      this.#actionsUnderWay -= 1;
      if (this.#actionsUnderWay === 0) this.#onSettled?.();
      this.#leave();
    }
  }

  /** Uses the sandbox for as long as somebody reads. Not repeated: what was read cannot be unread. */
  async *stream<T>(iterate: (sandbox: Sandbox) => AsyncIterable<T>, signal?: AbortSignal): AsyncGenerator<T> {
    this.#usesUnderWay += 1;
    this.#useCount += 1;
    try {
      const lease = await unlessAborted(this.#leased(), anySignal(this.#options.signal, signal));
      yield* iterate(lease.sandbox);
    } finally {
      this.#leave();
    }
  }

  /** Called with the sandbox before its lease is given back, for what should not outlive it. */
  beforeRelease(tidy: (sandbox: Sandbox) => Promise<void>): void {
    this.#beforeRelease.add(tidy);
  }

  /**
   * Gives the lease back as soon as no use is under way: for a step that failed while others of the same run may still be at
   * work, and of which nobody knows whether the run goes on.
   */
  async releaseWhenUnused(): Promise<void> {
    this.#releaseWanted = this.#usesUnderWay > 0;
    if (!this.#releaseWanted) await this.release();
  }

  /** Gives the lease back for now. The next use takes another. */
  async release(): Promise<void> {
    this.#releaseWanted = false;
    const leasing = this.#leasing;
    this.#leasing = null;
    this.#lease = null;
    const lease = await leasing?.catch(() => null);
    if (!lease) return;
    // What cannot be tidied ends with the sandbox; the lease must not wait for it to succeed.
    for (const tidy of this.#beforeRelease) await tidy(lease.sandbox).catch(() => undefined);
    await lease.release();
  }

  /** The execution is over. Idempotent; also ends what is still waiting for a sandbox. */
  end(): Promise<void> {
    this.#ended ??= (async () => {
      const because =
        "The tools of this run have ended. `await using` ends them with its block, also while a stream is still being read: " +
        "end them in `onFinish`, or when the stream has ended.";
      this.#ending.abort(new SandlotError("lease_released", { leaseId: this.#lease?.id ?? "none", because }));
      // A command that this ends is ended through the lease.
      await this.#settled();
      await this.release();
    })();
    return this.#ended;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.end();
  }

  #leased(): Promise<SandboxLease> {
    if (this.isEnded()) return Promise.reject(this.#ending.signal.reason);
    if (this.#leasing !== null) return this.#leasing;
    const leasing = this.#acquire();
    this.#leasing = leasing;
    leasing.then(
      (lease) => {
        if (this.#leasing === leasing) this.#lease = lease;
      },
      () => {
        if (this.#leasing === leasing) this.#leasing = null;
      },
    );
    return leasing;
  }

  async #acquire(): Promise<SandboxLease> {
    const { user, thread, purpose = "tools", blueprint, acquireTimeoutMs, ttlMs } = this.#options;
    const request: SandboxRequest = {
      thread: await threadFrom(thread),
      purpose,
      signal: this.#ending.signal,
      ...(user === undefined ? {} : { user: await userFrom(user) }),
      ...(blueprint === undefined ? {} : { blueprint }),
      ...(acquireTimeoutMs === undefined ? {} : { timeoutMs: acquireTimeoutMs }),
      ...(ttlMs === undefined ? {} : { ttlMs }),
    };
    return this.source.acquire(request);
  }

  /** Lets go of a lease whose sandbox is no more, unless another use did so already. */
  async #drop(lease: SandboxLease): Promise<void> {
    if (this.#lease === lease) {
      this.#lease = null;
      this.#leasing = null;
    }
    await lease.release();
  }

  #see(lease: SandboxLease): void {
    const { generation, recovery } = lease;
    // A use that ends late may still speak of an older generation.
    if (this.#generation !== null && generation <= this.#generation) return;
    const first = this.#generation === null;
    const isNewLease = this.#seen?.deref() !== lease;
    this.#generation = generation;
    this.#seen = new WeakRef(lease);
    if (recovery.lost.length > 0 && (!first || recovery.kind === "restored")) this.#notice = recovery;
    // A lease that was taken when another run's use had made the new sandbox, or that only learned of it, tells nothing of
    // what this run has lost.
    else if (!first) this.#notice = isNewLease && recovery.kind === "empty" ? EMPTIED : REPLACED;
  }

  /** Resolves when no action is under way any more, or has taken too long to notice that the run is over. */
  #settled(): Promise<void> {
    if (this.#actionsUnderWay === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#onSettled = resolve;
      later(SETTLING_MAX_MS, resolve);
    });
  }

  #leave(): void {
    this.#usesUnderWay -= 1;
    if (this.#usesUnderWay === 0 && this.#releaseWanted) void this.release();
    else this.#armIdle();
  }

  /** One timer at a time: when it fires and the run was used since, it is set again. */
  #armIdle(): void {
    if (this.#idleArmed || this.#lease === null || this.isEnded()) return;
    this.#idleArmed = true;
    const seen = this.#useCount;
    later(this.#options.idleReleaseMs ?? IDLE_RELEASE_MS, () => {
      this.#idleArmed = false;
      if (this.#usesUnderWay > 0 || this.#useCount !== seen) this.#armIdle();
      else void this.release();
    });
  }
}

/** The lease will answer nothing any more. */
function isGone(error: unknown): boolean {
  return (
    isSandlotError(error, "sandbox_lost") ||
    isSandlotError(error, "lease_not_found") ||
    isSandlotError(error, "lease_released")
  );
}

/** Whether the use had no effect, or none that matters. */
function mayRepeat(error: unknown, repeatable: boolean): boolean {
  if (isSandlotError(error, "sandbox_lost") || isSandlotError(error, "sandbox_unreachable")) return repeatable;
  return (
    isSandlotError(error, "stale_generation") ||
    isSandlotError(error, "lease_not_found") ||
    isSandlotError(error, "lease_released")
  );
}
