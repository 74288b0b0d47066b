/**
 * Opens a slot. A thread gets a sandbox in one of three ways: attach to its own, bind a blank, or make one.
 *
 *   take ── held ──────▶ attach                          1 round trip to the store that a caller waits for
 *        ├─ blank ─────▶ marker ──▶ bind ──▶ attach      2
 *        └─ reserved ──▶ create ──▶ publish ──▶ attach   2
 *
 * Each way returns a slot, or `LOOK_AGAIN` when it lost a race. When a later step fails, the same function gives back
 * everything that it has taken or made.
 */

import {
  type Generation,
  isSandlotError,
  type LossReason,
  type Recovery,
  type SandboxId,
  type ThreadId,
  type UserId,
} from "@sandlot/contract";
import type { Attachment, Backend, Credentials, Target } from "../../backend/backend.ts";
import { BindingInDoubt, ensureBound } from "../../backend/workspace-binding.ts";
import type { NamedBlueprint, Settings } from "../../config/settings.ts";
import { aboutRecord } from "../../observe/about.ts";
import { type EventBus, reportFailure } from "../../observe/event-bus.ts";
import type { ReadyRecord, SandboxRecord } from "../../store/record.ts";
import { type Arrival, type CreatingRecord, isAnonymous, isParked } from "../../store/record.ts";
import type { Elsewhere, Limits, Refusal, Store, TakeAnswer } from "../../store/store.ts";
import { abortable, type UnderWay } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import { userLimit } from "../admission/user-limit.ts";
import { withNewestCheckpoint } from "../checkpoints/newest-checkpoint.ts";
import { isUntouched } from "../hold/retention.ts";
import type { Progress } from "../hold/shared-opens.ts";
import { kept, Slot } from "../hold/slot.ts";
import type { Slots } from "../hold/slots.ts";
import type { Membership, PendingHold } from "../session/membership.ts";
import { throwIfRefused } from "../session/refusals.ts";
import { type Retirement, spotOf } from "../stop/retirement.ts";
import { newToken, type SandboxMaker } from "./maker.ts";
import { expired, Overtaken, overtaken, recoveryOf, unreachable } from "./outcomes.ts";
import { UsedSandboxes } from "./used-sandboxes.ts";

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
  readonly underWay: UnderWay;
  /** The same connection; what its commands do is noted in the thread's timeline. */
  readonly recorded: (attachment: Attachment, record: ReadyRecord) => Attachment;
  readonly onLost: (slot: Slot, reason: LossReason) => Promise<LossReason>;
  /** The connection of a slot ended. That alone does not tell whether the sandbox is alive. */
  readonly onDisconnected: (slot: Slot) => void;
}

type Key = { readonly user: UserId; readonly thread: ThreadId };
/** A race was lost, or the sandbox is dead: the state has changed. */
export const LOOK_AGAIN = "look again";
export type LookAgain = typeof LOOK_AGAIN;
/** The result of a look: a slot; a sandbox that is not ready, or `null` for none; no room for one. */
export type Opened =
  | { readonly kind: "slot"; readonly slot: Slot | LookAgain }
  | Extract<TakeAnswer, { kind: "other" | "full" }>;

/** What to open for a thread without a sandbox. */
export interface Wanted {
  readonly blueprint: NamedBlueprint;
  /** The first step then reserves nothing: `maker.ts` looks for the thread's files when it claims the key. */
  readonly existing: boolean;
  /** The present limits of a reservation; `null`: reserve nothing. */
  readonly room: () => Limits | null;
  readonly progress: Progress;
}

type Reached = { readonly attachment: Attachment; readonly recovery: Recovery };
/** A later generation has used the workspace; or our hold may be gone, so nothing was moved. */
type Unreached = "overtaken" | "in doubt";

export class Opener {
  readonly #parts: OpenerParts;
  /** Blanks that openings of this instance are binding. */
  readonly #binding = new Set<SandboxId>();
  /** Pending confirmations of binds. They never reject. */
  readonly #confirming = new Map<SandboxId, Promise<void>>();
  readonly #used = new UsedSandboxes();

  constructor(parts: OpenerParts) {
    this.#parts = parts;
  }

  /** Reads the store once and takes the step that follows. */
  async open(key: Key, wanted: Wanted, signal: AbortSignal): Promise<Opened> {
    const { blueprint, progress } = wanted;
    progress.stage = "attaching";
    const tried: SandboxId[] = [];
    while (true) {
      // Callers that have gone get no reservation.
      signal.throwIfAborted();
      const answer = await this.#take(key, wanted, tried, signal);
      if (answer.kind === "recovering" || answer.kind === "unknown-session" || answer.kind === "elsewhere")
        return opened(await this.#refused(answer, key));
      if (answer.kind === "reserved") {
        progress.stage = "creating";
        return opened(await this.create(answer.record, blueprint, signal));
      }
      if (answer.kind !== "blank") return answer;
      progress.stage = "binding a blank";
      tried.push(answer.record.sandboxId);
      const bound = await this.#bindBlank(answer.record, answer.generation, key, blueprint, signal);
      if (bound !== "taken") return bound;
    }
  }

  /** Becomes a holder of the thread's sandbox if it is ready, and connects to it. */
  async #take(
    { user, thread }: Key,
    { blueprint, existing, room: roomNow }: Wanted,
    tried: readonly SandboxId[],
    signal: AbortSignal,
  ): Promise<Opened | Exclude<TakeAnswer, { kind: "held" }>> {
    const { store, backend, membership, maker } = this.#parts;
    const canBind = !existing && backend.capabilities.has("late-binding");
    // Skip blanks that another opening in this process is binding.
    const blank = canBind ? { blueprintHash: blueprint.hash, except: [...this.#binding, ...tried] } : null;
    const room = existing ? null : roomNow();
    const ask = membership.beginHold();
    try {
      const request = { user, thread, instance: membership.instance, seq: ask.seq, blank };
      const answer =
        room === null
          ? await store.take({ ...request, orReserve: null })
          : await maker.reserving(blueprint, (record) =>
              store.take({ ...request, orReserve: { ...record, limits: room } }),
            );
      return answer.kind === "held" ? opened(await this.#attach(answer.record, ask, signal)) : answer;
    } finally {
      membership.endHold(ask);
    }
  }

  #attach(record: ReadyRecord, ask: PendingHold, signal: AbortSignal): Promise<Slot | LookAgain> {
    const { membership, settings } = this.#parts;
    const { maxLifetimeMs } = settings;
    const isYoung = maxLifetimeMs === 0 || membership.storeNowAtMost() < record.createdAt + maxLifetimeMs;
    return isYoung ? this.#connect(record, ask, "parked", signal) : this.#replace(record, ask);
  }

  /** A sandbox past its lifetime takes no new leases. Without other holders it ends now and is replaced. */
  async #replace(record: ReadyRecord, ask: PendingHold): Promise<LookAgain> {
    const { membership, settings, retirement } = this.#parts;
    // An old reading of the store's clock makes sandboxes look too old: its host may have slept since. Look again.
    const isCertain = membership.trusted();
    const parked = await this.#letGo(record, ask, null);
    if (!isCertain) return LOOK_AGAIN;
    if (parked === null) throw expired(record, settings);
    await retirement.stopUnheld(parked, "expired");
    return LOOK_AGAIN;
  }

  /** Binds a blank to a thread: marker first, then one transaction, then workspace and daemon. */
  async #bindBlank(
    blank: ReadyRecord,
    generation: Generation,
    { user, thread }: Key,
    { name, hash }: NamedBlueprint,
    signal: AbortSignal,
  ): Promise<Opened | "taken"> {
    const { backend, world, bus } = this.#parts;
    const { sandboxId } = blank;
    // Concurrent callers may have picked the same blank.
    if (this.#binding.has(sandboxId)) return "taken";
    this.#binding.add(sandboxId);
    try {
      const token = newToken(world);
      const marker = { sandboxId, user, thread, generation, token, blueprint: name, blueprintHash: hash };
      const written = await reportFailure(bus, "marker", () => backend.markers.write(marker).then(() => true));
      // No place for the marker, or a marker of another thread, means that the blank has gone since it was picked.
      if (written === null) return "taken";
      signal.throwIfAborted();
      return await this.#bind(blank, { user, thread, generation, token }, signal);
    } finally {
      this.#binding.delete(sandboxId);
    }
  }

  #bind(blank: ReadyRecord, to: Key & Credentials, signal: AbortSignal): Promise<Opened | "taken"> {
    const { store, backend, membership, settings, bus } = this.#parts;
    const { sandboxId, revision } = blank;
    const maxPerUser = userLimit(settings.limits, to.user);
    return this.#asking(async (ask) => {
      const request = { sandboxId, revision, ...to, instance: membership.instance, seq: ask.seq, maxPerUser };
      // Without a response the marker stays: the bind may have happened, and then the marker proves the owner.
      const answer = await store.bind(request);
      if (answer.kind === "bound") {
        bus.emit({ type: "sandbox-bound", from: blank.generation, ...aboutRecord(answer.record) });
        return opened(await this.#connect(answer.record, ask, "blank", signal));
      }
      await reportFailure(bus, "marker", () => backend.markers.drop(sandboxId, to.generation));
      if (answer.kind === "taken") return "taken";
      if (answer.kind === "exists") return opened(LOOK_AGAIN);
      return answer.kind === "full" ? answer : opened(await this.#refused(answer, to));
    });
  }

  /** Makes a sandbox from a reservation, and holds it. */
  async create(record: CreatingRecord, blueprint: NamedBlueprint, signal: AbortSignal): Promise<Slot | LookAgain> {
    return this.#asking(async (ask) => {
      const made = await this.#parts.maker.make(record, blueprint, ask, signal);
      if (made === null) return LOOK_AGAIN;
      return this.#connect(made, ask, "cold", signal);
    });
  }

  /** Runs `open` with a pending hold. No beat removes that hold until it has ended. */
  async #asking<T>(open: (ask: PendingHold) => Promise<T>): Promise<T> {
    const { membership } = this.#parts;
    const ask = membership.beginHold();
    try {
      return await open(ask);
    } finally {
      membership.endHold(ask);
    }
  }

  /** Connects to a held sandbox. On success the slot is established; otherwise the hold is given back. */
  async #connect(
    record: ReadyRecord,
    ask: PendingHold,
    origin: Slot["origin"],
    signal: AbortSignal,
  ): Promise<Slot | LookAgain> {
    const { world, membership, retirement, bus } = this.#parts;
    const startedAt = world.monotonicMs();
    membership.confirmHold(ask, record);
    let attachment: Attachment | null = null;
    try {
      const reached = await this.#reach(record, ask, signal);
      if (reached === LOOK_AGAIN) return LOOK_AGAIN;
      if (reached === "overtaken") return await this.#giveUp(record, ask);
      attachment = reached === "in doubt" ? null : reached.attachment;
      signal.throwIfAborted();
      if (reached !== "in doubt" && membership.stillHolds(ask))
        return this.#establish(record, ask, { origin, ...reached }, startedAt);
      // Our session, and this hold with it, may have ended meanwhile. Look again.
      await membership.validate();
    } catch (error) {
      const parked = await this.#letGo(record, ask, attachment);
      // Made or bound for callers that all gave up: a cancelled acquire leaves nothing.
      const unwanted = origin !== "parked" && (signal.aborted || isAnonymous(record.thread));
      if (unwanted && parked !== null && membership.term === ask.term && isUntouched(record, parked)) {
        await reportFailure(bus, "stop", () => retirement.stopUnheld(parked, "create-abandoned"));
      }
      throw error;
    }
    await this.#letGo(record, ask, attachment);
    return LOOK_AGAIN;
  }

  /** The thread has had a later generation since, so the sandbox is unusable under this one. */
  async #giveUp(record: ReadyRecord, ask: PendingHold): Promise<LookAgain> {
    const parked = await this.#letGo(record, ask, null);
    if (parked !== null) await this.#parts.retirement.stopUnheld(parked, "create-abandoned");
    return LOOK_AGAIN;
  }

  #establish(
    record: ReadyRecord,
    { seq, epoch }: PendingHold,
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

  /** Reconnects a slot whose sandbox is alive. */
  async reattach(slot: Slot, signal: AbortSignal): Promise<void> {
    const { backend, recorded } = this.#parts;
    const attachment = recorded(await backend.attach(targetOf(slot.record), signal), slot.record);
    const open = slot.isOpen();
    const unused = open ? slot.attachment : attachment;
    if (open) slot.reattached(attachment);
    if (open) this.#follow(slot, attachment);
    await reportFailure(this.#parts.bus, "attachment", () => unused.close());
  }

  #follow(slot: Slot, attachment: Attachment): void {
    void attachment.closed.then(() => {
      if (!slot.isOpen() || slot.attachment !== attachment) return;
      slot.disconnected = true;
      this.#parts.onDisconnected(slot);
    });
  }

  /** The record, if it has no other holder in this generation. */
  async #letGo(
    record: SandboxRecord,
    { seq }: PendingHold,
    attachment: Attachment | null,
  ): Promise<SandboxRecord | null> {
    if (attachment !== null) await reportFailure(this.#parts.bus, "attachment", () => attachment.close());
    const now = await this.giveBack(record, seq, false);
    return now !== null && isParked(now) && now.generation === record.generation ? now : null;
  }

  /** Completes a bind that only the record has, then attaches. Looks again if the sandbox ended or is stopping. */
  async #reach(record: ReadyRecord, ask: PendingHold, signal: AbortSignal): Promise<Reached | LookAgain | Unreached> {
    const { backend, retirement, settings, recorded } = this.#parts;
    try {
      // A workspace that is mounted from home is already in its place.
      const arrival = record.place === "home" ? record.arrival : await this.#ensureBound(record, ask, signal);
      const attachment = recorded(await abortable(backend.attach(targetOf(record), signal), signal), record);
      const recovery = recoveryOf(record, this.#used.has(record) ? null : arrival, settings);
      if (recovery.kind !== "restored") return { attachment, recovery };
      return { attachment, recovery: await withNewestCheckpoint(this.#parts, kept(record), recovery, signal) };
    } catch (error) {
      if (signal.aborted) throw error;
      if (error instanceof Overtaken) return "overtaken";
      if (error instanceof BindingInDoubt) return "in doubt";
      const dead = isSandlotError(error, "sandbox_lost");
      if (!dead && !(await this.#isPresent(record))) return LOOK_AGAIN;
      // A daemon with other credentials than its record is unreachable for every caller.
      if (!dead && !isSandlotError(error, "stale_generation")) throw unreachable(record, error);
      await retirement.stopDead(record);
      return LOOK_AGAIN;
    }
  }

  /** An instance that died may have done any of these steps already. Each step is safe to repeat. */
  async #ensureBound(record: ReadyRecord, ask: PendingHold, signal: AbortSignal): Promise<Arrival | null> {
    const { backend, membership } = this.#parts;
    const isOurs = () => !signal.aborted && membership.stillHolds(ask);
    const { boundFrom } = record;
    const spot = spotOf(record);
    const found =
      spot === null ? "new" : await abortable(ensureBound(backend.workspaces, spot, isOurs).catch(overtaken), signal);
    if (boundFrom === null) return record.arrival;
    await abortable(backend.rebind(targetOf(record), boundFrom, signal), signal);
    const arrival = found === "existing" ? "restored" : "empty";
    if (!this.#used.has(record)) this.#confirmBound(record, arrival);
    return arrival;
  }

  /** Runs without a waiting caller. If it is lost, the next attach finds `boundFrom` and repeats these steps. */
  #confirmBound({ sandboxId, generation }: ReadyRecord, arrival: Arrival): void {
    const { store, bus, underWay } = this.#parts;
    const confirming = reportFailure(bus, "bind", () => store.confirmBound(sandboxId, generation, arrival)).then(() => {
      if (this.#confirming.get(sandboxId) === confirming) this.#confirming.delete(sandboxId);
    });
    this.#confirming.set(sandboxId, confirming);
    void underWay.add(confirming);
  }

  async #isPresent({ sandboxId, generation }: SandboxRecord): Promise<boolean> {
    const now = await this.#parts.store.get(sandboxId);
    return now?.state === "ready" && now.generation === generation;
  }

  /** Gives a hold back. Never rejects: the next beat repairs a lost release. What was used once stays used. */
  async giveBack(
    { sandboxId, generation }: Pick<SandboxRecord, "sandboxId" | "generation">,
    seq: number,
    isUsed: boolean,
  ): Promise<SandboxRecord | null> {
    const { store, membership, bus } = this.#parts;
    const used = this.#used.note({ sandboxId, generation }, isUsed);
    const request = { sandboxId, generation, instance: membership.instance, seq, used };
    // Otherwise the record would change once more after it was read as parked.
    await this.#confirming.get(sandboxId);
    return reportFailure(bus, "release", () => store.unhold(request));
  }

  /** Refusals that are the same for every caller that needs a new sandbox. */
  async #refused(answer: Elsewhere | Exclude<Refusal, { kind: "full" }>, { thread }: Key): Promise<LookAgain> {
    throwIfRefused(answer, thread, this.#parts.settings.sessionLifetimeMs);
    await this.#parts.membership.renew();
    return LOOK_AGAIN;
  }
}

function opened(slot: Slot | LookAgain): Opened {
  return { kind: "slot", slot };
}

function targetOf({ sandboxId, generation, token, ref }: ReadyRecord): Target {
  return { sandboxId, generation, token, ref };
}
