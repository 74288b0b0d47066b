/**
 * Workspaces on a volume that gateways and pods of several machines share. `layout.ts` lists the paths.
 *
 * There are no locks: those of a network file system end with a lease. The name is the fence instead. Every move names
 * its exact source, which contains the last user's generation, and goes to a parent that exists only while its sandbox
 * does. A gateway that was paused for long finds its source or its target gone (ENOENT), looks again, and sees that it
 * is stale. A rename whose answer was lost is settled by looking at both ends.
 *
 * Invariants
 * - A move is recorded before it is made, and the records are read again after that. So of two that move one workspace,
 *   one succeeds, and a later look shows where.
 * - A workspace is at home, in a slot, or purged; it is never copied, and a rename never replaces one.
 * - Only the inode that was sent to a slot leaves it as a workspace. Everything else found there goes to quarantine.
 * - This class runs in a process of its own (`volume-main.ts`): a server that does not respond stops that one only.
 */

import { chmod, mkdir } from "node:fs/promises";
import { join } from "node:path";
import { type Generation, HOME_DIRECTORY, SandlotError, type ThreadKey } from "@sandlot/contract";
import type { Place, WorkspaceSight, WorkspaceSpot, Workspaces } from "../../../../backend/backend.ts";
import { threadKeyOf } from "../../../../backend/labels.ts";
import { WorkspaceHandle } from "../../../../host/workspaces/handle.ts";
import type { Owner } from "../../../../host/workspaces/homes.ts";
import { slotNameOf } from "../../../../host/workspaces/layout.ts";
import { Quarantine } from "../../../../host/workspaces/quarantine.ts";
import { Trash } from "../../../../host/workspaces/trash.ts";
import { repairTree } from "../../../../host/workspaces/tree.ts";
import type { CopyLimits, CopyOutcome } from "../../../../host/workspaces/tree-copy.ts";
import { inOurWords, isMissing, noRoomInOurWords } from "../../../../world/disk-trouble.ts";
import type { World } from "../../../../world/world.ts";
import { branchWorkspace } from "./branch-workspace.ts";
import { atName, goneName, homeName, PASSABLE, type SlotTenant, VolumeLayout, type VolumeUse } from "./layout.ts";
import { locateWorkspace } from "./locate-workspace.ts";
import type { HomeRecord, ThreadRecords } from "./thread-records.ts";
import { VolumeSlots } from "./volume-slots.ts";
import { sweepVolume } from "./volume-sweep.ts";
import { VolumeThreads } from "./volume-threads.ts";
import { markArrival, moveTo } from "./volume-tree.ts";

export interface VolumeOptions {
  /** The fleet's folder on the volume; created when missing. */
  readonly root: string;
  readonly world: World;
  /** A failure of tidying up, which no call can report. */
  readonly onProblem?: (problem: string) => void;
}

/** Lost races change the records, and they can change only a few times. */
const LOOKS_MAX = 5;

export class VolumeWorkspaces implements Workspaces {
  readonly layout: VolumeLayout;
  readonly threads: VolumeThreads;
  readonly slots: VolumeSlots;
  readonly trash: Trash;
  readonly quarantined: Quarantine;
  readonly world: World;
  readonly #onProblem: (problem: string) => void;

  constructor({ root, world, onProblem = () => {} }: VolumeOptions) {
    const layout = new VolumeLayout(root);
    this.layout = layout;
    this.world = world;
    this.trash = new Trash(layout.trash, world);
    this.quarantined = new Quarantine(layout, this.trash, world);
    const parts = { layout, world, trash: this.trash, quarantine: this.quarantined };
    this.threads = new VolumeThreads(parts);
    this.slots = new VolumeSlots(parts);
    this.#onProblem = onProblem;
  }

  /** Creates missing directories of the fleet. */
  async open(): Promise<void> {
    const { root, threads, slots, released, drafts, quarantine, trash } = this.layout;
    for (const path of [root, threads, slots, released, drafts, quarantine, trash]) {
      await mkdir(path, { recursive: true });
      await chmod(path, [quarantine, trash, released, drafts].includes(path) ? 0o700 : PASSABLE);
    }
  }

  async owners(): Promise<readonly Owner[]> {
    const owners: Owner[] = [];
    for await (const thread of this.threads.threads()) {
      const hasOne = (await this.threads.names(thread)).some(({ kind }) => kind !== "gone");
      const owner = hasOne ? await this.threads.owner(thread) : null;
      if (owner !== null) owners.push(owner);
    }
    return owners;
  }

  async latestGeneration(): Promise<number> {
    let latest = 0;
    for await (const thread of this.threads.threads())
      for (const { generation } of await this.threads.names(thread)) latest = Math.max(latest, generation);
    return latest;
  }

  async look(spot: WorkspaceSpot): Promise<WorkspaceSight> {
    const { thread, slot } = keysOf(spot);
    for (let looks = 1; ; looks++) {
      const before = await this.threads.read(thread);
      const tenant = slot === null ? null : await this.slots.tenant(slot, thread);
      const home = await this.#currentHome(thread, before);
      const after = await this.threads.read(thread);
      // A move between the two looks would show the workspace twice, or not at all.
      const isSteady = before === null ? after === null : before.equals(after);
      if (isSteady || looks >= LOOKS_MAX)
        return { home: home !== null, slot: tenant !== null, stale: after?.isStale(spot) ?? false };
    }
  }

  moveIn(spot: WorkspaceSpot): Promise<void> {
    return this.#step(spot.place, () => this.#moveIn(spot));
  }

  async #moveIn(spot: WorkspaceSpot): Promise<void> {
    const { thread, slot } = keysOf(spot);
    const before = await this.threads.read(thread);
    before?.checkFence(spot);
    const free = await this.slots.checkFree(slot);
    if ((await this.#currentHome(thread, before)) === null) throw noHome(thread);
    await this.threads.record(thread, atName(spot.generation, free));
    const now = await this.threads.read(thread);
    now?.checkFence(spot);
    const home = now?.home ?? null;
    if (home === null) throw noHome(thread);
    const path = this.layout.home(thread, home.name);
    repairTree(path, null);
    await this.#send(thread, spot, free, { at: path, inode: home.inode });
  }

  makeIn(spot: WorkspaceSpot): Promise<void> {
    return this.#step(spot.place, () => this.#makeIn(spot));
  }

  async #makeIn(spot: WorkspaceSpot): Promise<void> {
    const { thread, slot } = keysOf(spot);
    const before = await this.threads.read(thread);
    before?.checkFence(spot);
    const free = await this.slots.checkFree(slot);
    if ((await this.#currentHome(thread, before)) !== null) throw homeExists(thread);
    const at = atName(spot.generation, free);
    if (before !== null) await this.threads.own(thread, before, spot);
    if (before !== null || !(await this.threads.make(thread, spot, { at }))) await this.threads.record(thread, at);
    const now = await this.threads.read(thread);
    now?.checkFence(spot);
    if ((await this.#currentHome(thread, now)) !== null) throw homeExists(thread);
    const draft = await this.threads.draftTree();
    try {
      await this.#send(thread, spot, free, draft);
    } catch (error) {
      await this.threads.discard(draft.at);
      throw error;
    }
  }

  moveHome(spot: WorkspaceSpot): Promise<void> {
    return this.#step(spot.place, () => this.#moveHome(spot));
  }

  async #moveHome(spot: WorkspaceSpot): Promise<void> {
    const { thread, slot } = keysOf(spot);
    const records = await this.threads.read(thread);
    records?.checkFence(spot);
    const tenant = slot === null ? null : await this.slots.tenant(slot, thread);
    if (slot === null || tenant === null) throw new SandlotError("file_not_found", { path: spot.place });
    const { user, thread: name, sandboxId } = spot;
    if ((await this.#currentHome(thread, records)) !== null)
      throw new SandlotError("workspace_conflict", { user, thread: name, sandboxId });
    await this.#checkReleased(slot, spot);
    if (records === null) await this.threads.make(thread, spot, { at: atName(spot.generation, slot) });
    await this.#bringHome(thread, spot, slot, tenant);
    await this.threads.sync(thread);
  }

  async quarantine(spot: WorkspaceSpot): Promise<void> {
    const { slot } = keysOf(spot);
    if (slot === null || (await this.slots.state(slot)) === "absent") return;
    await this.#checkReleased(slot, spot);
    await this.slots.setAside(slot, "a later generation has used the workspace");
    await this.slots.dropIfOver(slot);
  }

  purge(spot: WorkspaceSpot): Promise<void> {
    return this.#step(spot.place, () => this.#purge(spot));
  }

  async #purge(spot: WorkspaceSpot): Promise<void> {
    const { thread, slot } = keysOf(spot);
    const records = await this.threads.read(thread);
    records?.checkFence(spot);
    const used = [...new Set([slot, ...(records?.ats.map((at) => at.slot) ?? [])])].filter((one) => one !== null);
    const tenants: { slot: string; tenant: SlotTenant }[] = [];
    for (const one of used) {
      const tenant = await this.slots.tenant(one, thread);
      if (tenant === null) continue;
      await this.#checkReleased(one, spot);
      tenants.push({ slot: one, tenant });
    }
    if (records !== null) {
      await this.threads.recordGone(thread, records, spot);
      for (const { name } of records.homes) this.trash.throwAway(this.layout.home(thread, name), thread);
    }
    for (const one of tenants)
      await this.slots.reach(one.slot, one.tenant, async (path) => {
        await moveTo(path, this.trash.entry(thread), one.tenant.inode);
      });
    if (records !== null) {
      const older = [...records.ats, ...records.gones].filter(({ name }) => name !== goneName(spot));
      await this.threads.forget(thread, [...records.made, ...older.map(({ name }) => name)]);
    }
    for (const one of used) if ((await this.slots.state(one)) === "released") await this.slots.dropIfOver(one);
    await this.trash.empty(thread);
  }

  /** By its full name, which a later generation changes: a paused gateway misses it. */
  emptyHome(spot: WorkspaceSpot): Promise<void> {
    return this.#step(spot.place, async () => {
      const { thread } = keysOf(spot);
      const records = await this.threads.read(thread);
      records?.checkFence(spot);
      const home = await this.#currentHome(thread, records);
      if (home === null) return;
      const path = this.layout.home(thread, home.name);
      // A sandbox may have closed its workspace to its own account.
      repairTree(path, null);
      this.trash.throwAway(join(path, HOME_DIRECTORY), thread);
      repairTree(path, null);
      await this.trash.empty(thread);
    });
  }

  /** For a blank: an empty `/mnt` that a workspace can be moved into later. */
  prepareSlot(slot: string): Promise<void> {
    return this.#step(`slot:${slot}`, () => this.slots.make(slot));
  }

  /** Gives the workspace at home to a generation, under the name that its pod mounts. Made if there is none. */
  fence(owner: Owner, use: VolumeUse): Promise<"existing" | "new"> {
    const thread = threadKeyOf(owner.user, owner.thread);
    return this.#step(`home:${thread}`, async () => {
      let isNew = false;
      for (let looks = 1; looks <= LOOKS_MAX; looks++) {
        const records = await this.threads.read(thread);
        records?.checkFence(use);
        if (records === null) {
          if (await this.threads.make(thread, owner, { home: homeName(use) })) return "new";
          continue;
        }
        const home = await this.#currentHome(thread, records);
        if (home === null) {
          const brought = await this.#fetch(thread, use, records);
          if (brought) return "existing";
          await this.threads.own(thread, records, owner);
          // A sandbox that may still run keeps what it has; its generation's name stays free.
          const isKept = records.at !== null && (await this.slots.tenant(records.at.slot, thread)) !== null;
          isNew = await this.threads.makeHome(thread, isKept ? homeName(use) : records.nextHome);
          continue;
        }
        repairTree(this.layout.home(thread, home.name), null);
        const target = this.layout.home(thread, homeName(use));
        const moved =
          home.name === homeName(use) ? "done" : await moveTo(this.layout.home(thread, home.name), target, home.inode);
        if (moved !== "done") continue;
        await this.#tidy(thread, use);
        return isNew ? "new" : "existing";
      }
      throw unsettled(thread);
    });
  }

  /** Nothing of the sandbox runs any more. Removes its slot, or says that a workspace is in it. */
  async release(place: Place): Promise<"dropped" | "occupied"> {
    const slot = slotNameOf(place);
    if (slot === null || (await this.slots.release(slot)) === "absent") return "dropped";
    return (await this.slots.dropIfOver(slot)) ? "dropped" : "occupied";
  }

  async isOccupied(place: Place): Promise<boolean> {
    const slot = slotNameOf(place);
    return slot !== null && (await this.slots.tenant(slot)) !== null;
  }

  /**
   * A thread's workspace, wherever it is, held by a descriptor that stays valid while the workspace moves. `null` when
   * there is none; `make` then creates an empty one at home.
   */
  async locate(owner: Owner, options: { readonly make?: boolean } = {}): Promise<WorkspaceHandle | null> {
    const descriptor = await locateWorkspace(this, owner, options.make === true);
    if (descriptor === null) return null;
    const { world, trash } = this;
    return new WorkspaceHandle(descriptor, { account: () => null, world, trash });
  }

  branch(from: Owner, to: Owner, limits?: CopyLimits): Promise<CopyOutcome> {
    return branchWorkspace(this, from, to, limits);
  }

  /** Removes what crashes have left. */
  sweep(isKnown: (slot: string) => Promise<boolean>): Promise<void> {
    return sweepVolume(this, isKnown);
  }

  /** The workspace at home, unless a later generation has sent the thread's workspace to a slot, where it is. */
  async #currentHome(thread: ThreadKey, records: ThreadRecords | null): Promise<HomeRecord | null> {
    const [home, at] = [records?.home ?? null, records?.at ?? null];
    if (home === null || at === null || at.generation <= home.generation) return home;
    return (await this.slots.tenant(at.slot, thread)) === null ? home : null;
  }

  /** Sends a workspace to a slot. Its record in the thread's directory was written before. */
  async #send(
    thread: ThreadKey,
    spot: WorkspaceSpot,
    slot: string,
    { at, inode }: { readonly at: string; readonly inode: bigint },
  ): Promise<void> {
    await markArrival(at, arrivalNonce(slot, spot.generation), this.trash, this.world);
    await this.slots.announce(slot, { thread, generation: spot.generation, inode });
    const moved = await moveTo(at, this.layout.arrival(slot), inode);
    if (moved === "missing") throw new SandlotError("file_not_found", { path: spot.place });
    if (moved !== "done") throw new SandlotError("file_exists", { path: `${spot.place}/user-data` });
    await this.#tidy(thread, spot);
  }

  /** Brings a tenant's workspace home, under the name of its new user. */
  async #bringHome(thread: ThreadKey, use: VolumeUse, slot: string, tenant: SlotTenant): Promise<void> {
    const target = this.layout.home(thread, homeName(use));
    const moved = await this.slots.reach(slot, tenant, (path) => moveTo(path, target, tenant.inode));
    if (moved === "other") await this.threads.setAside(thread, homeName(use), "it was put where a workspace had been");
    if (moved !== "done") throw new SandlotError("file_not_found", { path: `slot:${slot}` });
    await this.threads.forget(thread, [atName(tenant.generation, slot)]);
    await this.slots.dropIfOver(slot);
  }

  /** Brings home what waits in the released slot of a sandbox that is gone. */
  async #fetch(thread: ThreadKey, use: VolumeUse, records: ThreadRecords): Promise<boolean> {
    const { at } = records;
    if (at === null || (await this.slots.state(at.slot)) !== "released") return false;
    const tenant = await this.slots.tenant(at.slot, thread);
    if (tenant === null) return false;
    await this.#bringHome(thread, use, at.slot, tenant);
    await this.#tidy(thread, use);
    return true;
  }

  async #checkReleased(slot: string, { sandboxId }: WorkspaceSpot): Promise<void> {
    if ((await this.slots.state(slot)) === "open")
      throw new SandlotError("sandbox_in_use", { sandboxId, holders: ["its own processes"] });
  }

  /** The step has taken effect, so a failure here is not its failure. */
  async #tidy(thread: ThreadKey, use: VolumeUse): Promise<void> {
    try {
      await this.threads.tidy(thread, use);
    } catch (error) {
      this.#onProblem(`leftovers of the workspace ${thread} could not be removed: ${error}`);
    }
  }

  /** What a step misses was taken away since its look: its caller looks again. */
  async #step<T>(path: string, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      throw isMissing(error) ? inOurWords(error, path) : noRoomInOurWords(error, path);
    }
  }
}

/** The content of the file that shows a blank's daemon the arrival of a workspace. */
export function arrivalNonce(slot: string, generation: Generation): string {
  return `${slot}.${generation}`;
}

function keysOf(spot: WorkspaceSpot): { readonly thread: ThreadKey; readonly slot: string | null } {
  return { thread: threadKeyOf(spot.user, spot.thread), slot: slotNameOf(spot.place) };
}

function noHome(thread: ThreadKey): SandlotError {
  return new SandlotError("file_not_found", { path: `home:${thread}` });
}

function homeExists(thread: ThreadKey): SandlotError {
  return new SandlotError("file_exists", { path: `home:${thread}` });
}

function unsettled(thread: ThreadKey): SandlotError {
  const problem = `the workspace ${thread} changed ${LOOKS_MAX} times while it was looked at`;
  return new SandlotError("engine_unavailable", { engine: "workspaces", problem, tried: [], retryAfterMs: 500 });
}
