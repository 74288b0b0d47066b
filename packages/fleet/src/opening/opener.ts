/**
 * Opening a slot: the three ways in which a thread gets a sandbox. Attach to the one it has, bind a blank, or make one.
 *
 * Each way answers with a slot, or with `null` when it lost to somebody and the caller must look again. Whatever a way
 * has taken or made, it gives back in the same function when a later step fails.
 */

import {
  isSandlotError,
  type LossReason,
  type Recovery,
  SandlotError,
  type ThreadId,
  type UserId,
} from "@sandlot/contract";
import type { Attachment, Backend, Credentials, Target } from "../backend/backend.ts";
import type { NamedBlueprint, Settings } from "../config/settings.ts";
import type { Membership } from "../membership/membership.ts";
import { aboutRecord } from "../observe/about.ts";
import { type EventBus, quietly } from "../observe/event-bus.ts";
import { type Retirement, spotOf } from "../retirement/retirement.ts";
import { Slot } from "../slot/slot.ts";
import type { Slots } from "../slot/slots.ts";
import { isAnonymous, isParked, type SandboxRecord } from "../store/record.ts";
import type { Refusal, Store } from "../store/store.ts";
import { ensureBound } from "../workspace/binding.ts";
import { abortable } from "../world/waiting.ts";
import type { World } from "../world/world.ts";
import { type Maker, newToken } from "./maker.ts";

export interface OpenerParts {
  readonly settings: Settings;
  readonly world: World;
  readonly store: Store;
  readonly backend: Backend;
  readonly membership: Membership;
  readonly retirement: Retirement;
  readonly maker: Maker;
  readonly slots: Slots;
  readonly bus: EventBus;
  readonly onLost: (slot: Slot, reason: LossReason) => Promise<LossReason>;
  /** The connection of a slot ended. By itself that says nothing about life or death. */
  readonly onDisconnected: (slot: Slot) => void;
}

type Key = { readonly user: UserId; readonly thread: ThreadId };
type Kept = SandboxRecord & Key;
/** `slot: null` means that it was lost to somebody, or is dead: look again. `record` is one that is not ready. */
export type Taken =
  | { readonly kind: "slot"; readonly slot: Slot | null }
  | { readonly kind: "record"; readonly record: SandboxRecord | null };
type Opening = Pick<Slot, "origin" | "recovery">;
/** Under which counter, and in which life of our session, a hold was asked for. */
type Ask = { readonly seq: number } & Pick<Membership, "epoch" | "term">;

const SAME: Recovery = {
  kind: "same",
  lost: [],
  survived: ["processes", "temporary files", "installed packages", "workspace"],
};
const RESTORED: Recovery = {
  kind: "restored",
  lost: ["processes", "temporary files", "installed packages"],
  survived: ["workspace"],
};
const EMPTY: Recovery = { kind: "empty", lost: [], survived: [] };

export class Opener {
  readonly #parts: OpenerParts;

  constructor(parts: OpenerParts) {
    this.#parts = parts;
  }

  /** Becomes a holder of the thread's sandbox, where it is ready, and connects to it. */
  async take({ user, thread }: Key, signal: AbortSignal): Promise<Taken> {
    const { store, membership } = this.#parts;
    let other: SandboxRecord | null | undefined;
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
  async #attach(record: SandboxRecord, ask: Ask, signal: AbortSignal): Promise<Slot | null> {
    const { membership, settings, retirement } = this.#parts;
    const { maxLifetimeMs } = settings;
    if (maxLifetimeMs === 0 || membership.storeNowAtMost() < record.createdAt + maxLifetimeMs) {
      return this.#connect(record, ask, { origin: "parked", recovery: SAME }, signal);
    }
    const parked = await this.#letGo(record, ask, null);
    if (parked === null) throw expired(record, settings);
    await retirement.stopUnheld(parked, "expired");
    return null;
  }

  /** Gives a blank to a thread: marker first, then one transaction, then workspace and daemon. */
  async bindBlank(key: Key, blueprint: NamedBlueprint, signal: AbortSignal): Promise<Slot | null> {
    const { store, backend, world, bus } = this.#parts;
    if (!backend.capabilities.has("late-binding")) return null;
    const [blank] = await store.list({ blankOf: blueprint.hash });
    if (blank === undefined) return null;
    const generation = await store.nextGeneration();
    const { sandboxId } = blank;
    const token = newToken(world);
    const { name, hash } = blueprint;
    const marker = { sandboxId, ...key, generation, token, blueprint: name, blueprintHash: hash };
    const written = backend.workspaces.writeMarker(marker).then(() => true);
    // Where there is no place for a marker any more, the blank has gone since it was picked.
    if ((await quietly(bus, "marker", () => written)) === null) return null;
    signal.throwIfAborted();
    return this.#bind(blank, { ...key, generation, token }, signal);
  }

  async #bind(blank: SandboxRecord, to: Key & Credentials, signal: AbortSignal): Promise<Slot | null> {
    const { store, backend, membership, settings, bus } = this.#parts;
    const { sandboxId, revision } = blank;
    const { mode, maxPerUser } = settings.limits;
    const limit = mode === "hard" && maxPerUser > 0 ? maxPerUser : null;
    return this.#asking(async (ask) => {
      const request = { sandboxId, revision, ...to, instance: membership.instance, seq: ask.seq, maxPerUser: limit };
      // Without an answer the marker stays: the bind may have happened, and then it is the proof of whose it is.
      const answer = await store.bind(request);
      if (answer.kind === "bound") {
        bus.emit({ type: "sandbox-bound", from: blank.generation, ...aboutRecord(answer.record) });
        return this.#connect(answer.record, ask, { origin: "blank", recovery: EMPTY }, signal);
      }
      await quietly(this.#parts.bus, "marker", () => backend.workspaces.dropMarker(sandboxId, to.generation));
      // A full answer is for admission to deal with: it knows whom to evict and how to wait.
      if (answer.kind === "taken" || answer.kind === "exists" || answer.kind === "full") return null;
      return this.#refused(answer);
    });
  }

  /** Makes a sandbox from a reservation, and holds it. */
  async create(record: SandboxRecord, blueprint: NamedBlueprint, signal: AbortSignal): Promise<Slot | null> {
    return this.#asking(async (ask) => {
      const made = await this.#parts.maker.make(record, blueprint, ask.seq, signal);
      if (made === null) return null;
      const recovery = made.workspace === "existing" ? RESTORED : EMPTY;
      return this.#connect(made.record, ask, { origin: "cold", recovery }, signal);
    });
  }

  /** Runs `open` with a counter for the hold it takes. No beat undoes that hold until it has ended. */
  async #asking(open: (ask: Ask) => Promise<Slot | null>): Promise<Slot | null> {
    const { membership } = this.#parts;
    const { epoch, term } = membership;
    const seq = membership.asking();
    try {
      return await open({ seq, epoch, term });
    } finally {
      membership.asked(seq);
    }
  }

  /** Connects to what we hold. On success the slot is established; otherwise the hold is given back. */
  async #connect(record: SandboxRecord, ask: Ask, opening: Opening, signal: AbortSignal): Promise<Slot | null> {
    const { world, membership, retirement, bus } = this.#parts;
    const startedAt = world.monotonicMs();
    membership.sawGeneration(record.generation);
    let attachment: Attachment | null = null;
    try {
      const reached = await this.#reach(record, opening.recovery, signal);
      if (reached === null) return null;
      attachment = reached.attachment;
      signal.throwIfAborted();
      const certain = membership.trusted() && membership.term === ask.term;
      if (certain) return this.#establish(record, ask, { ...opening, ...reached }, startedAt);
      // Our session may have ended meanwhile, and this hold with it. Look again.
      await membership.validate();
    } catch (error) {
      const parked = await this.#letGo(record, ask, attachment);
      // Made or bound for callers who all gave up: a cancelled acquire leaves nothing.
      const unwanted = parked !== null && opening.origin !== "parked" && (signal.aborted || isAnonymous(record.thread));
      if (unwanted) await quietly(bus, "stop", () => retirement.stopUnheld(parked, "create-abandoned"));
      throw error;
    }
    await this.#letGo(record, ask, attachment);
    return null;
  }

  #establish(
    record: SandboxRecord,
    { seq, epoch }: Ask,
    opening: Opening & { attachment: Attachment },
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
    const now = await this.giveBack(record, seq);
    return now !== null && isParked(now) && now.generation === record.generation ? now : null;
  }

  /** Binds what is bound only in the record, then attaches. `null`: it is dead, and is being stopped. */
  async #reach(
    record: SandboxRecord,
    recovery: Recovery,
    signal: AbortSignal,
  ): Promise<{ attachment: Attachment; recovery: Recovery } | null> {
    const { backend, store, retirement } = this.#parts;
    const target = targetOf(record);
    const spot = spotOf(record);
    try {
      // A workspace that is mounted from home is where it belongs.
      const apart = spot !== null && spot.place !== "home";
      const found = apart ? await abortable(ensureBound(backend.workspaces, spot), signal) : "existing";
      const bound = record.boundFrom !== null;
      if (record.boundFrom !== null) {
        await abortable(backend.rebind(target, record.boundFrom, signal), signal);
        await store.confirmBound(record.sandboxId, record.generation);
      }
      const attachment = await abortable(backend.attach(target, signal), signal);
      // A blank that was bound just now is a new sandbox, with or without an old workspace.
      return { attachment, recovery: bound ? (found === "existing" ? RESTORED : EMPTY) : recovery };
    } catch (error) {
      if (!isSandlotError(error, "sandbox_lost") && !(await this.#isForeign(record, error))) throw error;
      await retirement.stopDead(record);
      return null;
    }
  }

  /** The daemon answers to other credentials than the record's, and the record has not changed: nobody can reach it. */
  async #isForeign(record: SandboxRecord, error: unknown): Promise<boolean> {
    if (!isSandlotError(error, "stale_generation")) return false;
    const now = await this.#parts.store.get(record.sandboxId);
    return now !== null && now.state === "ready" && now.generation === record.generation;
  }

  /** Gives a hold back. Never fails: a lost release is healed by the next beat. */
  async giveBack(record: Pick<SandboxRecord, "sandboxId" | "generation">, seq: number): Promise<SandboxRecord | null> {
    const { store, membership, bus } = this.#parts;
    const { sandboxId, generation } = record;
    const request = { sandboxId, generation, instance: membership.instance, seq };
    return quietly(bus, "release", () => store.unhold(request));
  }

  /** Answers that are the same for everybody who wants something new. `null`: registered again, so look again. */
  async #refused(answer: Refusal): Promise<null> {
    throwIfRecovering(answer, this.#parts.settings.sessionLifetimeMs);
    await this.#parts.membership.renew();
    return null;
  }
}

export function throwIfRecovering(answer: { kind: string; epoch?: string }, lifetimeMs: number): void {
  if (answer.kind === "recovering" && answer.epoch !== undefined) {
    throw new SandlotError("store_recovering", { epoch: answer.epoch, retryAfterMs: lifetimeMs });
  }
}

export function expired({ sandboxId }: SandboxRecord, { maxLifetimeMs }: Settings): SandlotError {
  return new SandlotError("sandbox_expired", { sandboxId, maxLifetimeMs, retryAfterMs: 1_000 });
}

export function targetOf(record: SandboxRecord): Target {
  const { sandboxId, generation, token, ref } = record;
  if (ref === null)
    throw new SandlotError("internal", { problem: `sandbox ${sandboxId} is ready without an engine reference` });
  return { sandboxId, generation, token, ref };
}

/** Narrows a record to one that belongs to a thread. */
function kept(record: SandboxRecord): Kept {
  const { user, thread } = record;
  if (user === null || thread === null)
    throw new SandlotError("internal", { problem: `sandbox ${record.sandboxId} has no thread` });
  return { ...record, user, thread };
}
