/**
 * One execution of an agent or a sub-agent, and its one lease.
 *
 *   idle ──(first use)──▶ leased ──(release, or nothing used for a while)──▶ idle
 *     └───────────────────────┴──(end: the execution is over, or was aborted)──▶ ended
 *
 * Invariants
 * - No sandbox is acquired before something needs it, and at most one lease is held at a time.
 * - The lease is always released: by `end`, by the run's signal, and, where a framework reports neither an error nor an
 *   end, after `idleReleaseMs` without a use. After the death of the process the fleet releases it, or the lease's time
 *   to live ends it.
 * - The next use replaces a lost sandbox. A use that certainly had no effect is repeated automatically; a running one
 *   fails with `sandbox_lost`, because its progress is unknown.
 * - A change of generation is reported exactly once, through `takeNotice`.
 */

import { isSandlotError, RESTORED, type Recovery, SANDBOX_LIMITS, type Sandbox, SandlotError } from "@sandlot/contract";
import { SHOWN } from "../shown.ts";
import { PathTurns } from "./path-turns.ts";
import type { SandboxLease, SandboxRequest, SandboxSource } from "./source.ts";
import { threadFrom, userFrom } from "./thread-identity.ts";
import { anySignal, later, unlessAborted } from "./waiting.ts";

/** Longer than a model thinks, shorter than a forgotten lease should cost. */
const IDLE_RELEASE_MS = 600_000;
/** Ending a process tree takes its grace period, and the response some time. */
const SETTLING_MAX_MS = SANDBOX_LIMITS.killGraceMs + 3_000;
/** What a new sandbox lacks, regardless of its files. */
const REPLACED: Recovery = { ...RESTORED, survived: [] };
const EMPTIED: Recovery = { kind: "empty", lost: [...REPLACED.lost, ...RESTORED.survived], survived: [] };
/** Attempts of a use: the first, one after a loss, and one after another loss right behind it. */
const ATTEMPTS_MAX = 3;

export interface RunOptions {
  /** Any text; one that does not fit our id pattern is mapped one to one. */
  readonly thread: string;
  readonly user?: string;
  readonly purpose?: string;
  readonly blueprint?: string;
  readonly acquireTimeoutMs?: number;
  /** For a source that requires it; a fleet in this process needs none. */
  readonly ttlMs?: number;
  /** Ends the run. */
  readonly signal?: AbortSignal;
  readonly idleReleaseMs?: number;
}

export interface UseOptions {
  readonly signal?: AbortSignal | undefined;
  /** The use changes nothing, so it may be repeated after a loss. */
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
  /** The lease of that generation. */
  #seen: WeakRef<SandboxLease> | null = null;
  #notice: Recovery | null = null;
  /** Actions and streams; the end waits only for actions, since a stream's reader may never come back. */
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

  /** What `console.log` shows: the thread, and the state. */
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

  /** The generation of the sandbox used last; `null` before the first use. */
  get generation(): number | null {
    return this.#generation;
  }

  /** What was lost since the last report to the model, once. */
  takeNotice(): Recovery | null {
    const notice = this.#notice;
    this.#notice = null;
    return notice;
  }

  /** Uses the sandbox, after taking a lease if there is none. */
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

  /** Uses the sandbox as long as the reader reads. Not repeated: what was read cannot be taken back. */
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

  /** Called with the sandbox before its lease is released, to clean up what should not outlive it. */
  beforeRelease(tidy: (sandbox: Sandbox) => Promise<void>): void {
    this.#beforeRelease.add(tidy);
  }

  /**
   * Releases the lease as soon as no use is running: for a failed step while other steps of the same run may still
   * work, when it is unknown whether the run goes on.
   */
  async releaseWhenUnused(): Promise<void> {
    this.#releaseWanted = this.#usesUnderWay > 0;
    if (!this.#releaseWanted) await this.release();
  }

  /** Releases the lease for now. The next use takes another. */
  async release(): Promise<void> {
    this.#releaseWanted = false;
    const leasing = this.#leasing;
    this.#leasing = null;
    this.#lease = null;
    const lease = await leasing?.catch(() => null);
    if (!lease) return;
    // What fails to clean up ends with the sandbox; the lease must not wait for success.
    for (const tidy of this.#beforeRelease) await tidy(lease.sandbox).catch(() => undefined);
    await lease.release();
  }

  /**
   * Takes the thread's files back to the state before. Gives up the own lease first, because files never change under a
   * sandbox; another holder's is `sandbox_in_use`. `null`: the source has no checkpoints.
   */
  async undo(signal?: AbortSignal) {
    const { checkpoints } = this.source;
    if (checkpoints === undefined) return null;
    const { thread, user } = this.#options;
    await this.release();
    const key = { thread: await threadFrom(thread), ...(user !== undefined && { user: await userFrom(user) }) };
    return checkpoints.undo(key, signal === undefined ? {} : { signal });
  }

  /** The execution is over. Idempotent; also ends a pending acquire. */
  end(): Promise<void> {
    this.#ended ??= (async () => {
      const because =
        "The tools of this run have ended. `await using` ends them with its block, also while a stream is still being read: " +
        "end them in `onFinish`, or when the stream has ended.";
      this.#ending.abort(new SandlotError("lease_released", { leaseId: this.#lease?.id ?? "none", because }));
      // Ending a command needs the lease.
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

  /** Drops a lease whose sandbox is gone, unless another use already did. */
  async #drop(lease: SandboxLease): Promise<void> {
    if (this.#lease === lease) {
      this.#lease = null;
      this.#leasing = null;
    }
    await lease.release();
  }

  #see(lease: SandboxLease): void {
    const { generation, recovery } = lease;
    // A use that ends late may still report an older generation.
    if (this.#generation !== null && generation <= this.#generation) return;
    const first = this.#generation === null;
    const isNewLease = this.#seen?.deref() !== lease;
    this.#generation = generation;
    this.#seen = new WeakRef(lease);
    if (recovery.lost.length > 0 && (!first || recovery.kind === "restored")) this.#notice = recovery;
    // A lease taken after another run's use had created the new sandbox, or that only learned of it, does not know what
    // this run has lost.
    else if (!first) this.#notice = isNewLease && recovery.kind === "empty" ? EMPTIED : REPLACED;
  }

  /** Resolves when no action is running any more, or after a timeout for actions that ignore the run's end. */
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

/** The lease is unusable. */
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
