/**
 * Opening a slot: the three ways in which a thread gets a sandbox. Attach to the one it has, bind a blank, or make one.
 *
 * Each way answers with a slot, or with `null` when it lost to somebody and the caller must look again. Whatever a way
 * has taken or made, it gives back in the same function when a later step fails.
 */

import {
  isSandlotError,
  type LossReason,
  RESTORED,
  type Recovery,
  type SandboxId,
  SandlotError,
  type ThreadId,
  type UserId,
} from "@sandlot/contract";
import type { Attachment, Backend, Credentials, Target } from "../../backend/backend.ts";
import { BindingInDoubt, ensureBound } from "../../backend/workspace-binding.ts";
import type { NamedBlueprint, Settings } from "../../config/settings.ts";
import { aboutRecord } from "../../observe/about.ts";
import { type EventBus, problemOf, quietly } from "../../observe/event-bus.ts";
import {
  type Arrival,
  type CreatingRecord,
  isAnonymous,
  isParked,
  type ReadyRecord,
  type SandboxRecord,
  type StoppingRecord,
} from "../../store/record.ts";
import type { Refusal, Store } from "../../store/store.ts";
import { abortable } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import { userLimit } from "../admission/user-limit.ts";
import { isUntouched } from "../hold/keeping.ts";
import { SAME } from "../hold/recoveries.ts";
import { Slot } from "../hold/slot.ts";
import type { Slots } from "../hold/slots.ts";
import type { Ask, Membership } from "../session/membership.ts";
import { throwIfRecovering } from "../session/recovering.ts";
import { type Retirement, spotOf } from "../stop/retirement.ts";
import { newToken, type SandboxMaker } from "./maker.ts";

export interface OpenerParts {
  readonly settings: Settings;
  readonly world: World;
  readonly store: Store;
  readonly backend: Backend;
  readonly membership: Membership;
  readonly retirement: Retirement;
  readonly maker: SandboxMaker;
  readonly slots: Slots;
  readonly bus: EventBus;
  readonly onLost: (slot: Slot, reason: LossReason) => Promise<LossReason>;
  /** The connection of a slot ended. By itself that says nothing about life or death. */
  readonly onDisconnected: (slot: Slot) => void;
}

type Key = { readonly user: UserId; readonly thread: ThreadId };
type Kept = ReadyRecord & Key;
/** `slot: null` means that it was lost to somebody, or is dead: look again. `record` is one that is not ready. */
export type Taken =
  | { readonly kind: "slot"; readonly slot: Slot | null }
  | { readonly kind: "record"; readonly record: CreatingRecord | StoppingRecord | null };
type Reached = { readonly attachment: Attachment; readonly recovery: Recovery };
/** A later generation has used its workspace; or our hold of it may be gone, so nothing was moved. */
type Unreached = "overtaken" | "in doubt";

const EMPTY: Recovery = { kind: "empty", lost: [], survived: [] };
const RECOVERIES: Readonly<Record<Arrival, Recovery>> = { restored: RESTORED, empty: EMPTY };

export class Opener {
  readonly #parts: OpenerParts;
  /** Blanks that openings of this instance are after. */
  readonly #binding = new Set<SandboxId>();

  constructor(parts: OpenerParts) {
    this.#parts = parts;
  }

  /** Becomes a holder of the thread's sandbox, where it is ready, and connects to it. */
  async take({ user, thread }: Key, signal: AbortSignal): Promise<Taken> {
    const { store, membership } = this.#parts;
    let other: CreatingRecord | StoppingRecord | null | undefined;
    const slot = await this.#asking(async (ask) => {
      const answer = await store.take({ user, thread, instance: membership.instance, seq: ask.seq });
      if (answer.kind === "held") return this.#attach(answer.record, ask, signal);
      if (answer.kind !== "other") return this.#refused(answer);
      other = answer.record;
      return null;
    });
    return other === undefined ? { kind: "slot", slot } : { kind: "record", record: other };
  }

  /** A sandbox past its lifetime takes no new leases: with nobody else there it ends now, and the thread gets another. */
  async #attach(record: ReadyRecord, ask: Ask, signal: AbortSignal): Promise<Slot | null> {
    const { membership, settings, retirement } = this.#parts;
    const { maxLifetimeMs } = settings;
    if (maxLifetimeMs === 0 || membership.storeNowAtMost() < record.createdAt + maxLifetimeMs) {
      return this.#connect(record, ask, "parked", signal);
    }
    const parked = await this.#letGo(record, ask, null);
    if (parked === null) throw expired(record, settings);
    await retirement.stopUnheld(parked, "expired");
    return null;
  }

  /** Gives a blank to a thread: marker first, then one transaction, then workspace and daemon. */
  async bindBlank(key: Key, blueprint: NamedBlueprint, signal: AbortSignal): Promise<Slot | null> {
    const { store, backend } = this.#parts;
    if (!backend.capabilities.has("late-binding")) return null;
    for (const blank of await store.list({ blankOf: blueprint.hash })) {
      // One that another opening of this instance is after is as good as taken.
      if (this.#binding.has(blank.sandboxId)) continue;
      this.#binding.add(blank.sandboxId);
      try {
        const bound = await this.#bindOne(blank, key, blueprint, signal);
        if (bound !== "taken") return bound;
      } finally {
        this.#binding.delete(blank.sandboxId);
      }
    }
    return null;
  }

  async #bindOne(
    blank: SandboxRecord,
    { user, thread }: Key,
    blueprint: NamedBlueprint,
    signal: AbortSignal,
  ): Promise<Slot | null | "taken"> {
    const { store, backend, world, bus } = this.#parts;
    const { sandboxId } = blank;
    const { name, hash } = blueprint;
    const generation = await store.nextGeneration();
    const token = newToken(world);
    const marker = { sandboxId, user, thread, generation, token, blueprint: name, blueprintHash: hash };
    const written = await quietly(bus, "marker", () => backend.markers.write(marker).then(() => true));
    // Where there is no place for a marker any more, or another's, the blank has gone since it was picked.
    if (written === null) return "taken";
    signal.throwIfAborted();
    return this.#bind(blank, { user, thread, generation, token }, signal);
  }

  async #bind(blank: SandboxRecord, to: Key & Credentials, signal: AbortSignal): Promise<Slot | null | "taken"> {
    const { store, backend, membership, settings, bus } = this.#parts;
    const { sandboxId, revision } = blank;
    const maxPerUser = userLimit(settings.limits, to.user);
    let taken = false;
    const slot = await this.#asking(async (ask) => {
      const request = { sandboxId, revision, ...to, instance: membership.instance, seq: ask.seq, maxPerUser };
      // Without an answer the marker stays: the bind may have happened, and then it is the proof of whose it is.
      const answer = await store.bind(request);
      if (answer.kind === "bound") {
        bus.emit({ type: "sandbox-bound", from: blank.generation, ...aboutRecord(answer.record) });
        return this.#connect(answer.record, ask, "blank", signal);
      }
      await quietly(this.#parts.bus, "marker", () => backend.markers.drop(sandboxId, to.generation));
      // A full answer is for admission to deal with: it knows whom to evict and how to wait.
      taken = answer.kind === "taken";
      if (answer.kind === "taken" || answer.kind === "exists" || answer.kind === "full") return null;
      return this.#refused(answer);
    });
    return taken ? "taken" : slot;
  }

  /** Makes a sandbox from a reservation, and holds it. */
  async create(record: CreatingRecord, blueprint: NamedBlueprint, signal: AbortSignal): Promise<Slot | null> {
    return this.#asking(async (ask) => {
      const made = await this.#parts.maker.make(record, blueprint, ask, signal);
      if (made === null) return null;
      return this.#connect(made, ask, "cold", signal);
    });
  }

  /** Runs `open` with a counter for the hold it takes. No beat undoes that hold until it has ended. */
  async #asking(open: (ask: Ask) => Promise<Slot | null>): Promise<Slot | null> {
    const { membership } = this.#parts;
    const ask = membership.asking();
    try {
      return await open(ask);
    } finally {
      membership.asked(ask);
    }
  }

  /** Connects to what we hold. On success the slot is established; otherwise the hold is given back. */
  async #connect(record: ReadyRecord, ask: Ask, origin: Slot["origin"], signal: AbortSignal): Promise<Slot | null> {
    const { world, membership, retirement, bus } = this.#parts;
    const startedAt = world.monotonicMs();
    membership.given(ask, record);
    let attachment: Attachment | null = null;
    try {
      const reached = await this.#reach(record, ask, signal);
      if (reached === null) return null;
      if (reached === "overtaken") return await this.#giveUp(record, ask);
      attachment = reached === "in doubt" ? null : reached.attachment;
      signal.throwIfAborted();
      if (reached !== "in doubt" && membership.stillHolds(ask))
        return this.#establish(record, ask, { origin, ...reached }, startedAt);
      // Our session may have ended meanwhile, and this hold with it. Look again.
      await membership.validate();
    } catch (error) {
      const parked = await this.#letGo(record, ask, attachment);
      // Made or bound for callers who all gave up: a cancelled acquire leaves nothing.
      const unwanted = origin !== "parked" && (signal.aborted || isAnonymous(record.thread));
      if (unwanted && parked !== null && membership.term === ask.term && isUntouched(record, parked)) {
        await quietly(bus, "stop", () => retirement.stopUnheld(parked, "create-abandoned"));
      }
      throw error;
    }
    await this.#letGo(record, ask, attachment);
    return null;
  }

  /** The thread has had a later generation since this one was given: nobody can use the sandbox under it. */
  async #giveUp(record: ReadyRecord, ask: Ask): Promise<null> {
    const parked = await this.#letGo(record, ask, null);
    if (parked !== null) await this.#parts.retirement.stopUnheld(parked, "create-abandoned");
    return null;
  }

  #establish(
    record: ReadyRecord,
    { seq, epoch }: Ask,
    opening: Reached & Pick<Slot, "origin">,
    startedAt: number,
  ): Slot {
    const { world, settings, slots, bus, onLost } = this.#parts;
    const expiresAt =
      settings.maxLifetimeMs === 0 ? Number.POSITIVE_INFINITY : record.createdAt + settings.maxLifetimeMs;
    const slot = new Slot({ ...opening, record: kept(record), seq, epoch, expiresAt, onLost });
    slots.add(slot);
    this.#follow(slot, opening.attachment);
    bus.emit({ type: "sandbox-attached", durationMs: world.monotonicMs() - startedAt, ...aboutRecord(record) });
    return slot;
  }

  /** Connects a slot again whose sandbox is alive. */
  async reattach(slot: Slot, signal: AbortSignal): Promise<void> {
    const attachment = await this.#parts.backend.attach(targetOf(slot.record), signal);
    const open = slot.isOpen();
    const unused = open ? slot.attachment : attachment;
    if (open) slot.reattached(attachment);
    if (open) this.#follow(slot, attachment);
    await quietly(this.#parts.bus, "attachment", () => unused.close());
  }

  #follow(slot: Slot, attachment: Attachment): void {
    void attachment.closed.then(() => {
      if (!slot.isOpen() || slot.attachment !== attachment) return;
      slot.disconnected = true;
      this.#parts.onDisconnected(slot);
    });
  }

  /** The record, when nobody else holds it in this generation. */
  async #letGo(record: SandboxRecord, { seq }: Ask, attachment: Attachment | null): Promise<SandboxRecord | null> {
    if (attachment !== null) await quietly(this.#parts.bus, "attachment", () => attachment.close());
    const now = await this.giveBack(record, seq, false);
    return now !== null && isParked(now) && now.generation === record.generation ? now : null;
  }

  /** Binds what is bound only in the record, then attaches. `null`: it has ended meanwhile, or is dead and being stopped. */
  async #reach(record: ReadyRecord, ask: Ask, signal: AbortSignal): Promise<Reached | null | Unreached> {
    const { backend, retirement } = this.#parts;
    try {
      // A workspace that is mounted from home is where it belongs.
      const arrival = record.place === "home" ? record.arrival : await this.#ensureBound(record, ask, signal);
      const attachment = await abortable(backend.attach(targetOf(record), signal), signal);
      return { attachment, recovery: arrival === null || isShared(record) ? SAME : RECOVERIES[arrival] };
    } catch (error) {
      if (signal.aborted) throw error;
      if (error instanceof Overtaken) return "overtaken";
      if (error instanceof BindingInDoubt) return "in doubt";
      const dead = isSandlotError(error, "sandbox_lost");
      if (!dead && !(await this.#isPresent(record))) return null;
      // A daemon that answers to other credentials than its record can be reached by nobody.
      if (!dead && !isSandlotError(error, "stale_generation")) throw unreachable(record, error);
      await retirement.stopDead(record);
      return null;
    }
  }

  /** Every step may have been done before by somebody who then died; each of them can be done again. */
  async #ensureBound(record: ReadyRecord, ask: Ask, signal: AbortSignal): Promise<Arrival | null> {
    const { backend, store, membership } = this.#parts;
    const isOurs = () => !signal.aborted && membership.stillHolds(ask);
    const { sandboxId, generation, boundFrom } = record;
    const spot = spotOf(record);
    const found =
      spot === null ? "new" : await abortable(ensureBound(backend.workspaces, spot, isOurs).catch(overtaken), signal);
    if (boundFrom === null) return record.arrival;
    await abortable(backend.rebind(targetOf(record), boundFrom, signal), signal);
    const arrival = found === "existing" ? "restored" : "empty";
    await store.confirmBound(sandboxId, generation, arrival);
    return arrival;
  }

  async #isPresent({ sandboxId, generation }: SandboxRecord): Promise<boolean> {
    const now = await this.#parts.store.get(sandboxId);
    return now?.state === "ready" && now.generation === generation;
  }

  /** Gives a hold back. Never fails: a lost release is healed by the next beat. */
  async giveBack(
    { sandboxId, generation }: Pick<SandboxRecord, "sandboxId" | "generation">,
    seq: number,
    used: boolean,
  ): Promise<SandboxRecord | null> {
    const { store, membership, bus } = this.#parts;
    const request = { sandboxId, generation, instance: membership.instance, seq, used };
    return quietly(bus, "release", () => store.unhold(request));
  }

  /** Answers that are the same for everybody who wants something new. `null`: registered again, so look again. */
  async #refused(answer: Refusal): Promise<null> {
    throwIfRecovering(answer, this.#parts.settings.sessionLifetimeMs);
    await this.#parts.membership.renew();
    return null;
  }
}

/** A later generation has used the thread's workspace. */
class Overtaken extends Error {}

function overtaken(error: unknown): never {
  throw isSandlotError(error, "stale_generation") ? new Overtaken() : error;
}

/** What went wrong in the engine is its own business; for the caller the sandbox cannot be reached now. */
function unreachable({ sandboxId }: SandboxRecord, error: unknown): unknown {
  if (error instanceof SandlotError && (error.retryable || error.code === "workspace_conflict")) return error;
  return new SandlotError(
    "sandbox_unreachable",
    { sandboxId, problem: problemOf(error), retryAfterMs: 1_000 },
    { cause: error },
  );
}

export function expired({ sandboxId }: SandboxRecord, { maxLifetimeMs }: Settings): SandlotError {
  return new SandlotError("sandbox_expired", { sandboxId, maxLifetimeMs, retryAfterMs: 1_000 });
}

function targetOf({ sandboxId, generation, token, ref }: ReadyRecord): Target {
  return { sandboxId, generation, token, ref };
}

/** Somebody else is at work in it, so it is not new to its thread. */
function isShared({ holders, leases }: ReadyRecord): boolean {
  return Object.keys(holders).length > 1 || Object.keys(leases).length > 0;
}

/** Narrows a record to one that belongs to a thread. */
function kept(record: ReadyRecord): Kept {
  const { user, thread } = record;
  if (user === null || thread === null)
    throw new SandlotError("internal", { problem: `sandbox ${record.sandboxId} has no thread` });
  return { ...record, user, thread };
}
