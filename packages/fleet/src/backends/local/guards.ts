/**
 * Limits of sandboxes whose blueprint has some: watched from when this process first knows of them until they are destroyed,
 * also while they are parked. Disk budgets are held here; of the others it is told when they were hit.
 */

import { existsSync } from "node:fs";
import { join } from "node:path";
import type { LimitKind, Sandbox, ThreadKey } from "@sandlot/contract";
import type { Layout, ObjectName } from "../../host/layout.ts";
import {
  type DiskBudget,
  DiskGuard,
  type DiskKeeper,
  DiskWatcher,
  type LimitGroup,
  type Limits,
  LimitWatch,
  limitedSandbox,
  type ProjectQuotas,
  QuotaGuard,
} from "../../host/limits/index.ts";
import { FENCE, TENANT } from "../../host/workspaces/fence.ts";
import { Layout as DiskLayout, slotNameOf, USER_DATA } from "../../host/workspaces/layout.ts";
import type { World } from "../../world/world.ts";
import type { LocalObject, ProcessRecord } from "./objects/object-store.ts";

interface GuardsListener {
  onHit(object: LocalObject, limit: LimitKind, because: string): void;
  onProblem(error: unknown): void;
}

export class Guards {
  readonly #watcher: DiskWatcher;
  readonly #watch: LimitWatch;
  readonly #limits: Limits;
  readonly #disk: DiskLayout;
  readonly #quotas: ProjectQuotas;
  readonly #world: World;
  readonly #guards = new Map<ObjectName, DiskKeeper>();
  readonly #listener: GuardsListener;

  constructor(world: World, limits: Limits, quotas: ProjectQuotas, layout: Layout, listener: GuardsListener) {
    this.#world = world;
    this.#quotas = quotas;
    this.#watcher = new DiskWatcher({ world });
    this.#watch = new LimitWatch(world);
    this.#limits = limits;
    this.#disk = new DiskLayout(layout.root);
    this.#listener = listener;
  }

  /** Begins to watch, where there is something to watch. */
  watch(object: LocalObject): DiskKeeper | null {
    const { process, record } = object;
    if (process !== null && Object.values(record.limits).some((limit) => limit !== undefined)) this.#heed(object);
    return this.watchDisk(object);
  }

  /** Only what takes somebody to hold it: the kernel needs nobody for the rest. */
  watchDisk(object: LocalObject): DiskKeeper | null {
    const { name, record, process } = object;
    const { diskBytes, filesMax } = record.limits;
    const known = this.#guards.get(name);
    if (known !== undefined) return known;
    if (process === null || (diskBytes === undefined && filesMax === undefined)) return null;
    // What the kernel may hold is asked about when there is something to hold.
    if (this.#quotas.isConceivable && this.#placeOf(object) === null) return null;
    const guard = this.#isHeld(object) ? this.#heard(object) : this.#guarded(object, process);
    this.#guards.set(name, guard);
    return guard;
  }

  /**
   * Has the kernel hold the workspace to its budget, where it can. Before anybody can run anything in it; nobody who
   * finds it otherwise does it later.
   */
  async hold(object: LocalObject): Promise<void> {
    const [thread, place] = [this.#threadOf(object), this.#placeOf(object)];
    if (thread !== null && place !== null) await this.#quotas.hold(thread, place, object.record.limits);
  }

  /** The sandbox as it is given out. */
  limited(object: LocalObject, sandbox: Sandbox): Sandbox {
    const { name } = object;
    return limitedSandbox(sandbox, this.#limits.open(name), this.watch(object), {
      onEnd: (hits) => this.#watch.look(name, hits),
      onFileLimit: (because) => this.#watch.note(name, "disk", because),
    });
  }

  /**
   * What writes into a thread's workspace are held to, if this process knows its sandbox; `null` where it does not, or where
   * the kernel holds them.
   */
  budgetOf(thread: ThreadKey): DiskBudget | null {
    const last = FENCE.read(this.#disk.home(thread));
    if (last === null || last.sandboxId === null) return null;
    const name = last.at === "home" ? `${last.sandboxId}-${last.generation}` : last.at;
    return this.#guards.get(name)?.budget ?? null;
  }

  forget(name: ObjectName): void {
    this.#watch.forget(name);
    this.#guards.get(name)?.close();
    this.#guards.delete(name);
  }

  close(): void {
    for (const guard of this.#guards.values()) guard.close();
    this.#guards.clear();
    this.#watcher.close();
    this.#watch.close();
  }

  #isHeld(object: LocalObject): boolean {
    const [thread, place] = [this.#threadOf(object), this.#placeOf(object)];
    return thread !== null && place !== null && this.#quotas.holds(thread, place);
  }

  #heard(object: LocalObject): QuotaGuard {
    const { diskBytes, filesMax } = object.record.limits;
    this.#heed(object);
    return new QuotaGuard({
      ...{ diskBytes, filesMax, world: this.#world },
      place: () => this.#placeOf(object),
      onFull: (says) => this.#watch.note(object.name, "disk", says),
    });
  }

  #guarded(object: LocalObject, { init, monitor }: ProcessRecord): DiskGuard {
    const { diskBytes, filesMax } = object.record.limits;
    const guard: DiskGuard = new DiskGuard(this.#watcher, {
      world: this.#world,
      group: this.#heed(object),
      place: () => this.#placeOf(object),
      ...{ diskBytes, filesMax },
      spare: [init.pid, ...(monitor === null ? [] : [monitor.pid])],
      onExceeded: () => this.#watch.note(object.name, "disk", guard.says),
      onProblem: (error) => this.#listener.onProblem(error),
    });
    return guard;
  }

  /** From now on it is told when this sandbox runs into a limit. */
  #heed(object: LocalObject): LimitGroup {
    const group = this.#limits.open(object.name);
    this.#watch.watch(group, (limit, because) => this.#listener.onHit(object, limit, because));
    return group;
  }

  /** Whose workspace the object has; `null` for a blank. */
  #threadOf({ record }: LocalObject): ThreadKey | null {
    const slot = slotNameOf(record.place);
    return slot === null ? record.labels.threadKey : (TENANT.read(this.#disk.slot(slot))?.thread ?? null);
  }

  /** Where the object's workspace is on the host; `null` when it has none. */
  #placeOf({ record }: LocalObject): string | null {
    const { threadKey } = record.labels;
    const slot = slotNameOf(record.place);
    const path =
      slot !== null
        ? join(this.#disk.mnt(slot), USER_DATA)
        : threadKey === null
          ? null
          : this.#disk.userData(threadKey);
    return path !== null && existsSync(path) ? path : null;
  }
}
