/**
 * The provider decides which thread gets which sandbox. READ FIRST.
 *
 * This file is control flow only. It walks the tree of an acquire and calls the component for each step:
 *
 *   acquire
 *     ├ held here already?      → add a lease, in memory                       lifecycle/hold/slots.ts
 *     ├ record says ready?      → become a holder and attach                   lifecycle/acquire/opener.ts
 *     ├ a blank?                → bind it                                      lifecycle/acquire/opener.ts
 *     ├ room for one?           → create it                                    lifecycle/acquire/opener.ts
 *     ├ creating, stopping?     → wait for it, or take over from a dead actor  lifecycle/stop/retirement.ts
 *     └ no room                 → admission, create                            lifecycle/admission/admission.ts
 *
 * Invariants
 * - The store decides; memory is a cache. The provider uses memory only while `membership.trusted()`.
 * - A slot is leased in the same turn in which it is found, before any `await`.
 * - After every `await` the code reads the state again, through a method.
 * - A function that takes or makes something gives it back when a later step fails.
 */

import {
  type AcquirePath,
  type LossReason,
  parseThreadId,
  type Sandbox,
  type SandboxId,
  SandlotError,
} from "@sandlot/contract";
import { blueprintNamed } from "./config/blueprint-named.ts";
import type { Settings } from "./config/settings.ts";
import type { AcquireRequest, Lease, WarmRequest } from "./fleet.ts";
import {
  type AcquireParams,
  lookAgainUnless,
  paramsOfRestart,
  parseAcquireParams,
  refuseMismatch,
} from "./lifecycle/acquire/acquire-params.ts";
import type { SandboxMaker } from "./lifecycle/acquire/maker.ts";
import { LOOK_AGAIN, type LookAgain, type Opener, type Wanted } from "./lifecycle/acquire/opener.ts";
import { expired } from "./lifecycle/acquire/outcomes.ts";
import type { Admission, Full } from "./lifecycle/admission/admission.ts";
import { heldSandbox } from "./lifecycle/hold/held-sandbox.ts";
import type { LeaseController, LeaseHandle } from "./lifecycle/hold/lease.ts";
import type { LeaseParams, Leases } from "./lifecycle/hold/leases.ts";
import type { LivenessWatch } from "./lifecycle/hold/liveness-watch.ts";
import { reasonNotToKeep } from "./lifecycle/hold/retention.ts";
import { type Patience, type Progress, patienceOf, SharedOpens } from "./lifecycle/hold/shared-opens.ts";
import { causeOf, type Slot, sandboxLost } from "./lifecycle/hold/slot.ts";
import type { Slots } from "./lifecycle/hold/slots.ts";
import type { Membership } from "./lifecycle/session/membership.ts";
import { throwIfRefused } from "./lifecycle/session/refusals.ts";
import type { Retirement } from "./lifecycle/stop/retirement.ts";
import { aboutRecord } from "./observe/about.ts";
import { type EventBus, reportFailure } from "./observe/event-bus.ts";
import type { Changes } from "./store/changes.ts";
import { type ActingRecord, anonymousThread, isParked } from "./store/record.ts";
import { atMost, type UnderWay, within } from "./world/waiting.ts";
import type { World } from "./world/world.ts";

export interface ProviderParts {
  readonly settings: Settings;
  readonly world: World;
  readonly changes: Changes;
  readonly membership: Membership;
  readonly slots: Slots;
  readonly leases: Leases;
  readonly opener: Opener;
  readonly maker: SandboxMaker;
  readonly liveness: LivenessWatch;
  readonly admission: Admission;
  readonly retirement: Retirement;
  readonly bus: EventBus;
  readonly underWay: UnderWay;
  readonly ending: AbortSignal;
}

/** The longest time that closing a connection may delay a release, and the longest wait for a release. */
const CLOSE_PATIENCE_MS = 1_000;
const RELEASE_PATIENCE_MS = 5_000;

export class Provider implements LeaseController {
  readonly #parts: ProviderParts;
  readonly #opens: SharedOpens;
  #closed = false;

  constructor(parts: ProviderParts) {
    this.#parts = parts;
    this.#opens = new SharedOpens(parts.world, (slot) => this.parkIfUnused(slot));
  }

  async acquire(request: AcquireRequest = {}): Promise<Lease> {
    const { settings, world, membership, slots, leases } = this.#parts;
    this.#refuseIfClosed("acquire");
    const params = parseAcquireParams(request, settings, () => anonymousThread(world.randomHex(12)));
    const order = leases.params(request.purpose, params.ttlMs, this.acquire);
    const held = slots.byThread(params.user, params.thread);
    if (held?.isOpen() && params.ttlMs === null && !request.signal?.aborted && membership.trusted()) {
      return this.#lease(held, params, order, "held");
    }
    const take = (slot: Slot) => this.#lease(slot, params, order, slot.used ? "held" : slot.origin);
    const patience = patienceOf(world, params.timeoutMs, request.signal);
    const lease = await this.#join(params, patience, take);
    if (params.ttlMs === null) return lease;
    return this.#granting(patience, (signal) => leases.granted(lease, signal));
  }

  async warm(request: WarmRequest): Promise<void> {
    const { settings, world } = this.#parts;
    this.#refuseIfClosed("warm");
    const params = parseAcquireParams(request, settings, () => parseThreadId(undefined));
    await this.#join(params, patienceOf(world, params.timeoutMs, request.signal), (slot) => {
      refuseMismatch(slot.record, params);
      slot.warmed = true;
    });
  }

  get(sandboxId: SandboxId): Sandbox | undefined {
    const slot = this.#parts.slots.byId(sandboxId);
    return slot && heldSandbox(slot, () => this.#parts.slots.byThread(slot.user, slot.thread));
  }

  /** Refuses new work. Resolves when every pending opening is aborted and cleaned up. */
  close(): Promise<void> {
    this.#closed = true;
    return this.#opens.abort(new SandlotError("fleet_closed", { operation: "acquire" }));
  }

  // ── A lease's requests ─────────────────────────────────────────────────────────────────────────────────────────

  /** Answers in bounded time. If the store does not take the release, the next beat repairs it. */
  async release(lease: LeaseHandle): Promise<void> {
    const { world, underWay, leases, ending } = this.#parts;
    const { slot } = lease;
    slot.leases.delete(lease);
    const removed = leases.ended(lease);
    // Most releases leave other leases on the slot and write nothing.
    if (removed === null && !slot.tryClose()) return;
    const parking = removed?.then(() => (slot.tryClose() ? this.#park(slot) : undefined)) ?? this.#park(slot);
    await atMost(world, RELEASE_PATIENCE_MS, underWay.add(parking), ending);
  }

  /** The next generation for a lease whose sandbox is gone. All leases of a lost slot share one opening. */
  async restart(lease: LeaseHandle): Promise<Slot> {
    const { settings, world, leases } = this.#parts;
    const lost = lease.slot;
    this.#refuseIfClosed("exec");
    const reason = (await lost.loss) ?? "crashed";
    // A sandbox that was destroyed on purpose stays destroyed.
    if (!settings.autoRestart || reason === "destroyed" || reason === "expired") throw sandboxLost(lost, reason);
    const params = paramsOfRestart(lost, settings);
    const patience = patienceOf(world, params.timeoutMs, undefined);
    const slot = await this.#join(params, patience, (next) => {
      refuseMismatch(next.record, params);
      return leases.move(lease, next);
    });
    await this.#granting(patience, () => leases.grant(lease));
    return slot;
  }

  suspect(slot: Slot, error: unknown): void {
    this.#parts.liveness.suspect(slot, error);
  }

  /** A lost slot calls this. It removes every mapping at once; later steps run in the background and never throw. */
  async lost(slot: Slot, suspected: LossReason): Promise<LossReason> {
    const { slots, bus, leases, retirement, liveness } = this.#parts;
    slots.remove(slot);
    void reportFailure(bus, "attachment", () => slot.attachment.close());
    const reason = suspected === "crashed" ? await liveness.whyGone(slot) : suspected;
    bus.emit({ type: "sandbox-lost", reason, ...causeOf(reason, slot.cause), ...aboutRecord(slot) });
    leases.lost(slot, reason);
    if (reason === "crashed") void reportFailure(bus, "stop", () => retirement.stopDead(slot));
    return reason;
  }

  // ── Opening ────────────────────────────────────────────────────────────────────────────────────────────────────

  /** Joins the opening of the thread's slot. `take` runs in the turn in which the slot arrives. */
  async #join<T>(params: AcquireParams, patience: Patience, take: (slot: Slot) => T): Promise<T> {
    const key = keyOf(params);
    while (true) {
      this.#refuseIfClosed("acquire");
      const open = (opening: AbortSignal, progress: Progress) => this.#open(params, progress, opening);
      try {
        const taken = await this.#opens.join(key, patience, open, (slot) =>
          slot.isOpen() ? { value: take(slot) } : null,
        );
        if (taken !== null) return taken.value;
      } catch (error) {
        lookAgainUnless(params.existing, error);
      }
    }
  }

  async #open(params: AcquireParams, progress: Progress, signal: AbortSignal): Promise<Slot> {
    const { changes } = this.#parts;
    const slot = await this.#look(params, progress, signal);
    if (slot !== LOOK_AGAIN) return slot;
    // The store is watched only while a caller waits.
    return changes.listening(async () => {
      for (let rounds = 0; ; rounds += 1) {
        const count = changes.count();
        const later = await this.#look(params, progress, signal);
        if (later !== LOOK_AGAIN) return later;
        await changes.after(count, signal, rounds);
      }
    });
  }

  /** Reads the state once and takes one step. */
  async #look(params: AcquireParams, progress: Progress, signal: AbortSignal): Promise<Slot | LookAgain> {
    const { membership, slots, opener, admission, settings } = this.#parts;
    signal.throwIfAborted();
    // A caller that gives up at once leaves here, before the store is asked for anything.
    await membership.validate();
    const held = slots.byThread(params.user, params.thread);
    if (held?.isOpen()) return held;
    const blueprint = params.blueprint ?? blueprintNamed(settings, "default");
    const wanted = { blueprint, existing: params.existing, room: () => admission.room(params.user), progress };
    const found = await opener.open(params, wanted, signal);
    if (found.kind === "slot") return found.slot;
    if (found.kind === "other" && found.record !== null) return this.#openLater(found.record, progress, signal);
    return this.#openInTurn(params, wanted, found.kind === "full" ? found : null, signal);
  }

  /** The thread's sandbox is not ready: an instance is creating or stopping it. */
  async #openLater(record: ActingRecord, progress: Progress, signal: AbortSignal): Promise<LookAgain> {
    const { retirement, changes } = this.#parts;
    progress.stage = record.state === "creating" ? "waiting for another create" : "waiting for a stop";
    if (await retirement.help(record, signal)) changes.hint();
    return LOOK_AGAIN;
  }

  /** There is no room, or other callers are queued for it. */
  async #openInTurn(params: AcquireParams, { blueprint, progress }: Wanted, full: Full | null, signal: AbortSignal) {
    const { opener, maker, admission, settings, membership } = this.#parts;
    progress.stage = "waiting for room";
    const reserve = () => maker.reserve(params, blueprint, admission.limits(params.user));
    const answer = await admission.admit(params, signal, reserve, full);
    throwIfRefused(answer, params.thread, settings.sessionLifetimeMs);
    if (answer.kind === "unknown-session") await membership.renew();
    if (answer.kind !== "reserved") return LOOK_AGAIN;
    progress.stage = "creating";
    return opener.create(answer.record, blueprint, signal);
  }

  // ── Giving back ────────────────────────────────────────────────────────────────────────────────────────────────

  /** An opening finished after its last caller gave up. */
  parkIfUnused(slot: Slot): void {
    if (slot.tryClose()) void this.#parts.underWay.add(this.#park(slot));
  }

  /** The last lease is gone. Gives up the hold, so that any instance can take the sandbox next. */
  async #park(slot: Slot): Promise<void> {
    const { slots, opener, bus, retirement, membership, changes, world } = this.#parts;
    slots.remove(slot);
    let isClosing = true;
    const closing = reportFailure(bus, "attachment", () => slot.attachment.close()).then(() => {
      isClosing = false;
    });
    const record = await opener.giveBack(slot, slot.seq, slot.used);
    if (isClosing) await atMost(world, CLOSE_PATIENCE_MS, closing);
    if (record === null || !isParked(record) || record.generation !== slot.generation) return;
    bus.emit({ type: "sandbox-parked", blueprint: record.blueprint, ...aboutRecord(record) });
    // An old reading of the store's clock makes sandboxes look too old: the store's host may have slept since.
    const now = membership.trusted() ? membership.storeNow() : Number.NEGATIVE_INFINITY;
    const reason = reasonNotToKeep(slot, record, now);
    if (reason !== null) await reportFailure(bus, "stop", () => retirement.stopUnheld(record, reason));
    changes.hint();
  }

  // ── Small steps ────────────────────────────────────────────────────────────────────────────────────────────────

  #lease(slot: Slot, params: AcquireParams, order: LeaseParams, path: AcquirePath): LeaseHandle {
    const { settings, leases, membership } = this.#parts;
    refuseMismatch(slot.record, params);
    if (membership.storeNowAtMost() >= slot.expiresAt) throw expired(slot.record, settings);
    return leases.begin(slot, order, this, path);
  }

  /** Writes the row of a remote lease in the time that is left. */
  #granting<T>({ leftMs, signal, late }: Patience, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const { world, ending } = this.#parts;
    const outer = AbortSignal.any(signal === undefined ? [ending] : [signal, ending]);
    return within(world, leftMs(), outer, () => late("writing the lease"), work);
  }

  #refuseIfClosed(operation: string): void {
    if (this.#closed) throw new SandlotError("fleet_closed", { operation });
  }
}

/** The separator cannot occur in an id. */
function keyOf(params: Pick<AcquireParams, "user" | "thread">): string {
  return `${params.user}\n${params.thread}`;
}
