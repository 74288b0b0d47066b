/**
 * This instance's own session: renews it, and judges itself before it judges others (rules 5, 6, 7, 12).
 *
 * Invariants
 * - `trusted()` is true only if the store confirmed every hold less than half a lifetime ago and no clock has jumped
 *   since. Check it before using a slot; if it is false, `validate()` asks the store.
 * - Each beat carries every hold that the store is known to have given, also those that are still being connected, and
 *   the counter up to which that set is complete. A pending hold has a higher counter, so no beat can undo it.
 * - While in doubt, and for a lifetime after, this instance judges no peer (`mayJudge`). It doubts itself also when its
 *   clocks and the store's have come apart between two beats: a frozen machine has both of its own wrong together.
 * - `sightSince()` is the moment since which the store has answered every beat in time. Earlier observations do not
 *   count.
 */

import {
  type Epoch,
  type Generation,
  type InstanceId,
  type LossReason,
  type SandboxId,
  SandlotError,
} from "@sandlot/contract";
import { type EventBus, problemOf } from "../../observe/event-bus.ts";
import { isCountable, type SandboxRecord } from "../../store/record.ts";
import type { BeatAnswer, HoldAnswer, RejoinHold, Store } from "../../store/store.ts";
import type { World } from "../../world/world.ts";
import type { Slot } from "../hold/slot.ts";
import type { Slots } from "../hold/slots.ts";
import { CLOCK_TOLERANCE_MS, StoreClockSight } from "./store-clock-sight.ts";

/** How long other engines wait for the recovery of ours, in lifetimes of a session. It takes one, and the engine's time. */
const AWAITED_LIFETIMES = 4;
/** How often to repeat a beat at once when the store does not know our session. */
const REJOIN_MAX = 3;

type Confirmed = Extract<BeatAnswer, { kind: "ok" }>;

type Hold = { readonly sandboxId: SandboxId; readonly generation: Generation };

/** A hold from its request to its establishment: its counter, and the term of our session. */
export interface PendingHold {
  readonly seq: number;
  readonly epoch: Epoch | null;
  readonly term: number;
  /** On the monotonic clock: just before the request, or the last confirmation by the store. */
  since: number;
  /** The hold that the store gave, and when its response arrived. */
  hold: (Hold & { readonly heardAt: number }) | null;
  /** Sandboxes that ended since the request: the store's response may be older than our knowledge. */
  readonly ended: Set<SandboxId>;
}

export class Membership {
  readonly instance: InstanceId;
  readonly #world: World;
  readonly #store: Store;
  readonly #slots: Slots;
  readonly #bus: EventBus;
  readonly #lifetimeMs: number;
  readonly #engines: () => readonly string[];
  readonly #address: string | null;
  readonly #isCurrent: (slot: Slot) => Promise<boolean>;
  /** Pending holds by counter, in the order of the counters. */
  readonly #pendingHolds = new Map<number, PendingHold>();
  #seq = 0;
  #beat = 0;
  #epoch: Epoch | null = null;
  #recovering = true;
  #generationFloor = 0;
  #renewedAt = Number.NEGATIVE_INFINITY;
  #sightSince = Number.POSITIVE_INFINITY;
  #clockOffset = 0;
  #judgeFrom = 0;
  readonly #storeClock: StoreClockSight;
  #renewal: Promise<void> | null = null;
  #storeLost = false;
  #term = 0;
  #closed = false;

  constructor(parts: {
    instance: InstanceId;
    world: World;
    store: Store;
    slots: Slots;
    bus: EventBus;
    lifetimeMs: number;
    /** The engines that this instance reaches. */
    engines: () => readonly string[];
    /** The advertised address of its gateway, if it has one. */
    address: string | null;
    /**
     * Whether it lives and no later generation has used its workspace. Once the store is lost, only the engine knows.
     */
    isCurrent: (slot: Slot) => Promise<boolean>;
  }) {
    this.instance = parts.instance;
    this.#world = parts.world;
    this.#storeClock = new StoreClockSight(parts.world);
    this.#store = parts.store;
    this.#slots = parts.slots;
    this.#bus = parts.bus;
    this.#lifetimeMs = parts.lifetimeMs;
    this.#engines = parts.engines;
    this.#address = parts.address;
    this.#isCurrent = parts.isCurrent;
  }

  get epoch(): Epoch | null {
    return this.#epoch;
  }

  get recovering(): boolean {
    return this.#recovering;
  }

  /** Whether this instance reaches the engine that has the sandbox. What others reach is theirs to judge and to end. */
  isOurs({ engine }: Pick<SandboxRecord, "engine">): boolean {
    return !this.#store.isShared || this.#engines().includes(engine);
  }

  /**
   * Grows whenever our session was ended or the store was lost. Holds and intents of an earlier term must be checked.
   */
  get term(): number {
    return this.#term;
  }

  /** The earliest possible time at the store; it decides what has ended. */
  storeNow(): number {
    return this.#storeClock.earliest();
  }

  /** The latest possible time at the store, as travel times are unknown. It decides whether a new lease may begin. */
  storeNowAtMost(): number {
    return this.#storeClock.latest();
  }

  /** Takes a counter for a hold that is about to be requested. Give it back with `endHold`. */
  beginHold(): PendingHold {
    this.#seq += 1;
    const since = this.#world.monotonicMs();
    const ask: PendingHold = {
      seq: this.#seq,
      epoch: this.#epoch,
      term: this.#term,
      since,
      hold: null,
      ended: new Set(),
    };
    this.#pendingHolds.set(ask.seq, ask);
    return ask;
  }

  /** The store gave the requested hold. From now on beats carry it like every other hold. */
  confirmHold(ask: PendingHold, { sandboxId, generation }: Hold): void {
    ask.hold = { sandboxId, generation, heardAt: this.#world.monotonicMs() };
    this.sawGeneration(generation);
  }

  endHold({ seq }: PendingHold): void {
    this.#pendingHolds.delete(seq);
  }

  /** Whether a hold is reliable without a request. Perhaps no beat has confirmed it, so it must be young itself. */
  stillHolds({ term, since, hold, ended }: PendingHold): boolean {
    if (hold === null || ended.has(hold.sandboxId) || term !== this.#term || !this.trusted()) return false;
    return this.#world.monotonicMs() - since <= this.#lifetimeMs / 2;
  }

  /** A held sandbox has ended: its slot is lost, and openings that are connecting to it must look again. */
  ended(hold: Hold, reason: LossReason): void {
    this.#forget(hold);
    this.#slotOf(hold)?.lose(reason);
  }

  /** The next beat raises the store's counter to at least this. True when it is the latest we have seen. */
  sawGeneration(generation: number): boolean {
    if (generation <= this.#generationFloor || !isCountable(generation)) return false;
    this.#generationFloor = generation;
    return true;
  }

  /** In memory only: whether the slots are reliable without asking the store. */
  trusted(): boolean {
    const now = this.#world.monotonicMs();
    if (now - this.#renewedAt > this.#lifetimeMs / 2) return false;
    return Math.abs(this.#world.wallMs() - now - this.#clockOffset) <= CLOCK_TOLERANCE_MS;
  }

  /** Whether this instance may declare a peer dead, or a sandbox idle. */
  mayJudge(): boolean {
    return this.trusted() && !this.#recovering && this.#world.monotonicMs() >= this.#judgeFrom;
  }

  sightSince(): number {
    return this.#sightSince;
  }

  /** Makes the slots match the store. Rejects when the store does not answer. */
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

  /** The store failed to answer a request: earlier observations of peers do not count. */
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

  /** No further renewal: one that is under way ends, and registers no session that would outlive the fleet. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#renewal?.catch(() => undefined);
  }

  async #renew(): Promise<void> {
    if (!this.trusted() && this.#epoch !== null) this.#doubt();
    const sentAt = this.#world.monotonicMs();
    const offset = this.#world.wallMs() - sentAt;
    const answer = await this.#settle(await this.#send(this.#epoch === null), sentAt, REJOIN_MAX);
    this.#confirm(answer, sentAt, offset);
  }

  #send(register: boolean): Promise<BeatAnswer> {
    if (this.#closed) return Promise.reject(new SandlotError("fleet_closed", { operation: "renewing the session" }));
    const [oldestAsking] = this.#pendingHolds.keys();
    this.#beat += 1;
    return this.#store.beat({
      instance: this.instance,
      identity: this.#world.identity,
      engines: this.#engines(),
      address: this.#address,
      beat: this.#beat,
      epoch: this.#epoch,
      register,
      held: this.#held(),
      asOf: oldestAsking === undefined ? this.#seq : oldestAsking - 1,
      generationFloor: this.#generationFloor,
      ...(register ? { awaitedMs: AWAITED_LIFETIMES * this.#lifetimeMs } : {}),
    });
  }

  #held(): readonly Hold[] {
    const connecting = [...this.#pendingHolds.values()].flatMap(({ hold }) => hold ?? []);
    return [...this.#slots.held(), ...connecting].map(({ sandboxId, generation }) => ({ sandboxId, generation }));
  }

  /** Brings the slots in line with the store's response, until the store confirms. */
  async #settle(answer: BeatAnswer, sentAt: number, tries: number): Promise<Confirmed> {
    if (answer.kind === "ok") {
      // A registration may have taken effect although its response was lost.
      if (!this.#storeClock.isOf(answer.epoch)) this.#moveClock(answer, sentAt, this.#slots.held());
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
    const registeredAt = this.#world.monotonicMs();
    const registered = await this.#send(true);
    if (registered.kind !== "ok") return this.#settle(registered, registeredAt, tries - 1);
    // Also when the epoch was seen before, and a later step failed.
    const isNew = !this.#storeClock.isOf(registered.epoch);
    if (isNew) this.#moveClock(registered, registeredAt, before);
    await this.#rejoin(before, isNew);
    const askedAt = this.#world.monotonicMs();
    return this.#settle(await this.#send(false), askedAt, tries - 1);
  }

  /** A new store has its own clock: remembered records keep their age, also those that were released meanwhile. */
  #moveClock(answer: Confirmed, sentAt: number, remembered: readonly Slot[]): void {
    const byMs = answer.now - this.storeNow();
    for (const slot of new Set([...remembered, ...this.#slots.held()])) slot.clockMoved(byMs);
    this.#storeClock.read(answer, sentAt);
  }

  /** After our session was ended, or the store was lost: take every hold again, or lose the slot. */
  async #rejoin(slots: readonly Slot[], newEpoch: boolean): Promise<void> {
    const restored = await this.#holdAgain(slots);
    if (newEpoch) this.#bus.emit({ type: "epoch-changed", restored, lost: slots.length - restored });
  }

  /**
   * Takes the holds of all these slots again in one step, and loses those whose sandbox is no longer theirs. Returns
   * how many it has taken.
   */
  async #holdAgain(slots: readonly Slot[]): Promise<number> {
    const current = await this.#areCurrent(slots);
    const asks = slots.map((slot, index) => ({
      slot,
      isCurrent: current[index] === true && !slot.isLost(),
      ask: this.beginHold(),
    }));
    try {
      const wanted = asks.filter(({ isCurrent }) => isCurrent);
      const answers = await this.#askAgain(wanted);
      for (const [index, answer] of answers.entries())
        if (answer.kind !== "held" && answer.kind !== "gone") throw forgotten("the store was lost again");
        else if (answer.kind === "held") wanted[index]?.slot.heldAs(wanted[index].ask.seq, answer.record, this.#epoch);
      const isHeld = new Set(wanted.filter((_, index) => answers[index]?.kind === "held").map(({ slot }) => slot));
      for (const slot of slots) if (!slot.isLost() && !isHeld.has(slot)) slot.lose("session-lost");
      return isHeld.size;
    } finally {
      for (const { ask } of asks) this.endHold(ask);
    }
  }

  #askAgain(asks: readonly { readonly slot: Slot; readonly ask: PendingHold }[]): Promise<readonly HoldAnswer[]> {
    if (asks.length === 0) return Promise.resolve([]);
    const holds = asks.map(({ slot, ask: { seq } }): RejoinHold => {
      const { sandboxId, generation, record } = slot;
      return slot.epoch === this.#epoch
        ? { kind: "hold", sandboxId, generation, seq }
        : { kind: "restore", record, seq };
    });
    return this.#store.rejoin({ instance: this.instance, epoch: this.#epoch, holds });
  }

  /** Checks the holds that another store gave. In parallel: the session must not run out during the engine calls. */
  #areCurrent(slots: readonly Slot[]): Promise<readonly boolean[]> {
    return Promise.all(slots.map((slot) => slot.epoch === this.#epoch || this.#isCurrent(slot)));
  }

  /**
   * Handles holds the store does not know: takes them again if the sandbox is still there, loses them otherwise. Final
   * losses come first, so that they wait for nothing.
   */
  async #recheck({ lost }: Confirmed): Promise<void> {
    const isFinal = ({ reason }: Confirmed["lost"][number]) => reason !== "session-lost";
    for (const hold of lost) {
      if (isFinal(hold)) this.ended(hold, hold.reason);
      else this.#forget(hold);
    }
    await this.#holdAgain(lost.flatMap((hold) => (isFinal(hold) ? [] : (this.#slotOf(hold) ?? []))));
  }

  #forget({ sandboxId }: Hold): void {
    for (const ask of this.#pendingHolds.values()) ask.ended.add(sandboxId);
  }

  #slotOf({ sandboxId, generation }: Hold): Slot | undefined {
    const slot = this.#slots.byId(sandboxId);
    return slot?.generation === generation ? slot : undefined;
  }

  #confirm(answer: Confirmed, sentAt: number, clockOffset: number): void {
    if (this.#storeClock.read(answer, sentAt)) this.#doubt();
    this.#epoch = answer.epoch;
    this.#recovering = answer.recovering;
    this.#renewedAt = sentAt;
    this.#clockOffset = clockOffset;
    // Only holds that were confirmed before the beat was sent: at the same instant the beat may have gone without them.
    for (const ask of this.#pendingHolds.values())
      if (ask.hold !== null && ask.hold.heardAt < sentAt) ask.since = Math.max(ask.since, sentAt);
    if (this.#sightSince === Number.POSITIVE_INFINITY) this.#sightSince = this.#world.monotonicMs();
    if (this.#storeLost) this.#bus.emit({ type: "store-recovered" });
    this.#storeLost = false;
  }

  /** Events may have been missed: judge no peer for a lifetime, and forget old observations. */
  #doubt(): void {
    const now = this.#world.monotonicMs();
    if (now >= this.#judgeFrom)
      this.#bus.emit({ type: "instance-doubted", problem: "the session was not renewed in time, or a clock jumped" });
    this.#judgeFrom = now + this.#lifetimeMs;
    this.#sightSince = Number.POSITIVE_INFINITY;
    this.#renewedAt = Number.NEGATIVE_INFINITY;
  }
}

/** Not a loss: the next beat gives the store's present state. */
function forgotten(problem: string): SandlotError {
  return new SandlotError("store_unavailable", { operation: "beat", problem, retryAfterMs: 1_000 });
}
