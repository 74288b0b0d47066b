/**
 * Admission: who may make a sandbox when there is no room (DESIGN section 4).
 *
 * The store decides, inside the transaction that reserves. Admission only helps the store to say yes: it evicts unused
 * sandboxes, and lets callers wait their turn.
 *
 * hard   room? → reserve.   full? → evict, wait for the confirmation, reserve.   nothing to evict? → queue or refuse.
 * soft   over the target number? → evict one, do not wait; nothing to evict? → exceed the target and report it.
 *
 * Invariants
 * - The queue is bounded, and every ticket in it has a deadline (its signal).
 * - At most one eviction per waiting caller is pending here, unless evictions take too long.
 * - A reservation whose caller has gone is given back.
 */

import { type CapacityCounts, SandlotError, type ThreadId, type UserId } from "@sandlot/contract";
import type { LimitSettings } from "../../config/settings.ts";
import { type EventBus, problemOf } from "../../observe/event-bus.ts";
import type { Changes } from "../../store/changes.ts";
import type { CreatingRecord, SandboxRecord } from "../../store/record.ts";
import type { Limits, Refusal, ReserveAnswer, Store } from "../../store/store.ts";
import type { UnderWay } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import { planEviction } from "./eviction.ts";
import { FairQueue } from "./queue.ts";
import { engineLimit, userLimit } from "./user-limit.ts";

export type Full = Extract<Refusal, { kind: "full" }>;
type Key = { readonly user: UserId; readonly thread: ThreadId };
type Settled = Exclude<ReserveAnswer, { kind: "full" }>;

export interface AdmissionParts {
  readonly limits: LimitSettings;
  readonly world: World;
  readonly store: Store;
  readonly changes: Changes;
  readonly bus: EventBus;
  readonly underWay: UnderWay;
  /** Whether this instance reaches the record's engine. It makes room only there. */
  readonly isOurs: (record: SandboxRecord) => boolean;
  /** Stops a sandbox without holders. True when it was stopped and its room will be free. */
  readonly evict: (record: SandboxRecord) => Promise<boolean>;
  /** The records whose sandboxes are idle, as far as a quick check can tell. */
  readonly idleAmong: (records: readonly SandboxRecord[]) => Promise<ReadonlySet<SandboxRecord>>;
  /** Gives back a reservation whose caller has gone. */
  readonly giveBack: (record: CreatingRecord) => Promise<void>;
}

interface Ticket {
  readonly attempt: () => Promise<ReserveAnswer>;
  readonly signal: AbortSignal;
  readonly resolve: (answer: Settled) => void;
  readonly reject: (error: unknown) => void;
  /** The limit that kept it out last. */
  scope: Full["scope"];
}

/** The `retryAfterMs` of a refused caller. */
const RETRY_AFTER_MS = 1_000;
/** An eviction that has not made room after this long no longer blocks the next one. */
const EVICTION_PATIENCE_MS = 5_000;

export class Admission {
  readonly #parts: AdmissionParts;
  readonly #queue = new FairQueue<Ticket>();
  /** Start times of the evictions whose room is still unclaimed. */
  #evictions: number[] = [];
  #pumping = false;
  /** Ends the pump's wait. */
  #waiting: AbortController | null = null;

  constructor(parts: AdmissionParts) {
    this.#parts = parts;
  }

  get queued(): number {
    return this.#queue.size;
  }

  /** The limits of a reservation. `user` is `null` for a blank, which never exceeds a limit, not even a soft one. */
  limits(user: UserId | null): Limits {
    const { limits } = this.#parts;
    const isFree = limits.mode === "soft" && user !== null;
    return {
      max: isFree ? null : limits.max,
      maxPerUser: user === null ? null : userLimit(limits, user),
      maxPerEngine: isFree || limits.maxPerEngine === 0 ? null : limits.maxPerEngine,
    };
  }

  /**
   * The limits for a caller that neither waits nor evicts: in both modes it stays below the limit. `null`: other
   * callers are queued, and a later caller does not overtake them.
   */
  room(user: UserId): Limits | null {
    const { limits } = this.#parts;
    if (this.#isBehindOthers(user)) return null;
    return { max: limits.max, maxPerUser: userLimit(limits, user), maxPerEngine: engineLimit(limits) };
  }

  /** Whether a caller of this user overtakes one that waits. Who waits for its own user's limit is in no other user's way. */
  #isBehindOthers(user: UserId): boolean {
    return this.#queue.heads().some(({ user: other, ticket }) => other === user || ticket.scope !== "user");
  }

  /**
   * Runs `attempt` (a reservation) until the store admits it, within the signal's deadline. `full` is the response that
   * the caller got when it asked for `room`.
   */
  async admit(
    key: Key,
    signal: AbortSignal,
    attempt: () => Promise<ReserveAnswer>,
    full: Full | null = null,
  ): Promise<Settled> {
    // A caller that has gone causes no eviction.
    signal.throwIfAborted();
    const wanted = () => !signal.aborted;
    const isSoft = this.#parts.limits.mode === "soft";
    if (isSoft) await this.#softenLimit(wanted);
    const known = isSoft ? null : full;
    // Nobody overtakes those who wait.
    const answer = known ?? (this.#isBehindOthers(key.user) ? null : await this.#try(attempt, signal));
    if (answer !== null && answer.kind !== "full") return answer;
    const scope = answer?.scope ?? "fleet";
    const evicted = await this.#evictFor(scope, key.user, this.#queue.size + 1, wanted);
    // Room that is being made for a caller is worth waiting for, also where there is no queue.
    if (!evicted && !this.#hasPlace()) throw await this.#refusal(answer);
    return this.#wait(key, signal, attempt, scope);
  }

  /** A reservation whose caller has gone is given back before the fleet has closed. */
  #try(attempt: () => Promise<ReserveAnswer>, signal: AbortSignal): Promise<ReserveAnswer> {
    return this.#parts.underWay.add(this.#reserve(attempt, signal));
  }

  async #reserve(attempt: () => Promise<ReserveAnswer>, signal: AbortSignal): Promise<ReserveAnswer> {
    signal.throwIfAborted();
    const answer = await attempt();
    if (answer.kind === "reserved" && signal.aborted) {
      await this.#parts.giveBack(answer.record);
      throw signal.reason;
    }
    return answer;
  }

  /** Take the place at once: after a wait it may be another caller's. */
  #hasPlace(): boolean {
    const { onFull, queueMax } = this.#parts.limits;
    return onFull === "wait" && this.#queue.size < queueMax;
  }

  async #refusal(full: Full | null): Promise<SandlotError> {
    const { limits, store } = this.#parts;
    const { onFull, queueMax, max } = limits;
    const counts = full?.counts ?? (await store.census());
    if (onFull === "reject") return this.#exhausted({ scope: full?.scope ?? "fleet", max: full?.max ?? max, counts });
    return this.#exhausted({ scope: "queue", max: queueMax, counts });
  }

  #wait(
    { user, thread }: Key,
    signal: AbortSignal,
    attempt: () => Promise<ReserveAnswer>,
    scope: Full["scope"],
  ): Promise<Settled> {
    const { bus } = this.#parts;
    if (signal.aborted) return Promise.reject(signal.reason);
    return new Promise<Settled>((resolve, reject) => {
      const ticket: Ticket = { attempt, signal, resolve, reject, scope };
      const onAbort = () => {
        if (this.#queue.remove(user, ticket)) reject(signal.reason);
        // No caller is left to wait for.
        if (this.#queue.size === 0) this.#waiting?.abort();
      };
      signal.addEventListener("abort", onAbort, { once: true });
      this.#queue.push(user, ticket);
      bus.emit({ type: "acquire-queued", user, thread, queued: this.#queue.size });
      void this.#pump();
    });
  }

  /** Serves the queue until it is empty. One pump at a time. */
  async #pump(): Promise<void> {
    if (this.#pumping) return;
    this.#pumping = true;
    const { changes } = this.#parts;
    try {
      await changes.listening(async () => {
        for (let rounds = 1; this.#queue.size > 0; rounds += 1) {
          const count = changes.count();
          if (await this.#roundOrTell()) rounds = 0;
          else await this.#pause((signal) => changes.after(count, signal, rounds));
        }
      });
    } finally {
      this.#pumping = false;
    }
  }

  /** Waits until `wait` resolves or the last waiting caller gives up. */
  async #pause(wait: (signal: AbortSignal) => Promise<void>): Promise<void> {
    const waiting = new AbortController();
    this.#waiting = waiting;
    if (this.#queue.size === 0) return;
    await wait(waiting.signal).catch((error: unknown) => {
      if (!waiting.signal.aborted) throw error;
    });
  }

  /** Reports a failed round and tries again: every waiting caller has its own deadline. */
  async #roundOrTell(): Promise<boolean> {
    try {
      return await this.#round();
    } catch (error) {
      this.#parts.bus.emit({ type: "housekeeping-failed", task: "admission", problem: problemOf(error) });
      return false;
    }
  }

  /** Gives every waiting user one try, in turn. True when a ticket left the queue. */
  async #round(): Promise<boolean> {
    let progress = false;
    const wanted = () => this.#queue.size > 0;
    for (const { user, ticket } of this.#queue.heads()) {
      const answer = await this.#serve(user, ticket);
      if (answer === "left") progress = true;
      else if (answer.scope === "user") await this.#evictFor("user", user, this.#queue.size, wanted);
      else {
        // No other user fits either. The user that was tried keeps the first turn.
        await this.#evictFor(answer.scope, user, this.#queue.size, wanted);
        return progress;
      }
    }
    return progress;
  }

  async #serve(user: UserId, ticket: Ticket): Promise<"left" | Full> {
    try {
      const answer = await this.#try(ticket.attempt, ticket.signal);
      if (answer.kind === "full") {
        ticket.scope = answer.scope;
        return answer;
      }
      this.#evictions.shift();
      this.#queue.rotate(user);
      this.#queue.remove(user, ticket);
      ticket.resolve(answer);
    } catch (error) {
      this.#queue.remove(user, ticket);
      ticket.reject(error);
    }
    return "left";
  }

  /** Evicts one sandbox to make room, unless enough evictions are pending. */
  async #evictFor(scope: Full["scope"], user: UserId, waiting: number, wanted: () => boolean): Promise<boolean> {
    const now = this.#parts.world.monotonicMs();
    this.#evictions = this.#evictions.filter((since) => now - since < EVICTION_PATIENCE_MS);
    if (this.#evictions.length >= waiting) return true;
    const evicted = await this.#evictOne(scope === "user" ? user : null, wanted);
    if (evicted) this.#evictions.push(now);
    return evicted;
  }

  /** Calls `wanted` again after every wait: the last caller that needs the room may have gone meanwhile. */
  async #evictOne(user: UserId | null, wanted: () => boolean): Promise<boolean> {
    const { store, idleAmong, evict, isOurs } = this.#parts;
    const records = (await store.list({ unheld: true })).filter(isOurs);
    const candidates = planEviction(records, user, () => true);
    const idle = await idleAmong(candidates.filter((record) => record.thread !== null));
    for (const record of planEviction(candidates, user, (candidate) => idle.has(candidate))) {
      if (!wanted()) return false;
      if (await evict(record)) return true;
    }
    return false;
  }

  async #softenLimit(wanted: () => boolean): Promise<void> {
    const { store, limits, bus } = this.#parts;
    const count = Object.values(await store.census()).reduce((sum, some) => sum + some, 0);
    if (count < limits.max || (await this.#evictOne(null, wanted)) || !wanted()) return;
    bus.emit({ type: "capacity-exceeded", max: limits.max, count: count + 1 });
  }

  #exhausted(full: { scope: Full["scope"] | "queue"; max: number; counts: Full["counts"] }): SandlotError {
    const counts: CapacityCounts = { ...full.counts, queued: this.#queue.size };
    return new SandlotError("capacity_exhausted", {
      ...counts,
      scope: full.scope,
      max: full.max,
      retryAfterMs: RETRY_AFTER_MS,
    });
  }
}
