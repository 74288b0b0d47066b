/**
 * Workspaces on the disk of this machine, for every backend whose sandboxes run here. `layout.ts` lists the paths.
 *
 * One rename(2) moves a workspace, and only after its destination was recorded (`fence.ts`). So a process may be killed
 * between any two system calls: afterwards the workspace is in exactly one place.
 *
 * Invariants
 * - Every step runs under the locks of its thread and its slot, and is synchronous: processes and callers take turns.
 * - A move never overwrites: under the locks, the target was checked to be free.
 * - Only the inode that was put into a slot leaves it as a workspace. Everything else found there goes to quarantine.
 * - A workspace is at home, in a slot, or purged; it is never copied.
 */

import { closeSync, openSync } from "node:fs";
import {
  type Generation,
  type SandboxId,
  SandlotError,
  type ThreadKey,
  WORKSPACE_DIRECTORIES,
} from "@sandlot/contract";
import type { Place, WorkspaceSight, WorkspaceSpot, Workspaces } from "../../backend/backend.ts";
import { type Marker, threadKeyOf } from "../../backend/labels.ts";
import type { Markers } from "../../backend/markers.ts";
import { noRoomInOurWords } from "../../world/disk-trouble.ts";
import { OPEN_DIRECTORY } from "../descriptors.ts";
import { TENANT } from "./fence.ts";
import { WorkspaceHandle } from "./handle.ts";
import type { Owner } from "./homes.ts";
import { throwCheckpointsAway } from "./kept-checkpoints.ts";
import { type LateBinding, probeLateBinding, sweepProbes } from "./late-binding.ts";
import { parseSlotName, type SlotPlace, slotNameOf, slotPlace } from "./layout.ts";
import { markersIn } from "./markers.ts";
import { Moves, trashOwner } from "./moves.ts";
import { type DiskOptions, DiskParts } from "./parts.ts";
import type { Quarantined } from "./quarantine.ts";
import { Restoring } from "./restoring.ts";
import type { SlotInfo, SlotTenant } from "./slot-info.ts";
import type { MountPoint } from "./slots.ts";
import { latestGenerationOf, ownersOf } from "./survey.ts";
import type { Account } from "./tree.ts";
import type { CopyLimits, CopyOutcome } from "./tree-copy.ts";

/** How long a purged thread is remembered. No older generation comes back after that time. */
const FENCE_RETENTION_MS = 7 * 24 * 3_600_000;
const NOTHING_COPIED: CopyOutcome = { fileCount: 0, sizeBytes: 0, skipped: [] };

export class DiskWorkspaces implements Workspaces {
  /** Beside the workspaces, outside every mount. */
  readonly markers: Markers;
  /** For restores and seeds, which work on the workspace at home. */
  readonly restoring: Restoring;
  readonly #parts: DiskParts;
  readonly #moves: Moves;

  /** Creates missing directories of the fleet. */
  constructor(options: DiskOptions) {
    this.#parts = new DiskParts(options);
    this.#moves = new Moves(this.#parts);
    this.markers = markersIn(this.#parts.markers);
    this.restoring = new Restoring(this.#parts, this.#moves);
  }

  owners(): Promise<readonly Owner[]> {
    return ownersOf(this.#parts.homes);
  }

  latestGeneration(onProblem: (problem: string) => void = () => {}): Promise<number> {
    return latestGenerationOf(this.#parts.homes, onProblem);
  }

  look(spot: WorkspaceSpot): Promise<WorkspaceSight> {
    const { homes } = this.#parts;
    return this.#step(spot, (thread, slot) => ({
      home: homes.has(thread),
      slot: this.#moves.tenancy(slot, thread) !== null,
      stale: homes.isStale(thread, spot),
    }));
  }

  async moveIn(spot: WorkspaceSpot): Promise<void> {
    const { homes, owners } = this.#parts;
    const owner = owners.ofSlot(slotNameOf(spot.place));
    for (;;) {
      const toGive = await this.#step(spot, (thread, slot) => {
        homes.checkFence(thread, spot);
        homes.checkRestored(thread);
        if (!owners.isOf(thread, owner)) return thread;
        const free = this.#moves.freeSlot(slot);
        const workspace = homes.ready(thread);
        if (workspace === undefined) throw new SandlotError("file_not_found", { path: `home:${thread}` });
        this.#moves.putIn(thread, spot, free, workspace);
        return null;
      });
      if (toGive === null) return;
      // At home, out of every sandbox's reach.
      await owners.give(toGive, owner, () => homes.checkFence(toGive, spot));
    }
  }

  makeIn(spot: WorkspaceSpot): Promise<void> {
    const { homes, owners } = this.#parts;
    return this.#step(spot, (thread, slot) => {
      homes.checkFence(thread, spot);
      homes.checkRestored(thread);
      const free = this.#moves.freeSlot(slot);
      if (homes.has(thread)) throw new SandlotError("file_exists", { path: `home:${thread}` });
      homes.open(thread, spot, free);
      this.#moves.putIn(thread, spot, free, homes.spare(free) ?? homes.draft(thread, owners.ofSlot(free)));
    });
  }

  async moveHome(spot: WorkspaceSpot): Promise<void> {
    const { homes, trash } = this.#parts;
    const left = await this.#step(spot, (thread, slot) => {
      homes.checkFence(thread, spot);
      const tenant = this.#moves.tenancy(slot, thread);
      if (slot === null || tenant === null) throw new SandlotError("file_not_found", { path: spot.place });
      const { user, thread: name, sandboxId } = spot;
      if (homes.has(thread)) throw new SandlotError("workspace_conflict", { user, thread: name, sandboxId });
      this.#moves.checkReleased(slot);
      this.#moves.bringHome(thread, spot, slot, tenant);
      this.#moves.dropIfOver(slot);
      return { thread, slot };
    });
    // The sandbox's record is removed next. After that the slot would not be searched for the workspace.
    await homes.sync(left.thread);
    await trash.empty(trashOwner(left.slot));
  }

  async quarantine({ place }: WorkspaceSpot): Promise<void> {
    const slot = slotNameOf(place);
    if (slot === null) return;
    await this.#stepOfSlot(slot, () => {
      if (this.#parts.slots.hasContent(slot) || this.#parts.slots.tenant(slot) !== null) {
        this.#moves.checkReleased(slot);
        this.#moves.setAside(slot, "its thread has a later sandbox, or lives on another engine");
      }
      this.#moves.dropIfOver(slot);
    });
    await this.#parts.trash.empty(trashOwner(slot));
  }

  async purge(spot: WorkspaceSpot): Promise<void> {
    const { homes, owners, trash } = this.#parts;
    const takeAway = (thread: ThreadKey, slot: string | null) => {
      homes.checkFence(thread, spot);
      this.#moves.throwAway(thread, slot);
      throwCheckpointsAway(this.#parts.layout.root, trash, spot.user, thread);
      homes.open(thread, null);
      homes.fence(thread, spot, "none");
      if (slot !== null) this.#moves.dropIfOver(slot);
      return { thread, slot };
    };
    const gone =
      (await this.#step(spot, (thread, slot) => (owners.isGiving(thread) ? null : takeAway(thread, slot)))) ??
      (await owners.alone(threadKeyOf(spot.user, spot.thread), () => this.#step(spot, takeAway)));
    await trash.empty(gone.thread);
    if (gone.slot !== null) await trash.empty(trashOwner(gone.slot));
    await homes.sync(gone.thread);
  }

  async emptyHome(spot: WorkspaceSpot): Promise<void> {
    const { homes, trash } = this.#parts;
    const emptied = await this.#step(spot, (thread) => {
      homes.checkFence(thread, spot);
      homes.empty(thread);
      return thread;
    });
    await trash.empty(emptied);
  }

  /** Removes the markers of a sandbox that is gone and had its workspace mounted from home. */
  async dropMarkers(sandboxId: SandboxId): Promise<void> {
    this.#parts.markers.close(sandboxId);
  }

  /** Every sandbox with a marker directory: one that the engine does not have was killed while being created. */
  async markedSandboxes(): Promise<readonly SandboxId[]> {
    return this.#parts.markers.sandboxes();
  }

  /**
   * For a thread's own sandbox: writes its marker, and returns the workspace at home, created if missing. An older
   * generation, whose create landed late, is refused, and nothing is created for it.
   */
  async prepareHome(
    marker: Marker,
    { owner }: { readonly owner?: Account } = {},
  ): Promise<{ readonly userDataPath: string; readonly existing: boolean }> {
    const { homes, layout, markers, owners } = this.#parts;
    const thread = threadKeyOf(marker.user, marker.thread);
    const prepared = await this.#locked([thread], `home:${thread}`, () => {
      homes.checkFence(thread, marker);
      homes.checkRestored(thread);
      markers.open(marker.sandboxId);
      try {
        markers.write(marker);
        homes.open(thread, marker);
        const existing = this.#moves.haveHome(thread, marker);
        return { userDataPath: layout.userData(thread), existing };
      } catch (error) {
        markers.close(marker.sandboxId);
        throw error;
      }
    });
    await owners.give(thread, owner, () => homes.checkFence(thread, marker));
    return prepared;
  }

  /** For a blank: an empty `/mnt` that a workspace can be moved into later. */
  async prepareSlot(
    sandboxId: SandboxId,
    generation: Generation,
    options: { readonly mountPoints?: readonly MountPoint[]; readonly owner?: Account } = {},
  ): Promise<{ readonly place: SlotPlace; readonly mntPath: string }> {
    const { homes, layout, markers, owners, slots, trash } = this.#parts;
    const place = slotPlace(sandboxId, generation);
    const name = place.slice("slot:".length);
    return this.#locked([name], place, () => {
      if (slots.isThere(name)) throw new SandlotError("file_exists", { path: place });
      try {
        slots.make(name, options.mountPoints ?? []);
        homes.makeSpare(name, owners.note(name, options.owner));
        markers.openAhead(sandboxId);
      } catch (error) {
        trash.throwAway(layout.slot(name), trashOwner(name));
        throw error;
      }
      return { place, mntPath: layout.mnt(name) };
    });
  }

  /**
   * No process of the sandbox is left. Removes its slot and its markers; or, when a workspace is in it, only notes that
   * it may leave: `occupied`. Then slot and markers are removed with the workspace. A missing slot is fine.
   */
  async dropSlot(place: Place): Promise<"dropped" | "occupied"> {
    const slot = slotNameOf(place);
    if (slot === null) return "dropped";
    const isOver = await this.#stepOfSlot(slot, () => {
      this.#parts.slots.release(slot);
      return this.#moves.dropIfOver(slot);
    });
    await this.#parts.trash.empty(trashOwner(slot));
    return isOver === false ? "occupied" : "dropped";
  }

  /** Whose workspace is in a slot. */
  async slotTenant(place: Place): Promise<SlotTenant | null> {
    const slot = slotNameOf(place);
    if (slot === null) return null;
    return (await this.#stepOfSlot(slot, () => this.#describeTenant(slot))) ?? null;
  }

  async slots(): Promise<readonly SlotInfo[]> {
    const infos: SlotInfo[] = [];
    for (const name of this.#parts.slots.names()) {
      const info = await this.#stepOfSlot(name, () => ({
        tenant: this.#describeTenant(name),
        released: this.#parts.slots.isReleased(name),
      }));
      const parsed = parseSlotName(name);
      if (info !== null && parsed !== null) infos.push({ place: `slot:${name}`, ...parsed, ...info });
    }
    return infos;
  }

  /**
   * A thread's workspace, wherever it is, held by a descriptor that stays valid while the workspace moves. `null` when
   * there is none; `make` then creates an empty one at home. To change anything, `make` or `change` is needed.
   */
  async locate(
    owner: Owner,
    options: { readonly make?: boolean; readonly change?: boolean } = {},
  ): Promise<WorkspaceHandle | null> {
    const { make = false, change = make } = options;
    return this.#reach(threadKeyOf(owner.user, owner.thread), make ? owner : null, change);
  }

  /** With `owner`, an empty workspace is created where there is none. */
  async #reach(thread: ThreadKey, owner: Owner | null, isChange = false): Promise<WorkspaceHandle | null> {
    const { homes, slots, trash, owners, world } = this.#parts;
    const descriptor = await this.#locked([thread], `home:${thread}`, () => {
      if (isChange) homes.checkRestored(thread);
      const slot = homes.slotOf(thread);
      const tenant = this.#moves.tenancy(slot, thread);
      if (slot !== null && tenant !== null) return slots.reach(slot, tenant, (path) => openSync(path, OPEN_DIRECTORY));
      if (owner !== null && !homes.has(thread)) {
        homes.open(thread, owner);
        this.#moves.haveHome(thread, homes.lastUse(thread));
      }
      return homes.descriptor(thread);
    });
    if (descriptor === undefined) return null;
    const commit = (work: () => void) =>
      this.#locked([thread], `home:${thread}`, () => {
        homes.checkRestored(thread);
        work();
      });
    const account = () => owners.ofFiles(thread, descriptor);
    return new WorkspaceHandle(descriptor, { account, world, trash, commit });
  }

  /**
   * Gives a thread without a workspace a copy of another's. All or nothing: the copy is built aside, and moved home
   * when complete. A thread that has a workspace, here or in a sandbox, keeps it: `thread_exists`.
   */
  async branch(from: Owner, to: Owner, limits?: CopyLimits): Promise<CopyOutcome> {
    const { path, descriptor } = await this.restoring.beginSeed(to);
    closeSync(descriptor);
    try {
      const source = await this.locate(from);
      // Not with `using`: processes of tests run this file on a Node that does not support it.
      const copied = source === null ? NOTHING_COPIED : await source.copyTo(path, limits).finally(() => source.close());
      await this.restoring.endSeed(to, path);
      return copied;
    } catch (error) {
      await this.restoring.drop(to, path);
      throw noRoomInOurWords(error, `home:${threadKeyOf(to.user, to.thread)}`);
    }
  }

  /** Whether workspaces can be moved between homes and slots on this machine, by trying. */
  probeLateBinding(): LateBinding {
    return probeLateBinding(this.#parts);
  }

  /** What is kept for the operator; the first thousand. */
  quarantined(): { readonly entries: readonly Quarantined[]; readonly truncated: boolean } {
    return this.#parts.quarantine.list();
  }

  removeQuarantined(name: string): Promise<void> {
    return this.#parts.quarantine.remove(name);
  }

  /** Removes what a crash left in the trash, and forgets threads that were purged long ago. */
  async sweep(): Promise<void> {
    const { homes, locks, markers, trash, world } = this.#parts;
    const before = world.wallMs() - FENCE_RETENTION_MS;
    for await (const thread of homes.threads()) {
      homes.sweepAside(thread, world);
      const handle = await this.#reach(thread, null);
      if (handle === null) continue;
      try {
        for (const directory of WORKSPACE_DIRECTORIES) await handle.files.sweep(directory);
      } finally {
        handle.close();
      }
    }
    for await (const thread of homes.threads())
      if (homes.isOver(thread, before)) await locks.hold([thread], () => homes.forget(thread, before));
    await sweepProbes(this.#parts);
    markers.sweep();
    await trash.empty();
  }

  close(): void {
    this.#parts.locks.close();
  }

  #step<T>(spot: WorkspaceSpot, work: (thread: ThreadKey, slot: string | null) => T): Promise<T> {
    const thread = threadKeyOf(spot.user, spot.thread);
    const slot = slotNameOf(spot.place);
    return this.#locked(slot === null ? [thread] : [thread, slot], spot.place, () => work(thread, slot));
  }

  /** A step about a slot with any tenant. `null` when there is no such slot. */
  async #stepOfSlot<T>(slot: string, work: () => T): Promise<T | null> {
    const { layout, slots } = this.#parts;
    for (;;) {
      const tenant = TENANT.read(layout.slot(slot))?.thread;
      const outcome = await this.#locked(tenant === undefined ? [slot] : [slot, tenant], `slot:${slot}`, () => {
        if (!slots.isThere(slot)) return { value: null };
        // The tenant changed before the locks were ours: then they are the wrong ones.
        return TENANT.read(layout.slot(slot))?.thread === tenant ? { value: work() } : null;
      });
      if (outcome !== null) return outcome.value;
    }
  }

  /** `path` is its name in errors. */
  async #locked<T>(names: readonly string[], path: string, work: () => T): Promise<T> {
    try {
      return await this.#parts.locks.hold(names, work);
    } catch (error) {
      throw noRoomInOurWords(error, path);
    }
  }

  #describeTenant(slot: string): SlotTenant | null {
    const tenant = this.#parts.slots.tenant(slot);
    if (tenant === null) return null;
    const { thread: threadKey, generation } = tenant;
    return { threadKey, generation, owner: this.#parts.homes.owner(threadKey) };
  }
}
