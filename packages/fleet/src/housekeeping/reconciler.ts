/**
 * The reconciler: compares what the engine has with what the store knows (rules 3, 12, 16).
 *
 * - Of the fleet's own objects only; `list` shows no others.
 * - What no record knows is adopted if its marker and its daemon agree on the thread, else condemned, after a grace.
 *   What a newer generation of its thread has replaced goes at once.
 * - A record whose object is missing from a list proves nothing: the engine is asked, and only `dead` is dead.
 */

import { isSandlotError } from "@sandlot/contract";
import type { Backend, EngineObject } from "../backend/backend.ts";
import { type Marker, threadKeyOf } from "../backend/labels.ts";
import type { Membership } from "../membership/membership.ts";
import { aboutRecord } from "../observe/about.ts";
import type { EventBus } from "../observe/event-bus.ts";
import type { Retirement } from "../retirement/retirement.ts";
import type { Limits, Store } from "../store/store.ts";
import { within } from "../world/waiting.ts";
import type { World } from "../world/world.ts";
import { planReconcile } from "./plans.ts";
import { Sightings } from "./sightings.ts";

export interface ReconcilerParts {
  readonly world: World;
  readonly store: Store;
  readonly backend: Backend;
  readonly membership: Membership;
  readonly retirement: Retirement;
  readonly bus: EventBus;
  readonly limits: () => Limits;
  /** How long something may be in the engine without a record. */
  readonly graceMs: number;
  /** How long the engine may take for one answer. */
  readonly patienceMs: number;
}

export class Reconciler {
  readonly #parts: ReconcilerParts;
  readonly #unknown = new Sightings<string, string>();

  constructor(parts: ReconcilerParts) {
    this.#parts = parts;
  }

  async reconcile(): Promise<void> {
    const { world, store, backend, membership, graceMs } = this.#parts;
    if (!membership.mayJudge()) return;
    const objects = await this.#ask((signal) => backend.list({ consistent: false }, signal));
    const records = await store.list();
    if (!membership.mayJudge()) return;
    const plan = planReconcile(objects, records, ({ user, thread }) =>
      user === null || thread === null ? null : threadKeyOf(user, thread),
    );
    const seen = plan.unknown.map((object) => [object.ref, object.labels.sandboxId] as const);
    const unknownFor = this.#unknown.observe(seen, world.monotonicMs(), membership.sightSince());
    for (const object of plan.superseded) await this.#condemn(object, null);
    for (const object of plan.unknown)
      if ((unknownFor.get(object.ref) ?? 0) >= graceMs) await this.#adoptOrCondemn(object);
    for (const record of plan.missing) {
      const { ref } = record;
      if (ref !== null && (await this.#ask((signal) => backend.probe(ref, signal))) === "dead")
        await this.#parts.retirement.stopDead(record);
    }
  }

  /**
   * After the store was lost, and before anybody may acquire: every thread's sandbox that the engine shows is adopted,
   * or condemned under its thread's key so that its workspace is home before the thread is given another.
   * False when one could not be asked; then it must be tried again.
   */
  async recover(): Promise<boolean> {
    const { store, backend } = this.#parts;
    const objects = await this.#ask((signal) => backend.list({ consistent: true }, signal));
    const known = new Set((await store.list()).map(({ sandboxId }) => sandboxId));
    let settled = true;
    for (const object of objects) {
      if (object.labels.threadKey === null && object.place === "home") continue;
      if (!known.has(object.labels.sandboxId)) settled = (await this.#adoptOrCondemn(object)) && settled;
    }
    return settled;
  }

  /** False when the sandbox could not be asked whose it is. */
  async #adoptOrCondemn(object: EngineObject): Promise<boolean> {
    const { backend } = this.#parts;
    const markers = [...(await backend.workspaces.markers(object.labels.sandboxId))].sort(
      (a, b) => b.generation - a.generation,
    );
    const owner = await this.#ownerAmong(markers, object);
    if (owner === "unknown") return false;
    if (owner !== null && (await this.#adopt(object, owner))) return true;
    // Several markers and no daemon to ask: whose workspace is inside cannot be told, so nobody gets it.
    await this.#condemn(object, markers.length === 1 ? (markers[0] ?? null) : null);
    return true;
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

  async #adopt({ ref, place }: EngineObject, marker: Marker): Promise<boolean> {
    const { store, backend, bus, limits } = this.#parts;
    // An object that landed late may belong to a generation that its thread has long left behind.
    if ((await backend.workspaces.look({ ...marker, place })).stale) return false;
    const adopted = await store.adopt({ ...marker, backend: backend.name, ref, place, limits: limits() });
    if (adopted) bus.emit({ type: "sandbox-adopted", ...aboutRecord(marker) });
    return adopted;
  }

  async #condemn({ ref, place, labels }: EngineObject, marker: Marker | null): Promise<void> {
    const { store, backend, membership, retirement, world } = this.#parts;
    if (!membership.trusted()) return;
    const { sandboxId, blueprintHash } = labels;
    const record = await store.condemn({
      ...{ sandboxId, blueprintHash, ref, place, key: marker, backend: backend.name, actor: membership.instance },
      generation: marker?.generation ?? labels.generation,
      token: (marker?.token ?? world.randomHex(24)) as Marker["token"],
      blueprint: marker?.blueprint ?? "unknown",
    });
    if (record !== null) void retirement.drive(record);
  }

  #ask<T>(ask: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const { world, patienceMs } = this.#parts;
    return within(
      world,
      patienceMs,
      undefined,
      () => new Error(`the engine did not answer within ${patienceMs} ms`),
      ask,
    );
  }
}
