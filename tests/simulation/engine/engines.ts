/**
 * The engines of a run, each with a ledger of its own. The checks read them as one: references, sandboxes and places
 * are unique over all engines. Homes and fences are not, so a check that knows the engine asks that ledger.
 */

import type { EngineRef, Generation, SandboxId } from "@sandlot/contract";
import type { Place } from "../../../packages/fleet/src/backend/backend.ts";
import type { Marker } from "../../../packages/fleet/src/backend/labels.ts";
import type { Departed, EngineLedger, SimObject, SimSlot, Workspace } from "./ledger.ts";

export class Engines {
  readonly all: readonly EngineLedger[];
  readonly #first: EngineLedger;

  constructor(all: readonly [EngineLedger, ...EngineLedger[]]) {
    this.all = all;
    this.#first = all[0];
  }

  /** Most runs have one engine, whatever its name. */
  of(engine: string): EngineLedger {
    return this.all.find(({ name }) => name === engine) ?? this.#first;
  }

  /** The engine that has the object, or had it. */
  engineOf(ref: EngineRef): string | null {
    return this.all.find(({ objects, departed }) => objects.has(ref) || departed.has(ref))?.name ?? null;
  }

  get objects(): ReadonlyMap<EngineRef, SimObject> {
    return this.#merged(({ objects }) => objects);
  }

  get slots(): ReadonlyMap<Place, SimSlot> {
    return this.#merged(({ slots }) => slots);
  }

  get markers(): ReadonlyMap<SandboxId, ReadonlyMap<Generation, Marker>> {
    return this.#merged(({ markers }) => markers);
  }

  get departed(): ReadonlyMap<EngineRef, Departed> {
    return this.#merged(({ departed }) => departed);
  }

  /** Everything that any engine has at home for a thread. */
  get homes(): ReadonlyMap<string, Workspace> {
    if (this.all.length === 1) return this.#first.homes;
    const homes = new Map<string, Workspace>();
    for (const ledger of this.all)
      for (const [owner, { tokens }] of ledger.homes)
        homes.set(owner, { owner, tokens: new Set([...(homes.get(owner)?.tokens ?? []), ...tokens]) });
    return homes;
  }

  /** The latest generation that has used a thread's workspace on any engine. */
  get fences(): ReadonlyMap<string, number> {
    if (this.all.length === 1) return this.#first.fences;
    const fences = new Map<string, number>();
    for (const ledger of this.all)
      for (const [owner, generation] of ledger.fences) fences.set(owner, Math.max(generation, fences.get(owner) ?? 0));
    return fences;
  }

  crash(object: SimObject): void {
    this.#ledgerOf(object).crash(object);
  }

  crashQuietly(object: SimObject): void {
    this.#ledgerOf(object).crashQuietly(object);
  }

  #ledgerOf({ ref }: SimObject): EngineLedger {
    return this.of(this.engineOf(ref) ?? "");
  }

  #merged<K, V>(mapOf: (ledger: EngineLedger) => ReadonlyMap<K, V>): ReadonlyMap<K, V> {
    return this.all.length === 1 ? mapOf(this.#first) : new Map(this.all.flatMap((ledger) => [...mapOf(ledger)]));
  }
}
