/**
 * This instance's own session: renewing it, and judging itself before anybody else (rules 5, 6, 7, 12).
 *
 * Invariants
 * - `trusted()` is true only if the store confirmed every hold less than half a lifetime ago and no clock has jumped
 *   since. Whoever uses a slot asks first; when the answer is no, `validate()` asks the store.
 * - Each beat carries the full set of established holds, and the counter up to which that set is complete. A hold that
 *   is being asked for has a higher counter, so no beat can undo it.
 * - While in doubt, and for a lifetime after, this instance judges nobody (`mayJudge`).
 * - `sightSince()` is the moment from which on the store has answered every beat in time. What was seen earlier counts
 *   for nothing.
 */

import { type Epoch, type InstanceId, SandlotError } from "@sandlot/contract";
import { type EventBus, problemOf } from "../observe/event-bus.ts";
import type { Slot } from "../slot/slot.ts";
import type { Slots } from "../slot/slots.ts";
import type { BeatAnswer, Store } from "../store/store.ts";
import type { World } from "../world/world.ts";

/** A wall clock that is moved gently drifts less than this between two beats; more is a jump, a sleep or a stop. */
const CLOCK_TOLERANCE_MS = 1_000;
/** How often a beat is repeated at once when the store says that it does not know us. */
const REJOIN_MAX = 3;

type Confirmed = Extract<BeatAnswer, { kind: "ok" }>;

/** Under which counter, in which life of our session and when a hold was asked for. */
export interface Ask {
  readonly seq: number;
  readonly epoch: Epoch | null;
  readonly term: number;
  /** On the monotonic clock: just before the store was asked. */
  since: number;
}

export class Membership {
  readonly instance: InstanceId;
  readonly #world: World;
  readonly #store: Store;
  readonly #slots: Slots;
  readonly #bus: EventBus;
  readonly #lifetimeMs: number;
  readonly #isCurrent: (slot: Slot) => Promise<boolean>;
  /** Counters of holds that are being asked for, in the order they were taken. */
  readonly #asking = new Set<number>();
  #seq = 0;
  #beat = 0;
  #epoch: Epoch | null = null;
  #recovering = true;
  #generationFloor = 0;
  #renewedAt = Number.NEGATIVE_INFINITY;
  #sightSince = Number.POSITIVE_INFINITY;
  #clockOffset = 0;
  #judgeFrom = 0;
  /** What to add to our monotonic clock to get the store's, at least and at most. */
  #storeClock = { least: 0, most: 0 };
  #renewal: Promise<void> | null = null;
  #storeLost = false;
  #term = 0;

  constructor(parts: {
    instance: InstanceId;
    world: World;
    store: Store;
    slots: Slots;
    bus: EventBus;
    lifetimeMs: number;
    /** Whether no later generation has used the thread's workspace. Only the engine knows, once the store was lost. */
    isCurrent: (slot: Slot) => Promise<boolean>;
  }) {
    this.instance = parts.instance;
    this.#world = parts.world;
    this.#store = parts.store;
    this.#slots = parts.slots;
    this.#bus = parts.bus;
    this.#lifetimeMs = parts.lifetimeMs;
    this.#isCurrent = parts.isCurrent;
  }

  get epoch(): Epoch | null {
    return this.#epoch;
  }

  get recovering(): boolean {
    return this.#recovering;
  }

  /** Grows whenever our session was ended or the store was lost. A hold or an intent of an earlier term must be checked. */
  get term(): number {
    return this.#term;
  }

  /**
   * The earliest it can be at the store, by which things end. Carried on by our own monotonic clock: a step of the
   * local wall clock does not move it.
   */
  storeNow(): number {
    return this.#world.monotonicMs() + this.#storeClock.least;
  }

  /** The latest it can be at the store: what an answer took on its way is not known, so nothing new is begun in it. */
  storeNowAtMost(): number {
    return this.#world.monotonicMs() + this.#storeClock.most;
  }

  /** Takes a counter for a hold that is about to be asked for. Give it back with `asked`. */
  asking(): Ask {
    this.#seq += 1;
    this.#asking.add(this.#seq);
    return { seq: this.#seq, epoch: this.#epoch, term: this.#term, since: this.#world.monotonicMs() };
  }

  asked({ seq }: Ask): void {
    this.#asking.delete(seq);
  }

  /** Whether a hold can be relied on without asking again: no beat has confirmed it yet, so it must be young itself. */
  stillHolds({ term, since }: Ask): boolean {
    return this.trusted() && term === this.#term && this.#world.monotonicMs() - since <= this.#lifetimeMs / 2;
  }

  sawGeneration(generation: number): void {
    if (generation > this.#generationFloor) this.#generationFloor = generation;
  }

  /** In memory only: whether what the slots say can be relied on without asking. */
  trusted(): boolean {
    const now = this.#world.monotonicMs();
    if (now - this.#renewedAt > this.#lifetimeMs / 2) return false;
    return Math.abs(this.#world.wallMs() - now - this.#clockOffset) <= CLOCK_TOLERANCE_MS;
  }

  /** Whether this instance may hold a peer for dead, or anything for idle. */
  mayJudge(): boolean {
    return this.trusted() && !this.#recovering && this.#world.monotonicMs() >= this.#judgeFrom;
  }

  sightSince(): number {
    return this.#sightSince;
  }

  /** Makes sure that the slots are what the store says. Rejects when the store does not answer. */
  async validate(): Promise<void> {
    if (this.trusted()) return;
    this.#doubt();
    await this.renew();
    // A renewal that was under way may have been sent before the doubt began.
    if (!this.trusted()) await this.renew();
    if (!this.trusted()) {
      throw new SandlotError("store_unavailable", {
        operation: "beat",
        problem: "it answers too slowly",
        retryAfterMs: 1_000,
      });
    }
  }

  /** The store did not answer something: what was seen of the others so far counts for nothing. */
  storeFailed(error: unknown): void {
    this.#sightSince = Number.POSITIVE_INFINITY;
    if (this.#storeLost) return;
    this.#storeLost = true;
    this.#bus.emit({ type: "store-lost", problem: problemOf(error) });
  }

  /** Renews the session. Calls while one is under way share it. */
  renew(): Promise<void> {
    this.#renewal ??= this.#renew().finally(() => {
      this.#renewal = null;
    });
    return this.#renewal;
  }

  async #renew(): Promise<void> {
    if (!this.trusted() && this.#epoch !== null) this.#doubt();
    const sentAt = this.#world.monotonicMs();
    const offset = this.#world.wallMs() - sentAt;
    const answer = await this.#settle(await this.#send(this.#epoch === null), REJOIN_MAX);
    this.#confirm(answer, sentAt, offset);
  }

  #send(register: boolean): Promise<BeatAnswer> {
    const [oldestAsking] = this.#asking;
    this.#beat += 1;
    return this.#store.beat({
      instance: this.instance,
      identity: this.#world.identity,
      beat: this.#beat,
      epoch: this.#epoch,
      register,
      held: this.#slots.held().map((slot) => ({ sandboxId: slot.sandboxId, generation: slot.generation })),
      asOf: oldestAsking === undefined ? this.#seq : oldestAsking - 1,
      generationFloor: this.#generationFloor,
    });
  }

  /** Brings the slots in line with what the store answered, until it confirms. */
  async #settle(answer: BeatAnswer, tries: number): Promise<Confirmed> {
    if (answer.kind === "ok") {
      await this.#recheck(answer);
      return answer;
    }
    if (tries === 0) throw forgotten("it keeps forgetting this instance");
    this.#doubt();
    this.#term += 1;
    const before = this.#slots.held();
    if (answer.kind === "new-epoch") {
      this.#epoch = answer.epoch;
      this.#recovering = true;
    }
    const registered = await this.#send(true);
    if (registered.kind !== "ok") return this.#settle(registered, tries - 1);
    await this.#rejoin(before, answer.kind === "new-epoch");
    return this.#settle(await this.#send(false), tries - 1);
  }

  /** After our session was ended, or the store was lost: take every hold again, or lose the slot. */
  async #rejoin(slots: readonly Slot[], newEpoch: boolean): Promise<void> {
    let restored = 0;
    for (const slot of slots) {
      if (slot.isLost()) continue;
      if ((!newEpoch || (await this.#isCurrent(slot))) && (await this.#holdAgain(slot))) restored += 1;
      else slot.lose("session-lost");
    }
    if (newEpoch) this.#bus.emit({ type: "epoch-changed", restored, lost: slots.length - restored });
  }

  async #holdAgain(slot: Slot): Promise<boolean> {
    const { sandboxId, generation, record } = slot;
    const ask = this.asking();
    try {
      const { instance } = this;
      const { seq } = ask;
      const epoch = this.#epoch;
      const answer =
        slot.epoch === epoch
          ? await this.#store.hold({ sandboxId, generation, instance, seq })
          : await this.#store.restore({ record, instance, seq });
      if (answer.kind === "gone") return false;
      if (answer.kind !== "held") throw forgotten("the store was lost again");
      slot.heldAs(seq, answer.record, epoch);
      return true;
    } finally {
      this.asked(ask);
    }
  }

  /** A hold the store does not know: taken again where the sandbox is still there, lost where it is not. */
  async #recheck(answer: Confirmed): Promise<void> {
    for (const { sandboxId, generation, reason } of answer.lost) {
      const slot = this.#slots.byId(sandboxId);
      if (slot === undefined || slot.generation !== generation || slot.isLost()) continue;
      const final = reason !== "session-lost";
      if (final || !(await this.#holdAgain(slot))) slot.lose(reason);
    }
  }

  #confirm(answer: Confirmed, sentAt: number, clockOffset: number): void {
    this.#epoch = answer.epoch;
    this.#recovering = answer.recovering;
    this.#renewedAt = sentAt;
    this.#clockOffset = clockOffset;
    this.#storeClock = { least: answer.now - this.#world.monotonicMs(), most: answer.now - sentAt };
    if (this.#sightSince === Number.POSITIVE_INFINITY) this.#sightSince = this.#world.monotonicMs();
    if (this.#storeLost) this.#bus.emit({ type: "store-recovered" });
    this.#storeLost = false;
  }

  /** Something may have happened without us: nobody is judged for a lifetime, and old sightings are forgotten. */
  #doubt(): void {
    const now = this.#world.monotonicMs();
    if (now >= this.#judgeFrom)
      this.#bus.emit({ type: "instance-doubted", problem: "the session was not renewed in time, or a clock jumped" });
    this.#judgeFrom = now + this.#lifetimeMs;
    this.#sightSince = Number.POSITIVE_INFINITY;
    this.#renewedAt = Number.NEGATIVE_INFINITY;
  }
}

/** Not a loss: the next beat tells what the store is now. */
function forgotten(problem: string): SandlotError {
  return new SandlotError("store_unavailable", { operation: "beat", problem, retryAfterMs: 1_000 });
}
