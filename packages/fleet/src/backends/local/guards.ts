/**
 * Limits of sandboxes whose blueprint has some: watched from when this process first knows of them until they are destroyed,
 * also while they are parked. Disk budgets are held here; of the others it is told when they were hit.
 */

import { existsSync } from "node:fs";
import { join } from "node:path";
import type { LimitKind, Sandbox } from "@sandlot/contract";
import { Layout as DiskLayout, slotNameOf, USER_DATA } from "../../workspace/disk/layout.ts";
import type { World } from "../../world/world.ts";
import { DiskGuard, DiskWatcher, type LimitGroup, type Limits, LimitWatch, limitedSandbox } from "./limits/index.ts";
import type { Layout, ObjectName } from "./objects/layout.ts";
import type { LocalObject } from "./objects/object-store.ts";

interface GuardsListener {
  onHit(object: LocalObject, limit: LimitKind, because: string): void;
  onProblem(error: unknown): void;
}

export class Guards {
  readonly #watcher: DiskWatcher;
  readonly #watch: LimitWatch;
  readonly #limits: Limits;
  readonly #disk: DiskLayout;
  readonly #guards = new Map<ObjectName, DiskGuard>();
  readonly #listener: GuardsListener;

  constructor(world: World, limits: Limits, layout: Layout, listener: GuardsListener) {
    this.#watcher = new DiskWatcher({ world });
    this.#watch = new LimitWatch(world);
    this.#limits = limits;
    this.#disk = new DiskLayout(layout.root);
    this.#listener = listener;
  }

  /** Begins to watch, where there is something to watch. */
  watch(object: LocalObject): DiskGuard | null {
    const { process, record } = object;
    if (process !== null && Object.values(record.limits).some((limit) => limit !== undefined)) this.#heed(object);
    return this.watchDisk(object);
  }

  /** Only what takes somebody to hold it: the kernel needs nobody for the rest. */
  watchDisk(object: LocalObject): DiskGuard | null {
    const { name, record, process } = object;
    const { diskBytes, filesMax } = record.limits;
    const known = this.#guards.get(name);
    if (known !== undefined) return known;
    if (process === null || (diskBytes === undefined && filesMax === undefined)) return null;
    const guard: DiskGuard = new DiskGuard(this.#watcher, {
      group: this.#heed(object),
      place: () => this.#placeOf(object),
      ...{ diskBytes, filesMax },
      spare: [process.init.pid, ...(process.monitor === null ? [] : [process.monitor.pid])],
      onExceeded: () => this.#watch.note(name, "disk", guard.says),
      onProblem: (error) => this.#listener.onProblem(error),
    });
    this.#guards.set(name, guard);
    return guard;
  }

  /** The sandbox as it is given out. */
  limited(object: LocalObject, sandbox: Sandbox): Sandbox {
    const { name } = object;
    return limitedSandbox(sandbox, this.#limits.open(name), this.watch(object), {
      onEnd: () => this.#watch.look(name),
      onFileLimit: (because) => this.#watch.note(name, "disk", because),
    });
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

  /** From now on it is told when this sandbox runs into a limit. */
  #heed(object: LocalObject): LimitGroup {
    const group = this.#limits.open(object.name);
    this.#watch.watch(group, (limit, because) => this.#listener.onHit(object, limit, because));
    return group;
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
