/**
 * Making a sandbox: the intent first, then the engine, then the move to ready (rules 2 and 3).
 *
 * Invariants
 * - The engine is asked only while the `creating` record is known to be ours.
 * - Whatever fails or is cancelled on the way is unmade: exactly what this create made, and nothing else.
 */

import {
  type EngineRef,
  isSandlotError,
  type SandboxId,
  SandlotError,
  type ThreadId,
  type Token,
  type UserId,
} from "@sandlot/contract";
import type { Backend, Created, CreateSpec } from "../../backend/backend.ts";
import { threadKeyOf } from "../../backend/labels.ts";
import { hasHome } from "../../backend/workspace-binding.ts";
import type { NamedBlueprint, Settings } from "../../config/settings.ts";
import { aboutRecord } from "../../observe/about.ts";
import { type EventBus, problemOf } from "../../observe/event-bus.ts";
import type { CreatingRecord, ReadyRecord } from "../../store/record.ts";
import type { Limits, NewRecord, ReserveAnswer, Store } from "../../store/store.ts";
import { abortable, type UnderWay } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import type { Membership, PendingHold } from "../session/membership.ts";
import type { Retirement } from "../stop/retirement.ts";
import type { AcquireParams } from "./acquire-params.ts";

export interface MakerParts {
  readonly settings: Settings;
  readonly world: World;
  readonly store: Store;
  readonly backend: Backend;
  readonly membership: Membership;
  readonly retirement: Retirement;
  readonly bus: EventBus;
  readonly underWay: UnderWay;
}

type Key = { readonly user: UserId; readonly thread: ThreadId };

/** What the first lease is told of a thread whose workspace was found so. */
const ARRIVALS = { existing: "restored", new: "empty", none: null } as const;

export class SandboxMaker {
  readonly #parts: MakerParts;
  /** Creates under way, each with the life of our session in which its intent was written. */
  readonly #making = new Map<SandboxId, number>();

  constructor(parts: MakerParts) {
    this.#parts = parts;
  }

  isMaking(sandboxId: SandboxId): boolean {
    return this.#making.has(sandboxId);
  }

  /** Gives back a reservation that is not used. */
  giveBack(record: CreatingRecord): Promise<void> {
    return this.#unmake(record, null);
  }

  /**
   * Claims room and key. With `existing`, the thread's files are looked for before, so that no room is made for nothing, and
   * again afterwards: while the key is claimed no purge can begin.
   */
  async reserve(
    key: (Key & Partial<Pick<AcquireParams, "existing">>) | null,
    blueprint: NamedBlueprint,
    limits: Limits,
  ): Promise<ReserveAnswer> {
    if (key?.existing !== true) return this.#reserve(key, blueprint, limits);
    await this.#requireFiles(key);
    const answer = await this.#reserve(key, blueprint, limits);
    if (answer.kind !== "reserved") return answer;
    try {
      await this.#requireFiles(key);
      return answer;
    } catch (error) {
      await this.giveBack(answer.record);
      throw error;
    }
  }

  async #requireFiles({ user, thread }: Key): Promise<void> {
    if (!(await hasHome(this.#parts.backend.workspaces, { user, thread })))
      throw new SandlotError("thread_not_found", { thread });
  }

  #reserve(key: Key | null, blueprint: NamedBlueprint, limits: Limits): Promise<ReserveAnswer> {
    const { store, membership } = this.#parts;
    const claim = key === null ? null : { user: key.user, thread: key.thread };
    const actor = membership.instance;
    return this.reserving(blueprint, (record) => store.reserve({ ...record, key: claim, actor, limits }));
  }

  /** Asks the store for a reservation. The id counts as being made from before the store is asked. */
  async reserving<Answer extends { readonly kind: string }>(
    { name, hash }: NamedBlueprint,
    ask: (record: NewRecord) => Promise<Answer>,
  ): Promise<Answer> {
    const { world, backend, membership } = this.#parts;
    const sandboxId = world.randomHex(10) as SandboxId;
    this.#making.set(sandboxId, membership.term);
    let isReserved = false;
    try {
      const token = newToken(world);
      const answer = await ask({ sandboxId, token, backend: backend.name, blueprint: name, blueprintHash: hash });
      isReserved = answer.kind === "reserved";
      return answer;
    } finally {
      // Without an answer the reservation may exist nevertheless: from now on housekeeping takes care of its record.
      if (!isReserved) this.#making.delete(sandboxId);
    }
  }

  /**
   * Makes a sandbox from a reservation. `hold` is the hold to take with it; `null` leaves it parked, or blank. A fleet
   * that closes waits for it, also where its caller has given up: what it made is then unmade.
   */
  make(
    record: CreatingRecord,
    blueprint: NamedBlueprint,
    hold: PendingHold | null,
    signal: AbortSignal,
  ): Promise<ReadyRecord | null> {
    return this.#parts.underWay.add(this.#make(record, blueprint, hold, signal));
  }

  async #make(
    record: CreatingRecord,
    blueprint: NamedBlueprint,
    hold: PendingHold | null,
    signal: AbortSignal,
  ): Promise<ReadyRecord | null> {
    const { store, world, membership, bus } = this.#parts;
    const { sandboxId, revision } = record;
    const startedAt = world.monotonicMs();
    membership.sawGeneration(record.generation);
    try {
      const created = await this.#askEngine(record, blueprint, signal);
      if (created === null) {
        this.#making.delete(sandboxId);
        return null;
      }
      const { ref, place, workspace } = created;
      const arrival = ARRIVALS[workspace];
      if (hold !== null) hold.since = world.monotonicMs();
      const ready = { sandboxId, revision, actor: membership.instance, ref, place, arrival, hold: hold?.seq ?? null };
      const published = await store.publish(ready);
      if (published === null) {
        await this.#unmake(record, ref);
        return null;
      }
      this.#making.delete(sandboxId);
      bus.emit({
        type: "sandbox-created",
        blank: record.thread === null,
        durationMs: world.monotonicMs() - startedAt,
        ...aboutRecord(record),
      });
      return published;
    } catch (error) {
      await this.#unmake(record, null);
      // The engine knows a later generation of the thread: this create was overtaken, so look again.
      if (!isSandlotError(error, "stale_generation")) throw error;
      await this.#learn(error.details.current);
      return null;
    }
  }

  /** A store that was lost while the wall clock was wrong may count from too low. */
  async #learn(generation: number | null): Promise<void> {
    const { membership } = this.#parts;
    if (generation !== null && membership.sawGeneration(generation)) await membership.renew();
  }

  /** `null`: the reservation is no longer ours, so the engine must not be asked. */
  async #askEngine(record: CreatingRecord, named: NamedBlueprint, signal: AbortSignal): Promise<Created | null> {
    const { backend } = this.#parts;
    if (!(await this.#isStillOurs(record))) return null;
    signal.throwIfAborted();
    const creating = backend.create(this.#specOf(record, named), signal);
    try {
      return await abortable(creating, signal);
    } catch (error) {
      // Given up on, but the engine may still finish it: then it is unmade as soon as it is known.
      creating.then(
        ({ ref }) => this.#unmake(record, ref),
        () => undefined,
      );
      if (signal.aborted || error instanceof SandlotError) throw error;
      throw new SandlotError("create_failed", { backend: backend.name, problem: problemOf(error) }, { cause: error });
    }
  }

  /** From here on the record is a leftover, and no longer a create under way. */
  #unmake(record: CreatingRecord, ref: EngineRef | null): Promise<void> {
    this.#making.delete(record.sandboxId);
    return this.#parts.retirement.unmake({ ...record, ref });
  }

  /** Whoever was paused may have been buried and its intent taken over: then the store is asked, never memory. */
  async #isStillOurs(record: CreatingRecord): Promise<boolean> {
    const { store, membership } = this.#parts;
    let term = this.#making.get(record.sandboxId);
    while (!membership.trusted() || membership.term !== term) {
      await membership.validate();
      term = membership.term;
      const now = await store.get(record.sandboxId);
      if (now?.state !== "creating" || now.actor !== membership.instance || now.revision !== record.revision)
        return false;
    }
    return true;
  }

  #specOf(record: CreatingRecord, { name, hash, blueprint }: NamedBlueprint): CreateSpec {
    const { sandboxId, generation, token, user, thread } = record;
    const labels = { fleet: this.#parts.settings.fleetId, sandboxId, generation, blueprintHash: hash };
    if (user === null || thread === null) {
      return { labels: { ...labels, threadKey: null }, generation, token, blueprint, marker: null };
    }
    const marker = { sandboxId, user, thread, generation, token, blueprint: name, blueprintHash: hash };
    return { labels: { ...labels, threadKey: threadKeyOf(user, thread) }, generation, token, blueprint, marker };
  }
}

export function newToken(world: World): Token {
  return world.randomHex(24) as Token;
}
