/**
 * Limits of sandboxes whose blueprint has some: watched from when this process first knows of them until they are destroyed,
 * also while they are parked. Disk budgets are held here; of the others it is told when they were hit.
 */

import type { Sandbox, ThreadKey } from "@sandlot/contract";
import { type GuardsListener, HostGuards, holdsDisk } from "../../host/guards/host-guards.ts";
import type { Layout, ObjectName } from "../../host/layout.ts";
import {
  type DiskBudget,
  type DiskGuard,
  type DiskKeeper,
  type LimitGroup,
  type Limits,
  type ProjectQuotas,
  QuotaGuard,
} from "../../host/limits/index.ts";
import { FENCE, TENANT } from "../../host/workspaces/fence.ts";
import { slotNameOf } from "../../host/workspaces/layout.ts";
import type { World } from "../../world/world.ts";
import type { LocalObject, ProcessRecord } from "./objects/object-store.ts";

export class Guards extends HostGuards {
  readonly #limits: Limits;
  readonly #quotas: ProjectQuotas;
  readonly #guards = new Map<ObjectName, DiskKeeper>();

  constructor(world: World, limits: Limits, quotas: ProjectQuotas, layout: Layout, listener: GuardsListener) {
    super(world, layout, listener);
    this.#quotas = quotas;
    this.#limits = limits;
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
    const known = this.#guards.get(name);
    if (known !== undefined) return known;
    if (process === null || !holdsDisk(record.limits)) return null;
    // What the kernel may hold is asked about when there is something to hold.
    if (this.#quotas.isConceivable && this.placeOf(object) === null) return null;
    const guard = this.#isHeld(object) ? this.#heard(object) : this.#guarded(object, process);
    this.#guards.set(name, guard);
    return guard;
  }

  /**
   * Has the kernel hold the workspace to its budget, where it can. Before anybody can run anything in it; nobody who
   * finds it otherwise does it later.
   */
  async hold(object: LocalObject): Promise<void> {
    const [thread, place] = [this.#threadOf(object), this.placeOf(object)];
    if (thread !== null && place !== null) await this.#quotas.hold(thread, place, object.record.limits);
  }

  /** The sandbox as it is given out. */
  limited(object: LocalObject, sandbox: Sandbox): Sandbox {
    const { name } = object;
    return this.limit(name, sandbox, this.#limits.open(name), this.watch(object));
  }

  /**
   * What writes into a thread's workspace are held to, if this process knows its sandbox; `null` where it does not, or where
   * the kernel holds them.
   */
  budgetOf(thread: ThreadKey): DiskBudget | null {
    const last = FENCE.read(this.disk.home(thread));
    if (last === null || last.sandboxId === null) return null;
    const name = last.at === "home" ? `${last.sandboxId}-${last.generation}` : last.at;
    return this.#guards.get(name)?.budget ?? null;
  }

  forget(name: ObjectName): void {
    this.watching.forget(name);
    this.#guards.get(name)?.close();
    this.#guards.delete(name);
  }

  override close(): void {
    for (const guard of this.#guards.values()) guard.close();
    this.#guards.clear();
    super.close();
  }

  #isHeld(object: LocalObject): boolean {
    const [thread, place] = [this.#threadOf(object), this.placeOf(object)];
    return thread !== null && place !== null && this.#quotas.holds(thread, place);
  }

  #heard(object: LocalObject): QuotaGuard {
    const { diskBytes, filesMax } = object.record.limits;
    this.#heed(object);
    return new QuotaGuard({
      ...{ diskBytes, filesMax, world: this.world },
      place: () => this.placeOf(object),
      onFull: (says) => this.watching.note(object.name, "disk", says),
    });
  }

  #guarded(object: LocalObject, { init, monitor }: ProcessRecord): DiskGuard {
    const spare = [init.pid, ...(monitor === null ? [] : [monitor.pid])];
    return this.diskGuard(object, this.#heed(object), object.record.limits, spare);
  }

  #heed(object: LocalObject): LimitGroup {
    return this.heed(object, this.#limits.open(object.name));
  }

  /** Whose workspace the object has; `null` for a blank. */
  #threadOf({ record }: LocalObject): ThreadKey | null {
    const slot = slotNameOf(record.place);
    return slot === null ? record.labels.threadKey : (TENANT.read(this.disk.slot(slot))?.thread ?? null);
  }
}
