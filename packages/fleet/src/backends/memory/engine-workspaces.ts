/**
 * Homes, slots and markers of the engine in memory, which outlive its sandboxes.
 *
 * Invariants
 * - A workspace is one directory node, moved as a whole between its home and a slot; it is never copied.
 * - `stamps` holds the highest generation that has used a workspace. It outlives the workspace: an older generation
 *   changes nothing, not even after a purge.
 * - A slot is never used again. It goes when it holds no workspace and its sandbox is gone.
 * - A quarantined workspace stays there until a person has looked at it; no code here reads it again.
 */

import {
  type FleetId,
  type Generation,
  HOME_DIRECTORY,
  type SandboxId,
  SandlotError,
  type ThreadId,
  type UserId,
} from "@sandlot/contract";
import type { Place, WorkspaceSight, WorkspaceSpot } from "../../backend/backend.ts";
import type { Marker } from "../../backend/labels.ts";
import { type DirectoryNode, makeDirectory, makeWorkspace, withHome } from "./files/node.ts";

/** The name of the workspace below a slot, and so below `/mnt`. */
const USER_DATA = "user-data";

type SlotPlace = Exclude<Place, "home">;

interface Slot {
  readonly directory: DirectoryNode;
  /** Its sandbox still exists, so the slot is its `/mnt`. */
  mounted: boolean;
  /** The thread whose workspace is in the slot. */
  tenant: string | null;
}

/** How many of each there are. */
export interface Leftovers {
  readonly homes: number;
  readonly slots: number;
  readonly markers: number;
  readonly quarantined: number;
}

/** The last user of a workspace. Generations may repeat after a loss of the store, so the sandbox id is a part. */
interface Use {
  readonly sandboxId: SandboxId;
  readonly generation: Generation;
}

function useOf({ sandboxId, generation }: Use): Use {
  return { sandboxId, generation };
}

export class EngineWorkspaces {
  readonly #now: () => number;
  readonly #homes = new Map<string, DirectoryNode>();
  readonly #slots = new Map<string, Slot>();
  readonly #stamps = new Map<string, Use>();
  readonly #markers = new Map<string, Map<Generation, Marker>>();
  readonly #quarantine = new Map<string, DirectoryNode>();

  constructor(now: () => number) {
    this.#now = now;
  }

  /**
   * A new `/mnt` for a thread's sandbox, with the thread's home. A sandbox of an older generation, whose create landed
   * late, gets an empty workspace without a thread: it will be unmade, and until then it reaches none of the thread's
   * files.
   */
  mountHome(fleet: FleetId, marker: Marker): { mnt: DirectoryNode; workspace: "existing" | "new" } {
    const key = workspaceKey(fleet, marker);
    const existing = this.#homes.get(key);
    const mnt = this.#makeMount();
    if (this.#isStale(key, marker)) mnt.entries.set(USER_DATA, makeWorkspace(this.#now()));
    else {
      const home = existing === undefined ? makeWorkspace(this.#now()) : withHome(existing, this.#now());
      this.#homes.set(key, home);
      this.#stamps.set(key, useOf(marker));
      mnt.entries.set(USER_DATA, home);
    }
    return { mnt, workspace: existing === undefined ? "new" : "existing" };
  }

  /** A new `/mnt` for a blank: empty, so that a workspace can be moved in. */
  makeSlot(fleet: FleetId, sandboxId: SandboxId, generation: Generation): { mnt: DirectoryNode; place: SlotPlace } {
    const place: SlotPlace = `slot:${sandboxId}-${generation}`;
    if (this.#slots.has(slotKey(fleet, place))) throw new SandlotError("file_exists", { path: place });
    const mnt = this.#makeMount();
    this.#slots.set(slotKey(fleet, place), { directory: mnt, mounted: true, tenant: null });
    return { mnt, place };
  }

  /** The sandbox is gone. A slot that still holds a workspace waits for `moveHome` or `purge`. */
  unmount(fleet: FleetId, place: Place): void {
    const slot = place === "home" ? undefined : this.#slots.get(slotKey(fleet, place));
    if (slot === undefined || place === "home") return;
    slot.mounted = false;
    this.#dropIfOver(fleet, place);
  }

  look(fleet: FleetId, spot: WorkspaceSpot): WorkspaceSight {
    const key = workspaceKey(fleet, spot);
    const stale = this.#isStale(key, spot);
    return { home: this.#homes.has(key), slot: this.#inSlot(fleet, spot.place, key) !== undefined, stale };
  }

  owners(fleet: FleetId): readonly Pick<WorkspaceSpot, "user" | "thread">[] {
    const tenants = [...this.#slots.values()].flatMap(({ tenant }) => (tenant === null ? [] : [tenant]));
    return [...this.#homes.keys(), ...tenants].flatMap((key) => {
      const [whose, user, thread] = key.split("\n");
      return whose === fleet ? [{ user: user as UserId, thread: thread as ThreadId }] : [];
    });
  }

  latestGeneration(fleet: FleetId): number {
    let latest = 0;
    for (const [key, { generation }] of this.#stamps)
      if (key.split("\n")[0] === fleet) latest = Math.max(latest, generation);
    return latest;
  }

  isOccupied(fleet: FleetId, place: Place): boolean {
    return this.#inSlot(fleet, place) !== undefined;
  }

  moveIn(fleet: FleetId, spot: WorkspaceSpot): void {
    const key = workspaceKey(fleet, spot);
    this.#checkFence(key, spot);
    const slot = this.#freeSlot(fleet, spot);
    const home = this.#homes.get(key);
    if (home === undefined) throw new SandlotError("file_not_found", { path: homePath(spot) });
    this.#homes.delete(key);
    slot.directory.entries.set(USER_DATA, withHome(home, this.#now()));
    slot.tenant = key;
    this.#stamps.set(key, useOf(spot));
  }

  makeIn(fleet: FleetId, spot: WorkspaceSpot): void {
    const key = workspaceKey(fleet, spot);
    this.#checkFence(key, spot);
    const slot = this.#freeSlot(fleet, spot);
    if (this.#homes.has(key)) throw new SandlotError("file_exists", { path: homePath(spot) });
    slot.directory.entries.set(USER_DATA, makeWorkspace(this.#now()));
    slot.tenant = key;
    this.#stamps.set(key, useOf(spot));
  }

  moveHome(fleet: FleetId, spot: WorkspaceSpot): void {
    const { user, thread, sandboxId, place } = spot;
    const key = workspaceKey(fleet, spot);
    this.#checkFence(key, spot);
    const workspace = this.#inSlot(fleet, place, key);
    if (place === "home" || workspace === undefined) throw new SandlotError("file_not_found", { path: place });
    if (this.#homes.has(key)) throw new SandlotError("workspace_conflict", { user, thread, sandboxId });
    this.#vacate(fleet, sandboxId, place);
    this.#homes.set(key, workspace);
    this.#stamps.set(key, useOf(spot));
  }

  quarantine(fleet: FleetId, { sandboxId, place }: WorkspaceSpot): void {
    const workspace = this.#inSlot(fleet, place);
    if (place === "home" || workspace === undefined) return;
    this.#vacate(fleet, sandboxId, place);
    this.#quarantine.set(slotKey(fleet, place), workspace);
  }

  purge(fleet: FleetId, spot: WorkspaceSpot): void {
    const key = workspaceKey(fleet, spot);
    this.#checkFence(key, spot);
    const inSlot = this.#inSlot(fleet, spot.place, key) !== undefined;
    if (inSlot && spot.place !== "home") this.#vacate(fleet, spot.sandboxId, spot.place);
    this.#homes.delete(key);
    this.#stamps.set(key, useOf(spot));
  }

  emptyHome(fleet: FleetId, spot: WorkspaceSpot): void {
    const key = workspaceKey(fleet, spot);
    this.#checkFence(key, spot);
    const workspace = this.#homes.get(key);
    if (workspace === undefined) return;
    workspace.entries.delete(HOME_DIRECTORY);
    withHome(workspace, this.#now());
  }

  /** The workspace where it is: at home, or in a slot. */
  present(fleet: FleetId, owner: Pick<WorkspaceSpot, "user" | "thread">): DirectoryNode | undefined {
    const key = workspaceKey(fleet, owner);
    const slot = [...this.#slots.values()].find(({ tenant }) => tenant === key);
    const node = this.#homes.get(key) ?? slot?.directory.entries.get(USER_DATA);
    return node?.kind === "directory" ? node : undefined;
  }

  /** Refuses a stale generation. */
  checkFence(fleet: FleetId, spot: WorkspaceSpot): void {
    this.#checkFence(workspaceKey(fleet, spot), spot);
  }

  /** The workspace at home, for a change under this spot's generation. A thread without one gets an empty one. */
  home(fleet: FleetId, spot: WorkspaceSpot): DirectoryNode {
    const key = workspaceKey(fleet, spot);
    this.#checkFence(key, spot);
    const present = this.present(fleet, spot);
    if (present !== undefined && !this.#homes.has(key))
      throw new SandlotError("file_not_found", { path: homePath(spot) });
    const home = present ?? makeWorkspace(this.#now());
    this.#homes.set(key, home);
    this.#stamps.set(key, useOf(spot));
    return home;
  }

  /** A workspace that was built aside. Only for a thread without one. */
  putHome(fleet: FleetId, owner: Pick<WorkspaceSpot, "user" | "thread">, workspace: DirectoryNode): void {
    this.#homes.set(workspaceKey(fleet, owner), workspace);
  }

  writeMarker(fleet: FleetId, marker: Marker): void {
    const key = markerKey(fleet, marker.sandboxId);
    const markers = this.#markers.get(key) ?? new Map<Generation, Marker>();
    const before = markers.get(marker.generation);
    if (before !== undefined && before.token !== marker.token)
      throw new SandlotError("file_exists", { path: `markers:${marker.sandboxId}` });
    markers.set(marker.generation, marker);
    this.#markers.set(key, markers);
  }

  markers(fleet: FleetId, sandboxId: SandboxId): readonly Marker[] {
    const markers = this.#markers.get(markerKey(fleet, sandboxId))?.values() ?? [];
    return [...markers].sort((a, b) => a.generation - b.generation);
  }

  dropMarker(fleet: FleetId, sandboxId: SandboxId, generation: Generation): void {
    const markers = this.#markers.get(markerKey(fleet, sandboxId));
    markers?.delete(generation);
    if (markers?.size === 0) this.#markers.delete(markerKey(fleet, sandboxId));
  }

  dropMarkers(fleet: FleetId, sandboxId: SandboxId): void {
    this.#markers.delete(markerKey(fleet, sandboxId));
  }

  /** For tests that check for leftovers. */
  counts(): Leftovers {
    const { size: homes } = this.#homes;
    return { homes, slots: this.#slots.size, markers: this.#markers.size, quarantined: this.#quarantine.size };
  }

  /** Whether another sandbox has used the workspace in this generation, or one in a later. */
  #isStale(key: string, { sandboxId, generation }: Use): boolean {
    const last = this.#stamps.get(key);
    if (last === undefined || last.generation < generation) return false;
    return last.generation > generation || last.sandboxId !== sandboxId;
  }

  /** Refuses a stale generation. The stamp is set by the step that succeeds. */
  #checkFence(key: string, { sandboxId, generation }: Use): void {
    const current = this.#stamps.get(key)?.generation ?? null;
    if (this.#isStale(key, { sandboxId, generation }))
      throw new SandlotError("stale_generation", { sandboxId, generation, current });
  }

  #freeSlot(fleet: FleetId, { place }: WorkspaceSpot): Slot {
    const slot = place === "home" ? undefined : this.#slots.get(slotKey(fleet, place));
    if (slot === undefined) throw new SandlotError("file_not_found", { path: place });
    if (slot.directory.entries.has(USER_DATA)) throw new SandlotError("file_exists", { path: `${place}/${USER_DATA}` });
    return slot;
  }

  /** The workspace in a slot: of any thread, or only of this tenant. */
  #inSlot(fleet: FleetId, place: Place, tenant?: string): DirectoryNode | undefined {
    const slot = place === "home" ? undefined : this.#slots.get(slotKey(fleet, place));
    if (tenant !== undefined && slot?.tenant !== tenant) return undefined;
    const node = slot?.directory.entries.get(USER_DATA);
    return node?.kind === "directory" ? node : undefined;
  }

  /** Takes the workspace out of a slot. Never while processes use it. */
  #vacate(fleet: FleetId, sandboxId: SandboxId, place: SlotPlace): void {
    const slot = this.#slots.get(slotKey(fleet, place));
    if (slot === undefined) return;
    if (slot.mounted && slot.directory.entries.has(USER_DATA)) {
      throw new SandlotError("sandbox_in_use", { sandboxId, holders: ["its own processes"] });
    }
    slot.directory.entries.delete(USER_DATA);
    slot.tenant = null;
    this.#dropIfOver(fleet, place);
  }

  #dropIfOver(fleet: FleetId, place: SlotPlace): void {
    const key = slotKey(fleet, place);
    const slot = this.#slots.get(key);
    if (slot !== undefined && !slot.mounted && slot.directory.entries.size === 0) this.#slots.delete(key);
  }

  #makeMount(): DirectoryNode {
    return makeDirectory(this.#now(), { pinned: true, sealed: true });
  }
}

function workspaceKey(fleet: FleetId, { user, thread }: Pick<WorkspaceSpot, "user" | "thread">): string {
  return `${fleet}\n${user}\n${thread}`;
}

function slotKey(fleet: FleetId, place: SlotPlace): string {
  return `${fleet}\n${place}`;
}

function markerKey(fleet: FleetId, sandboxId: SandboxId): string {
  return `${fleet}\n${sandboxId}`;
}

/** The name of a home in errors. */
function homePath({ user, thread }: WorkspaceSpot): string {
  return `home:${user}/${thread}`;
}
