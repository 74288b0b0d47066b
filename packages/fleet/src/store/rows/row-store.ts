/**
 * The store over a row server: every step of `transactions/` runs here, over rows that this process knows, and becomes
 * one commit that the server checks.
 *
 *   step over the mirror ──▶ commit { reads, writes } ──▶ committed: the answer
 *        ▲                                          └──▶ conflict: the present rows go into the mirror
 *        └───────────────────────────────────────────────────────┘
 *
 * Invariants
 * - A step is pure over its tables, so it may run again. It is answered only with rows that were all present at one
 *   moment after its request: those of its commit, or of the answer before. A stale mirror never answers.
 * - A step ends by its deadline. A commit without an answer may still take effect, but not later than that.
 * - A server that lacks an acknowledged commit, or shows a row older than one that it has shown, has lost writes. Then
 *   this store begins a new epoch: the rows are dropped, and holders put theirs back.
 * - A session ends in two commits. The first (`ending`) takes its rights, so that every hold under way conflicts. The
 *   second removes the holds that a scan in between has found. An instance that registers again revokes the ending.
 */

import type { Epoch, InstanceId } from "@sandlot/contract";
import { abortable } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import type { SharedEntries } from "../entries.ts";
import type { StepCost, StepObserver } from "../step-observer.ts";
import type { BeatAnswer, BeatRequest, Session } from "../store.ts";
import type { Tables } from "../tables.ts";
import { TransactionalStore } from "../transactional-store.ts";
import { beat, endSession } from "../transactions/sessions.ts";
import { beginTransfer } from "../transactions/transfer.ts";
import type { TransferMark, WantedMark } from "../transfer/store-transfer.ts";
import { isEarlier } from "./epoch-order.ts";
import { type Deadline, RowClient, unavailable } from "./row-client.ts";
import { RowEntries } from "./row-entries.ts";
import { GENERATION_KEY } from "./row-key.ts";
import { RowMirror } from "./row-mirror.ts";
import type { Commit, Cursor, RowKey, RowServer } from "./row-server.ts";
import { RowView } from "./row-view.ts";
import { attempt, encoded, isCovered, settled } from "./step-outcome.ts";
import { TimeLimits } from "./time-limits.ts";

export interface RowStoreOptions {
  readonly server: RowServer;
  readonly world: World;
  /** The deadline of a step. Less than half of a session's lifetime: a beat has to be answered in time. */
  readonly timeoutMs?: number;
}

/** Orders of magnitude longer than a commit, shorter than a caller's patience. */
const TIMEOUT_MS = 5_000;
const PAGE_ROWS = 1_000;
/** Conflicts before a step waits: the first ones bring news, later ones mean that many write the same row. */
const EAGER_TRIES = 3;
/** Epochs that were left, to recognise one that comes back. */
const PAST_EPOCHS_MAX = 16;

/** Steps after which the caller acts outside the store. */
const DURABLE = new Set(
  (
    "putEntry deleteEntry reserve bind publish stop takeOver remove adopt claimForRemoval restore rejoin " +
    "beginTransfer endTransfer importRows finishImport"
  ).split(" "),
);

interface StepPlan {
  readonly access: "read" | "write";
  readonly relies: "reads" | "writes";
  /** Scan first. */
  readonly needsFresh: boolean;
}

export class RowStore extends TransactionalStore {
  readonly kind: string;
  override readonly promise: RowServer["promise"];
  readonly isShared = true;
  override readonly entries: SharedEntries;
  readonly #world: World;
  readonly #timeoutMs: number;
  readonly #client: RowClient;
  readonly #mirror: RowMirror;
  readonly #hints = new Set<() => void>();
  readonly #pastEpochs = new Set<Epoch>();
  #epoch: Epoch | null = null;
  #enteredAt = Number.NEGATIVE_INFINITY;
  #cursor: Cursor | null = null;
  /** A scan from the beginning is under way, or has failed. */
  #isLoading = false;
  #scanning: Promise<void> | null = null;
  #nextScan: Promise<void> | null = null;
  #unsubscribe: (() => void) | null = null;
  #isClosed = false;
  #observer: StepObserver | null = null;
  readonly #limits: TimeLimits;

  constructor({ server, world, timeoutMs = TIMEOUT_MS }: RowStoreOptions) {
    super();
    this.kind = server.kind;
    this.promise = server.promise;
    this.#world = world;
    this.#timeoutMs = timeoutMs;
    this.#client = new RowClient(server, world, timeoutMs);
    this.#limits = new TimeLimits(world, timeoutMs);
    this.#mirror = new RowMirror(
      () => world.monotonicMs(),
      () => this.#client.clock.now(),
    );
    this.entries = new RowEntries((operation, access, step) =>
      this.#step(operation, { access, relies: "reads", needsFresh: false }, step),
    );
  }

  /** Calls to the server, conflicts and retries so far. */
  get counts(): Readonly<StepCost> {
    return this.#client.counts;
  }

  override observeSteps(observer: StepObserver): void {
    this.#observer = observer;
  }

  /** Holds are looked at as of the scan; the commit checks only what the beat writes. */
  override beat(request: BeatRequest): Promise<BeatAnswer> {
    const plan = { access: "write", relies: "writes", needsFresh: true } as const;
    return this.#step("beat", plan, (view) => beat(view, request));
  }

  /** An old mirror might lack the homes and entries by which a used store is known. */
  override beginTransfer(wanted: WantedMark): Promise<TransferMark | null> {
    const plan = { access: "write", relies: "reads", needsFresh: true } as const;
    return this.#step("beginTransfer", plan, (view) => {
      const isFirst = wanted.state === "importing" && view.transfer() === null;
      return isFirst && view.entries("").length > 0 ? null : beginTransfer(view, wanted);
    });
  }

  override async endDeadSession(peer: InstanceId, beatSeen: number): Promise<boolean> {
    return this.#endSession("endDeadSession", peer, beatSeen, ({ lastBeatAt }) => lastBeatAt);
  }

  override async leave(instance: InstanceId): Promise<void> {
    await this.#endSession("leave", instance, null, (_, now) => now);
  }

  watch(hint: () => void): () => void {
    if (this.#isClosed) return () => {};
    const own = () => hint();
    this.#hints.add(own);
    this.#unsubscribe ??= this.#client.server.subscribe(() => this.#hint());
    return () => {
      this.#hints.delete(own);
      if (this.#hints.size > 0) return;
      this.#unsubscribe?.();
      this.#unsubscribe = null;
    };
  }

  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#limits.endAll(unavailable("close", "it is closed"));
    this.#hints.clear();
    this.#unsubscribe?.();
    await this.#client.server.close();
  }

  protected run<T>(operation: string, access: "read" | "write", step: (tables: Tables) => T): Promise<T> {
    return this.#step(operation, { access, relies: "reads", needsFresh: false }, step);
  }

  #step<T>(operation: string, plan: StepPlan, step: (view: RowView) => T): Promise<T> {
    if (this.#isClosed) return Promise.reject(unavailable(operation, "it is closed"));
    return this.#within(operation, operation, "did not answer", (deadline) =>
      this.#untilCommitted(deadline, plan, step),
    );
  }

  async #untilCommitted<T>(deadline: Deadline, plan: StepPlan, step: (view: RowView) => T): Promise<T> {
    const { operation, limit } = deadline;
    // Rows that were present together, at a moment after the request.
    let present: ReadonlyMap<RowKey, number> | null = null;
    let isFresh = false;
    let conflicts = 0;
    for (;;) {
      limit.throwIfEnded();
      if (this.#epoch === null) await this.#findEpoch(deadline);
      if (plan.needsFresh && !isFresh) {
        await this.#freshMirror(operation, limit.signal);
        isFresh = true;
        continue;
      }
      const epoch = this.#epoch;
      if (epoch === null) continue;
      const view = this.#newView(epoch, plan, isFresh);
      const outcome = attempt(view, step);
      if (outcome.kind === "mirror") {
        await this.#freshMirror(operation, limit.signal);
        isFresh = true;
        continue;
      }
      if (outcome.kind === "rows") {
        present = await this.#read([...view.reads.keys(), ...outcome.keys], deadline);
        continue;
      }
      const writes = outcome.kind === "value" ? encoded(view) : new Map();
      if (writes.size === 0 && isCovered(view.reads, present)) return settled(outcome);

      const isDurable = DURABLE.has(operation) || writes.has(GENERATION_KEY);
      const { answer, commit, sentAt } = await this.#client.commit(
        { epoch, reads: view.reads, writes, topics: [...view.topics], isDurable },
        deadline,
      );
      if (answer.kind === "committed") {
        if (writes.size > 0) this.#wrote(commit, view, answer.seq);
        return settled(outcome);
      }
      if (answer.kind === "late") continue;
      present = null;
      if (answer.kind === "new-epoch") await this.#enter(answer.epoch, sentAt, deadline);
      else if (answer.kind === "rewound") await this.#beginEpoch(epoch, deadline);
      else if (this.#epoch === epoch) {
        if (this.#mirror.learn(answer.rows, sentAt)) await this.#beginEpoch(epoch, deadline);
        const seqs = answer.rows.map(({ key, seq }) => [key, seq] as const);
        present = new Map([...view.reads, ...seqs]);
        conflicts += 1;
        if (conflicts > EAGER_TRIES) await this.#client.backOff(conflicts - EAGER_TRIES, deadline);
      }
      if (this.#epoch !== epoch) isFresh = false;
    }
  }

  #newView(epoch: Epoch, { access, relies }: StepPlan, isFresh: boolean): RowView {
    const now = this.#client.clock.now();
    return new RowView({ mirror: this.#mirror, epoch, now, isFresh, access, relies });
  }

  #wrote({ id, epoch, seen, writes }: Commit, view: RowView, seq: number): void {
    view.onCommitted?.(seq);
    if (epoch === this.#epoch) {
      this.#client.frontier.acknowledged(id, seen, this.#client.clock.now());
      for (const [key, body] of writes) this.#mirror.wrote(key, seq, view.writes.get(key), body);
    }
    this.#hint();
  }

  async #endSession(
    operation: string,
    instance: InstanceId,
    beatSeen: number | null,
    parkedAt: (session: Session, now: number) => number,
  ): Promise<boolean> {
    const plan = { access: "write", relies: "reads", needsFresh: false } as const;
    const isMarked = await this.#step(operation, plan, (view) => {
      if (view.sessionToEnd(instance, beatSeen) === null) return false;
      view.markEnding(instance);
      return true;
    });
    if (!isMarked) return false;
    return this.#step(operation, { ...plan, needsFresh: true }, (view) => {
      const session = view.sessionToEnd(instance, null);
      // It has registered again, or another instance was first.
      if (session === null || !view.isEnding(instance)) return false;
      endSession(view, instance, parkedAt(session, view.now()));
      return true;
    });
  }

  async #read(keys: readonly RowKey[], deadline: Deadline): Promise<ReadonlyMap<RowKey, number> | null> {
    const { rows, epoch, sentAt } = await this.#client.read(keys, deadline);
    if (epoch !== this.#epoch) {
      await this.#enter(epoch, sentAt, deadline);
      return null;
    }
    if (this.#mirror.learn(rows, sentAt)) await this.#beginEpoch(epoch, deadline);
    return new Map(rows.map(({ key, seq }) => [key, seq]));
  }

  async #findEpoch(deadline: Deadline): Promise<void> {
    const { epoch, sentAt } = await this.#client.read([], deadline);
    await this.#enter(epoch, sentAt, deadline);
  }

  /** The server has lost writes: nothing that it shows of this epoch is reliable. */
  async #beginEpoch(known: Epoch, deadline: Deadline): Promise<void> {
    const sentAt = this.#world.monotonicMs();
    await this.#enter(await this.#client.beginEpoch(known, this.#epoch, deadline), sentAt, deadline);
  }

  async #enter(epoch: Epoch, sentAt: number, deadline: Deadline): Promise<void> {
    // An answer from before this process learned of the present epoch tells nothing about it.
    if (epoch === this.#epoch || sentAt < this.#enteredAt) return;
    // An epoch that was over comes back: the server has lost its end. This process may have joined later.
    const isPast = this.#pastEpochs.has(epoch) || (this.#epoch !== null && isEarlier(epoch, this.#epoch));
    if (isPast) return this.#beginEpoch(epoch, deadline);
    if (this.#epoch !== null) this.#pastEpochs.add(this.#epoch);
    const [oldest] = this.#pastEpochs;
    if (this.#pastEpochs.size > PAST_EPOCHS_MAX && oldest !== undefined) this.#pastEpochs.delete(oldest);
    this.#epoch = epoch;
    this.#enteredAt = this.#world.monotonicMs();
    this.#mirror.clear();
    this.#client.frontier.clear();
    this.#cursor = null;
    this.#hint();
  }

  /** Brings the mirror to a moment after this call. Callers that come while a scan runs share the next one. */
  #freshMirror(operation: string, signal: AbortSignal): Promise<void> {
    if (this.#scanning === null) {
      this.#scanning = this.#scan(operation).finally(() => {
        this.#scanning = null;
      });
      return abortable(this.#scanning, signal);
    }
    this.#nextScan ??= this.#scanning
      .catch(() => undefined)
      .then(() => {
        this.#nextScan = null;
        return this.#freshMirror(operation, NEVER);
      });
    return abortable(this.#nextScan, signal);
  }

  #scan(operation: string): Promise<void> {
    return this.#within("scan", operation, "did not send its rows", (deadline) => this.#scanPages(deadline));
  }

  /** `name`: the step for the observer. `operation`: the caller's, in errors. */
  #within<T>(name: string, operation: string, failure: string, work: (deadline: Deadline) => Promise<T>): Promise<T> {
    const cost: StepCost = { calls: 0, conflicts: 0, retries: 0 };
    const trouble: Deadline["trouble"] = { problem: null };
    const late = () => {
      const cause = trouble.problem === null ? "" : `: ${trouble.problem}`;
      return unavailable(operation, `${this.kind} ${failure} within ${this.#timeoutMs} ms${cause}`);
    };
    const run = () => this.#limits.within(null, late, (limit) => work({ operation, limit, trouble, cost }));
    return this.#observer === null ? run() : this.#observer.around(name, cost, run);
  }

  /** A scan from the beginning that fails begins there again: only a whole one shows which rows are gone. */
  async #scanPages(deadline: Deadline): Promise<void> {
    try {
      await this.#scanOn(deadline);
    } catch (error) {
      if (this.#isLoading) this.#cursor = null;
      throw error;
    }
  }

  async #scanOn(deadline: Deadline): Promise<void> {
    const begunAt = this.#world.monotonicMs();
    let shown: Set<RowKey> | null = null;
    let loadedAt = begunAt;
    let loads = 0;
    for (;;) {
      deadline.limit.throwIfEnded();
      if (this.#cursor === null) {
        // A server that refuses its own cursors must not be asked without a pause.
        if (loads > 1) await this.#client.backOff(loads, deadline);
        loads += 1;
        shown = new Set();
        this.#isLoading = true;
        loadedAt = this.#world.monotonicMs();
      }
      const page = await this.#client.scan(this.#cursor, PAGE_ROWS, deadline);
      if (page === null || page.epoch !== this.#epoch) {
        if (page !== null) await this.#enter(page.epoch, page.sentAt, deadline);
        this.#cursor = null;
        continue;
      }
      if (this.#mirror.learn(page.rows, page.sentAt)) {
        await this.#beginEpoch(page.epoch, deadline);
        continue;
      }
      for (const { key } of page.rows) shown?.add(key);
      this.#cursor = page.cursor;
      if (page.more) continue;
      if (shown !== null) this.#mirror.loaded(shown, loadedAt);
      this.#isLoading = false;
      this.#mirror.scanned();
      return;
    }
  }

  #hint(): void {
    for (const hint of [...this.#hints]) hint();
  }
}

const NEVER = new AbortController().signal;
