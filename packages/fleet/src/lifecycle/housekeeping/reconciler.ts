/**
 * The reconciler compares the engine's objects with the store's records (rules 3, 12, 16).
 *
 * - It sees only the fleet's own objects; `list` shows no others.
 * - An object without a record is adopted if its marker and its daemon agree on the thread. Otherwise it is claimed for
 *   removal after a grace. An object that a newer generation of its thread has replaced is removed at once.
 * - An object that is missing from a list proves nothing: the engine is asked, and only `dead` is dead.
 */

import { type Epoch, isSandlotError, type UserId } from "@sandlot/contract";
import type { Backend, EngineObject } from "../../backend/backend.ts";
import { type Marker, threadKeyOf } from "../../backend/labels.ts";
import { aboutRecord } from "../../observe/about.ts";
import type { EventBus } from "../../observe/event-bus.ts";
import type { SandboxRecord } from "../../store/record.ts";
import type { Limits, Store } from "../../store/store.ts";
import { sideBySide, within } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import type { Membership } from "../session/membership.ts";
import type { Retirement } from "../stop/retirement.ts";
import { engineSilence } from "./engine-silence.ts";
import { LastSeen } from "./last-seen.ts";
import { planReconcile } from "./plans.ts";

export interface ReconcilerParts {
  readonly world: World;
  readonly store: Store;
  readonly backend: Backend;
  readonly membership: Membership;
  readonly retirement: Retirement;
  readonly bus: EventBus;
  readonly limits: (user: UserId) => Limits;
  /** How long an object may be in the engine without a record. */
  readonly graceMs: number;
  /** How long the engine may take for one response. */
  readonly patienceMs: number;
}

interface Judgement {
  readonly epoch: Epoch;
  /** Before the grace is over: handles only objects that keep a thread from being acquired. */
  readonly early: boolean;
  /** Checked again after every wait. */
  readonly stands: () => boolean;
}

/** An object in the engine, and its owner by its markers and its daemon. */
interface Claim {
  readonly object: EngineObject;
  readonly markers: readonly Marker[];
  readonly generation: number;
  readonly owner: Marker | null | "unknown";
}

/** How many sandboxes are asked at the same time. */
const PARALLEL_MAX = 16;

export class Reconciler {
  readonly #parts: ReconcilerParts;
  readonly #unknown = new LastSeen<string, string>();

  constructor(parts: ReconcilerParts) {
    this.#parts = parts;
  }

  async reconcile(): Promise<void> {
    const { world, store, backend, membership, graceMs } = this.#parts;
    const judgement = this.#judge(() => membership.mayJudge());
    if (judgement === null) return;
    const objects = await this.#ask((signal) => backend.list({ consistent: false }, signal));
    const records = await store.list();
    if (!judgement.stands()) return;
    const plan = planReconcile(objects, records, ({ user, thread }) =>
      user === null || thread === null ? null : threadKeyOf(user, thread),
    );
    const unknown = [...plan.unknown, ...plan.superseded];
    const seen = unknown.map((object) => [object.ref, object.labels.sandboxId] as const);
    const unknownFor = this.#unknown.observe(seen, world.monotonicMs(), membership.sightSince());
    for (const object of plan.superseded) {
      // Without a marker the store cannot look the thread up again, so the records that were read must do.
      const [marker] = await backend.markers.list(object.labels.sandboxId);
      if (judgement.stands()) await this.#claimForRemoval(object, null, judgement, marker);
    }
    await this.#sort(
      unknown.filter(({ ref }) => (unknownFor.get(ref) ?? 0) >= graceMs),
      judgement,
    );
    // Only its own engine knows whether a sandbox is dead.
    await this.#stopTheDead(plan.missing.filter((record) => membership.isOurs(record)));
  }

  /** One sandbox that cannot be asked must not block the others. */
  async #stopTheDead(records: readonly SandboxRecord[]): Promise<void> {
    const { backend, retirement } = this.#parts;
    await sideBySide(records, PARALLEL_MAX, async (record) => {
      const { ref } = record;
      if (ref !== null && (await this.#ask((signal) => backend.probe(ref, signal))) === "dead")
        await retirement.stopDead(record);
    });
  }

  /**
   * Runs after the store was lost, before any acquire. Adopts every thread's sandbox that the engine shows, or claims
   * it for removal under its thread's key, so that its workspace is home before the thread gets another sandbox. False
   * when one could not be asked; then the caller must try again.
   */
  async recover(): Promise<boolean> {
    const { store, backend, membership } = this.#parts;
    const judgement = this.#judge(() => membership.trusted());
    if (judgement === null) return false;
    const objects = await this.#ask((signal) => backend.list({ consistent: true }, signal));
    for (const { labels } of objects) membership.sawGeneration(labels.generation);
    const known = new Set((await store.list()).map(({ sandboxId }) => sandboxId));
    const unknown = objects.filter(({ labels }) => !known.has(labels.sandboxId));
    return this.#sort(unknown, { ...judgement, early: true });
  }

  /**
   * Adopts or claims for removal, the newest of each thread first: an older one must not take the thread's key before
   * it. While the newest cannot be asked, the others of its thread wait. False when something is left to do.
   */
  async #sort(objects: readonly EngineObject[], judgement: Judgement): Promise<boolean> {
    const { membership, backend } = this.#parts;
    const claims: Claim[] = [];
    await sideBySide(objects, PARALLEL_MAX, async (object) => {
      const markers = [...(await backend.markers.list(object.labels.sandboxId))].sort(
        (a, b) => b.generation - a.generation,
      );
      const generation = markers[0]?.generation ?? object.labels.generation;
      membership.sawGeneration(generation);
      const owner = await this.#ownerAmong(markers, object);
      claims.push({ object, markers, generation, owner });
    });
    const waiting = new Set<string>();
    for (const claim of claims.sort((a, b) => b.generation - a.generation)) {
      const { markers } = claim;
      const threads = markers.map(({ user, thread }) => threadKeyOf(user, thread));
      const mustWait = threads.some((thread) => waiting.has(thread));
      if (mustWait || !(await this.#adoptOrClaim(claim, judgement))) for (const thread of threads) waiting.add(thread);
      if (!judgement.stands()) return false;
    }
    return waiting.size === 0;
  }

  /** False when the sandbox's owner could not be asked, or the judgement no longer stands. */
  async #adoptOrClaim({ object, markers, owner }: Claim, judgement: Judgement): Promise<boolean> {
    if (owner === "unknown" || !judgement.stands()) return false;
    if (owner !== null && (await this.#adopt(object, owner, judgement))) return true;
    const tenant = await this.#tenantAmong(markers, object);
    if (!judgement.stands()) return false;
    // No thread waits for it, so it ends after its grace like every unknown object.
    if (tenant === null && judgement.early && (markers.length === 0 || object.place === "home")) return true;
    return this.#claimForRemoval(object, tenant, judgement);
  }

  /** The thread whose workspace must go home with the object: it is in the slot, or mounted and not left. */
  async #tenantAmong(markers: readonly Marker[], { place }: EngineObject): Promise<Marker | null> {
    for (const marker of markers) {
      const { slot, stale } = await this.#parts.backend.workspaces.look({ ...marker, place });
      if (place === "home" ? !stale : slot) return marker;
    }
    return null;
  }

  /** The marker whose generation and token the daemon answers to. */
  async #ownerAmong(markers: readonly Marker[], { ref }: EngineObject): Promise<Marker | null | "unknown"> {
    for (const marker of markers) {
      const { sandboxId, generation, token } = marker;
      try {
        const attachment = await this.#ask((signal) =>
          this.#parts.backend.attach({ ref, sandboxId, generation, token }, signal),
        );
        await attachment.close();
        return marker;
      } catch (error) {
        if (isSandlotError(error, "sandbox_lost")) return null;
        if (!isSandlotError(error, "stale_generation")) return "unknown";
      }
    }
    return null;
  }

  async #adopt({ ref, place }: EngineObject, marker: Marker, { epoch }: Judgement): Promise<boolean> {
    const { store, backend, bus, limits } = this.#parts;
    // An object that landed late may belong to an old generation of its thread.
    if ((await backend.workspaces.look({ ...marker, place })).stale) return false;
    const adopted = await store.adopt({
      ...marker,
      ...{ backend: backend.name, engine: backend.engineId },
      ref,
      place,
      limits: limits(marker.user),
      epoch,
    });
    if (adopted) bus.emit({ type: "sandbox-adopted", engine: backend.engineId, ...aboutRecord(marker) });
    return adopted;
  }

  /** With `superseded` only if the thread's record has a later generation. False when no record was written. */
  async #claimForRemoval(
    object: EngineObject,
    marker: Marker | null,
    { epoch }: Judgement,
    superseded?: Marker,
  ): Promise<boolean> {
    const { store, backend, membership, retirement, world } = this.#parts;
    const { ref, place, labels } = object;
    const { sandboxId, blueprintHash } = labels;
    const record = await store.claimForRemoval({
      ...{ sandboxId, blueprintHash, ref, place, epoch, actor: membership.instance },
      ...{ backend: backend.name, engine: backend.engineId },
      key: marker === null ? null : { user: marker.user, thread: marker.thread },
      ...(superseded === undefined ? {} : { superseded: { user: superseded.user, thread: superseded.thread } }),
      generation: marker?.generation ?? labels.generation,
      token: (marker?.token ?? world.randomHex(24)) as Marker["token"],
      blueprint: marker?.blueprint ?? "unknown",
    });
    if (record === null) return (await store.get(sandboxId)) !== null;
    void retirement.finishStop(record);
    return true;
  }

  /** The following decisions hold only in the present epoch and while `may` returns true. `null`: it returns false. */
  #judge(may: () => boolean): Judgement | null {
    const { membership } = this.#parts;
    const { epoch } = membership;
    if (epoch === null || !may()) return null;
    return { epoch, early: false, stands: () => may() && membership.epoch === epoch };
  }

  #ask<T>(ask: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const { world, backend, patienceMs } = this.#parts;
    return within(world, patienceMs, undefined, () => engineSilence(backend, "to look around", patienceMs), ask);
  }
}
