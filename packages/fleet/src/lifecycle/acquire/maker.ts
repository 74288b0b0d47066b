/**
 * Makes a sandbox: writes the intent, calls the engine, then moves the record to ready (rules 2 and 3).
 *
 * Invariants
 * - The maker calls the engine only while the `creating` record is known to be ours.
 * - A failed or cancelled create is undone: exactly the objects that this create made.
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
import { poolMiss } from "./pool-miss.ts";

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

/** The `arrival` of a new sandbox, by the state in which the create found the thread's workspace. */
const ARRIVALS = { existing: "restored", new: "empty", none: null } as const;

export class SandboxMaker {
  readonly #parts: MakerParts;
  /** Pending creates, each with the term of our session in which its intent was written. */
  readonly #making = new Map<SandboxId, number>();

  constructor(parts: MakerParts) {
    this.#parts = parts;
  }

  isMaking(sandboxId: SandboxId): boolean {
    return this.#making.has(sandboxId);
  }

  /** Gives back an unused reservation. */
  giveBack(record: CreatingRecord): Promise<void> {
    return this.#unmake(record, null);
  }

  /**
   * Claims room and key. With `existing` it looks for the thread's files before, to avoid a useless eviction, and again
   * afterwards: while the key is claimed no purge can begin.
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

  /** Requests a reservation from the store. The id counts as being made before the request is sent. */
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
      const answer = await ask({
        ...{ sandboxId, token, backend: backend.name, engine: backend.engineId },
        ...{ blueprint: name, blueprintHash: hash },
      });
      isReserved = answer.kind === "reserved";
      return answer;
    } finally {
      // Without a response the reservation may still exist. From now on housekeeping handles its record.
      if (!isReserved) this.#making.delete(sandboxId);
    }
  }

  /**
   * Makes a sandbox from a reservation. `hold` is the hold to take with it; `null` leaves the sandbox parked or blank.
   * A closing fleet waits for this call, also after its caller gave up; then the result is undone.
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
    const { store, world, membership, bus, settings, backend } = this.#parts;
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
        engine: record.engine,
        ...(record.thread !== null && { miss: poolMiss(blueprint, settings, backend) }),
        ...aboutRecord(record),
      });
      return published;
    } catch (error) {
      await this.#unmake(record, null);
      // The engine knows a later generation of the thread, so this create lost a race. Look again.
      if (!isSandlotError(error, "stale_generation")) throw error;
      await this.#learn(error.details.current);
      return null;
    }
  }

  /** If the store was lost while the wall clock was wrong, its generation counter may be too low. */
  async #learn(generation: number | null): Promise<void> {
    const { membership } = this.#parts;
    if (generation !== null && membership.sawGeneration(generation)) await membership.renew();
  }

  /** `null`: the reservation is no longer ours, so the engine must not be called. */
  async #askEngine(record: CreatingRecord, named: NamedBlueprint, signal: AbortSignal): Promise<Created | null> {
    const { backend } = this.#parts;
    if (!(await this.#isStillOurs(record))) return null;
    signal.throwIfAborted();
    const creating = backend.create(this.#specOf(record, named), signal);
    try {
      return await abortable(creating, signal);
    } catch (error) {
      // The callers gave up, but the engine may still finish the create. Then it is undone as soon as it is known.
      creating.then(
        ({ ref }) => this.#unmake(record, ref),
        () => undefined,
      );
      if (signal.aborted || error instanceof SandlotError) throw error;
      throw new SandlotError("create_failed", { backend: backend.name, problem: problemOf(error) }, { cause: error });
    }
  }

  /** From here on the record is a leftover instead of a pending create. */
  #unmake(record: CreatingRecord, ref: EngineRef | null): Promise<void> {
    this.#making.delete(record.sandboxId);
    return this.#parts.retirement.unmake({ ...record, ref });
  }

  /** During a pause a peer may have ended our session and taken over the intent. Only the store knows. */
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

  /**
   * Asks the store itself, whatever this instance believes. The engine has the object by now, so a peer that takes the
   * record over after this answer finds the object and removes it.
   */
  async #mayRun({ sandboxId, revision }: CreatingRecord): Promise<boolean> {
    const { store, membership } = this.#parts;
    const now = await store.get(sandboxId);
    return now?.state === "creating" && now.actor === membership.instance && now.revision === revision;
  }

  #specOf(record: CreatingRecord, { name, hash, blueprint }: NamedBlueprint): CreateSpec {
    const { sandboxId, generation, token, engine, user, thread } = record;
    const mayRun = () => this.#mayRun(record);
    const labels = { fleet: this.#parts.settings.fleetId, sandboxId, generation, blueprintHash: hash, engine };
    if (user === null || thread === null) {
      return { labels: { ...labels, threadKey: null }, generation, token, blueprint, marker: null, mayRun };
    }
    const marker = { sandboxId, user, thread, generation, token, blueprint: name, blueprintHash: hash };
    return {
      labels: { ...labels, threadKey: threadKeyOf(user, thread) },
      generation,
      token,
      blueprint,
      marker,
      mayRun,
    };
  }
}

export function newToken(world: World): Token {
  return world.randomHex(24) as Token;
}
