/**
 * Limits of sandboxes whose blueprint has some: watched from when this process first knows a sandbox until its end,
 * also while it is parked. Disk budgets are enforced here; hits of the other limits are reported.
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

  /** Starts to watch, where there is something to watch. */
  watch(object: LocalObject): DiskKeeper | null {
    const { process, record } = object;
    if (process !== null && Object.values(record.limits).some((limit) => limit !== undefined)) this.#heed(object);
    return this.watchDisk(object);
  }

  /** Only limits that a process must enforce: the kernel enforces the rest. */
  watchDisk(object: LocalObject): DiskKeeper | null {
    const { name, record, process } = object;
    const known = this.#guards.get(name);
    if (known !== undefined) return known;
    if (process === null || !holdsDisk(record.limits)) return null;
    // Whether the kernel enforces it is checked once there is a workspace.
    if (this.#quotas.isConceivable && this.placeOf(object) === null) return null;
    const guard = this.#isHeld(object) ? this.#heard(object) : this.#guarded(object, process);
    this.#guards.set(name, guard);
    return guard;
  }

  /**
   * Lets the kernel enforce the workspace's budget, where it can. Only before commands can run in it; a process that
   * finds the workspace without it does not add it later.
   */
  async hold(object: LocalObject): Promise<void> {
    const [thread, place] = [this.#threadOf(object), this.placeOf(object)];
    if (thread !== null && place !== null) await this.#quotas.hold(thread, place, object.record.limits);
  }

  /** The sandbox for the caller. */
  limited(object: LocalObject, sandbox: Sandbox): Sandbox {
    const { name } = object;
    return this.limit(name, sandbox, this.#limits.open(name), this.watch(object));
  }

  /**
   * The budget of writes into a thread's workspace, if this process knows its sandbox; `null` where it does not, or
   * where the kernel enforces it.
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

  /** The thread whose workspace the object has; `null` for a blank. */
  #threadOf({ record }: LocalObject): ThreadKey | null {
    const slot = slotNameOf(record.place);
    return slot === null ? record.labels.threadKey : (TENANT.read(this.disk.slot(slot))?.thread ?? null);
  }
}
