/**
 * The simulated engine: everything that exists outside the fleet, and the effect of each request. It behaves like
 * Docker: it creates every requested object, however late, even when its requester has gone.
 *
 * All methods are effects: they happen at one moment. `sim-backend.ts` decides when they happen; `checks/` decides
 * whether they should have.
 *
 * Words
 * - A *workspace* is a directory; it keeps its identity when it is moved, and an object that mounts it keeps seeing it.
 * - *Remains* are what is left of a sandbox whose process is gone while its slot still has a workspace in it.
 */

import {
  type EngineRef,
  type FleetId,
  type Generation,
  type SandboxId,
  SandlotError,
  type Token,
} from "@sandlot/contract";
import type {
  Created,
  CreateSpec,
  Credentials,
  EngineObject,
  Place,
  Target,
  WorkspaceSight,
  WorkspaceSpot,
} from "../../../packages/fleet/src/backend/backend.ts";
import type { Labels, Marker } from "../../../packages/fleet/src/backend/labels.ts";
import type { Liveness } from "../../../packages/fleet/src/world/world.ts";
import { conflict, staleGeneration } from "./refusals.ts";
import type { SimHistory } from "./sim-checkpoints.ts";

export interface Workspace {
  /** `user/thread`. */
  readonly owner: string;
  /** Its content, by the token of each write. */
  readonly tokens: Set<string>;
}

export interface SimObject {
  readonly ref: EngineRef;
  readonly labels: Labels;
  readonly place: Place;
  readonly landedAt: number;
  /** The instance that requested it. */
  readonly madeBy: string;
  alive: boolean;
  diedAt: number | null;
  /** The credentials its daemon accepts. */
  generation: Generation;
  token: Token;
  /** The home it mounts; a blank's workspace is the one in its slot. */
  readonly mount: Workspace | null;
  /** Since when work runs inside without a lease. */
  busySince: number | null;
  /** When it last became idle. */
  idleSince: number;
  /** `user/thread` of every writer so far. */
  readonly writers: Set<string>;
  /** The plan of a plot: the next destroy takes effect much later; the object is busy after it reported to be idle. */
  readonly script: { destroyHangs: boolean; busyOnceAsked: boolean };
  readonly connections: Set<() => void>;
}

export interface SimSlot {
  readonly sandboxId: SandboxId;
  workspace: Workspace | null;
}

export interface Departed {
  readonly object: SimObject;
  readonly markers: ReadonlyMap<Generation, Marker>;
  readonly at: number;
}

export class EngineLedger {
  readonly name: string;
  readonly objects = new Map<EngineRef, SimObject>();
  readonly homes = new Map<string, Workspace>();
  readonly slots = new Map<Place, SimSlot>();
  readonly histories = new Map<string, SimHistory>();
  readonly markers = new Map<SandboxId, Map<Generation, Marker>>();
  /** Removed objects, with their markers and the time: earlier responses about them were true. */
  readonly departed = new Map<EngineRef, Departed>();
  /** The latest generation that has used a thread's workspace. */
  readonly fences = new Map<string, Generation>();
  /** When it did. */
  readonly fencedAt = new Map<string, number>();
  /** By which sandbox, in that generation. */
  readonly #fencedBy = new Map<string, SandboxId>();
  /** Destroyed objects that wait for their workspace to leave. */
  readonly #remains = new Set<EngineRef>();
  readonly #now: () => number;
  readonly #diedListeners = new Set<(object: SimObject) => void>();
  #refs = 0;

  constructor(now: () => number, name = "engine") {
    this.name = name;
    this.#now = now;
  }

  onDied(listener: (object: SimObject) => void): void {
    this.#diedListeners.add(listener);
  }

  /** `refused`: another sandbox had used the workspace before the request. */
  create(spec: CreateSpec, madeBy: string, refused = false): Created {
    const { labels, marker, generation, token } = spec;
    if (marker !== null && (refused || this.#hasTwin(marker)))
      throw staleGeneration(labels.sandboxId, generation, this.#fence(nameOf(marker)));
    this.#refs += 1;
    const ref = `${this.name}-${this.#refs}` as EngineRef;
    const place: Place = marker === null ? `slot:${labels.sandboxId}-${generation}` : "home";
    let workspace: Created["workspace"] = "none";
    let mount: Workspace | null = null;
    if (marker === null) this.slots.set(place, { sandboxId: labels.sandboxId, workspace: null });
    else {
      this.#putMarker(marker);
      const owner = nameOf(marker);
      workspace = this.homes.has(owner) ? "existing" : "new";
      // A create that lands late makes its container, but no second home for a workspace that has moved on.
      if (!this.isStale({ ...marker, place })) {
        mount = this.homes.get(owner) ?? { owner, tokens: new Set() };
        this.homes.set(owner, mount);
        this.#use(owner, marker);
      }
    }
    this.objects.set(ref, {
      ...{ ref, labels, place, mount, generation, token, madeBy },
      landedAt: this.#now(),
      alive: true,
      diedAt: null,
      busySince: null,
      script: { destroyHangs: false, busyOnceAsked: false },
      idleSince: this.#now(),
      writers: new Set(),
      connections: new Set(),
    });
    return { ref, place, workspace };
  }

  /** An object of another fleet, which ours must leave alone. */
  plant(fleet: FleetId, sandboxId: SandboxId): SimObject {
    const labels = { fleet, sandboxId, generation: 1, threadKey: null, blueprintHash: "other" } as unknown as Labels;
    const spec = { labels, marker: null, generation: 1, token: "other", blueprint: {} } as unknown as CreateSpec;
    const { ref } = this.create(spec, "another fleet");
    return this.objects.get(ref) as SimObject;
  }

  /** The object at this target, or the error that says why there is none. */
  reach(target: Target): SimObject {
    const object = this.objects.get(target.ref);
    const { sandboxId, generation } = target;
    if (object === undefined || !object.alive) {
      throw new SandlotError("sandbox_lost", { sandboxId, generation, reason: "crashed" });
    }
    if (object.generation !== generation || object.token !== target.token) {
      throw new SandlotError("stale_generation", { sandboxId, generation, current: object.generation });
    }
    return object;
  }

  rebind(target: Target, from: Credentials): void {
    const object = this.objects.get(target.ref);
    if (object?.alive === true && object.generation === from.generation && object.token === from.token) {
      object.generation = target.generation;
      object.token = target.token;
    } else this.reach(target);
  }

  probe(ref: EngineRef): Liveness {
    return this.objects.get(ref)?.alive === true ? "alive" : "dead";
  }

  destroy(ref: EngineRef): void {
    const object = this.objects.get(ref);
    if (object === undefined) return;
    if (object.alive) this.crash(object);
    this.#remains.add(ref);
    this.#tidy(object);
  }

  /** Its process ends, by itself or by a destroy; watchers of the engine may get an event. */
  crash(object: SimObject): void {
    if (!object.alive) return;
    this.#end(object);
    for (const listener of this.#diedListeners) listener(object);
  }

  /** As `crash`, but without an event and without a closed connection. */
  crashQuietly(object: SimObject): void {
    object.connections.clear();
    this.#end(object);
  }

  list(fleet: FleetId): readonly EngineObject[] {
    const listed: EngineObject[] = [];
    for (const object of this.objects.values()) {
      if (object.labels.fleet !== fleet) continue;
      const { ref, labels, place } = object;
      listed.push({ ref, labels, place, liveness: object.alive ? "alive" : "dead" });
    }
    return listed;
  }

  workspaceOf(object: SimObject): Workspace | null {
    return object.place === "home" ? object.mount : (this.slots.get(object.place)?.workspace ?? null);
  }

  /** A thread's workspace, wherever it is. */
  workspaceFor(owner: string): Workspace | null {
    const slot = [...this.slots.values()].find(({ workspace }) => workspace?.owner === owner);
    return this.homes.get(owner) ?? slot?.workspace ?? null;
  }

  /** The workspace at home, for a change by this spot. A thread without one gets an empty one. */
  homeFor(spot: WorkspaceSpot): Workspace {
    const owner = this.#fenced(spot);
    const home = this.homes.get(owner) ?? { owner, tokens: new Set<string>() };
    this.homes.set(owner, home);
    this.#use(owner, spot);
    return home;
  }

  /** While a restore is half done, no sandbox gets the workspace. */
  refuseHalfRestored(spot: Pick<WorkspaceSpot, "user" | "thread">): void {
    if (this.histories.get(nameOf(spot))?.unfinished == null) return;
    throw new SandlotError("create_failed", { backend: "simulated", problem: "a restore is not complete" });
  }

  // --- Workspaces

  /** A later generation has used the workspace, or another sandbox in the same one. */
  isStale(spot: WorkspaceSpot): boolean {
    const owner = nameOf(spot);
    const fence = this.#fence(owner);
    return fence === spot.generation ? this.#fencedBy.get(owner) !== spot.sandboxId : fence > spot.generation;
  }

  /** Another sandbox uses the workspace in the same generation, which a lost store and a clock that was set back give twice. */
  #hasTwin({ sandboxId, generation, ...thread }: Marker): boolean {
    const owner = nameOf(thread);
    return this.#fence(owner) === generation && this.#fencedBy.get(owner) !== sandboxId;
  }

  #use(owner: string, { sandboxId, generation }: Pick<WorkspaceSpot, "sandboxId" | "generation">): void {
    this.fences.set(owner, generation);
    this.#fencedBy.set(owner, sandboxId);
    this.fencedAt.set(owner, this.#now());
  }

  latestGeneration(): number {
    return Math.max(0, ...this.fences.values());
  }

  look(spot: WorkspaceSpot): WorkspaceSight {
    const stale = this.isStale(spot);
    return { home: this.homes.has(nameOf(spot)), slot: this.#slotOf(spot)?.workspace?.owner === nameOf(spot), stale };
  }

  /** Moves the slot's content out of reach, and returns it. */
  quarantine(spot: WorkspaceSpot): Workspace | null {
    const slot = this.#slotOf(spot);
    const aside = slot?.workspace ?? null;
    if (slot !== undefined) slot.workspace = null;
    this.#tidySandbox(spot.sandboxId);
    return aside;
  }

  moveIn(spot: WorkspaceSpot): void {
    const owner = this.#fenced(spot);
    this.refuseHalfRestored(spot);
    const slot = this.#slotOf(spot);
    const home = this.homes.get(owner);
    if (slot === undefined || home === undefined) throw new SandlotError("file_not_found", { path: spot.place });
    if (slot.workspace !== null) throw conflict(spot);
    slot.workspace = home;
    this.homes.delete(owner);
    this.#use(owner, spot);
  }

  makeIn(spot: WorkspaceSpot): void {
    const owner = this.#fenced(spot);
    const slot = this.#slotOf(spot);
    if (slot === undefined) throw new SandlotError("file_not_found", { path: spot.place });
    if (slot.workspace !== null || this.homes.has(owner)) throw new SandlotError("file_exists", { path: spot.place });
    slot.workspace = { owner, tokens: new Set() };
    this.#use(owner, spot);
  }

  moveHome(spot: WorkspaceSpot): void {
    const owner = this.#fenced(spot);
    const slot = this.#slotOf(spot);
    if (slot === undefined || slot.workspace === null) return;
    if (this.homes.has(owner)) throw conflict(spot);
    this.homes.set(owner, slot.workspace);
    slot.workspace = null;
    this.#use(owner, spot);
    this.#tidySandbox(spot.sandboxId);
  }

  /** The removed writes. */
  purge(spot: WorkspaceSpot): readonly Workspace[] {
    const owner = nameOf(spot);
    if (this.isStale(spot)) return [];
    const removed: Workspace[] = [];
    this.histories.delete(owner);
    const home = this.homes.get(owner);
    if (home !== undefined) removed.push(home);
    this.homes.delete(owner);
    const slot = this.#slotOf(spot);
    if (slot?.workspace != null) {
      removed.push(slot.workspace);
      slot.workspace = null;
    }
    this.#use(owner, spot);
    this.#tidySandbox(spot.sandboxId);
    return removed;
  }

  writeMarker(marker: Marker): void {
    // The marker is a file beside the sandbox; without the sandbox there is no place for it.
    if (!this.#hasAnything(marker.sandboxId)) throw new SandlotError("file_not_found", { path: marker.sandboxId });
    this.#putMarker(marker);
  }

  markersOf(sandboxId: SandboxId): readonly Marker[] {
    return [...(this.markers.get(sandboxId)?.values() ?? [])];
  }

  dropMarker(sandboxId: SandboxId, generation: Generation): void {
    const markers = this.markers.get(sandboxId);
    markers?.delete(generation);
    if (markers?.size === 0) this.markers.delete(sandboxId);
  }

  // --- Steps

  #end(object: SimObject): void {
    if (!object.alive) return;
    object.alive = false;
    object.diedAt = this.#now();
    object.busySince = null;
    for (const closed of [...object.connections]) closed();
    object.connections.clear();
  }

  /** Removes the rest of a destroyed object. A workspace in its slot is never removed: then remains stay. */
  #tidy(object: SimObject): void {
    if (this.slots.get(object.place)?.workspace != null) return;
    const markers = new Map(this.markers.get(object.labels.sandboxId));
    this.departed.set(object.ref, { object, markers, at: this.#now() });
    this.slots.delete(object.place);
    this.objects.delete(object.ref);
    this.#remains.delete(object.ref);
    if (!this.#hasAnything(object.labels.sandboxId)) this.markers.delete(object.labels.sandboxId);
  }

  #tidySandbox(sandboxId: SandboxId): void {
    for (const object of [...this.objects.values()]) {
      if (object.labels.sandboxId === sandboxId && this.#remains.has(object.ref)) this.#tidy(object);
    }
  }

  #hasAnything(sandboxId: SandboxId): boolean {
    for (const object of this.objects.values()) if (object.labels.sandboxId === sandboxId) return true;
    return false;
  }

  #slotOf(spot: WorkspaceSpot): SimSlot | undefined {
    return spot.place === "home" ? undefined : this.slots.get(spot.place);
  }

  #fenced(spot: WorkspaceSpot): string {
    const owner = nameOf(spot);
    if (!this.isStale(spot)) return owner;
    throw staleGeneration(spot.sandboxId, spot.generation, this.#fence(owner));
  }

  #fence(owner: string): number {
    return this.fences.get(owner) ?? 0;
  }

  #putMarker(marker: Marker): void {
    const markers = this.markers.get(marker.sandboxId) ?? new Map<Generation, Marker>();
    const before = markers.get(marker.generation);
    if (before !== undefined && before.token !== marker.token)
      throw new SandlotError("file_exists", { path: marker.sandboxId });
    this.markers.set(marker.sandboxId, markers.set(marker.generation, marker));
  }
}

export function nameOf(of: { readonly user: string; readonly thread: string }): string {
  return `${of.user}/${of.thread}`;
}
