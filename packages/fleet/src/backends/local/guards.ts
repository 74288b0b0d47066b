/**
 * Disk budgets of sandboxes whose blueprint has one: watched from when this process first knows of them until they are
 * destroyed, also while they are parked.
 */

import { existsSync } from "node:fs";
import { join } from "node:path";
import type { Sandbox } from "@sandlot/contract";
import { Layout as DiskLayout, slotNameOf, USER_DATA } from "../../workspace/disk/layout.ts";
import type { World } from "../../world/world.ts";
import { DiskGuard, DiskWatcher, type Limits, limitedSandbox } from "./limits/index.ts";
import type { Layout, ObjectName } from "./objects/layout.ts";
import type { LocalObject } from "./objects/object-store.ts";

export class Guards {
  readonly #watcher: DiskWatcher;
  readonly #limits: Limits;
  readonly #disk: DiskLayout;
  readonly #guards = new Map<ObjectName, DiskGuard>();
  readonly #onProblem: (error: unknown) => void;

  constructor(world: World, limits: Limits, layout: Layout, onProblem: (error: unknown) => void) {
    this.#watcher = new DiskWatcher({ world });
    this.#limits = limits;
    this.#disk = new DiskLayout(layout.root);
    this.#onProblem = onProblem;
  }

  /** Begins to watch, where there is something to watch. */
  watch(object: LocalObject): DiskGuard | null {
    const { name, record, process } = object;
    const { diskBytes, filesMax } = record.limits;
    const known = this.#guards.get(name);
    if (known !== undefined) return known;
    if (process === null || (diskBytes === undefined && filesMax === undefined)) return null;
    const guard = new DiskGuard(this.#watcher, {
      group: this.#limits.open(name),
      place: () => this.#placeOf(object),
      ...{ diskBytes, filesMax },
      spare: [process.init.pid, ...(process.monitor === null ? [] : [process.monitor.pid])],
      onProblem: this.#onProblem,
    });
    this.#guards.set(name, guard);
    return guard;
  }

  /** The sandbox as it is given out. */
  limited(object: LocalObject, sandbox: Sandbox): Sandbox {
    return limitedSandbox(sandbox, this.#limits.open(object.name), this.watch(object));
  }

  forget(name: ObjectName): void {
    this.#guards.get(name)?.close();
    this.#guards.delete(name);
  }

  close(): void {
    for (const guard of this.#guards.values()) guard.close();
    this.#guards.clear();
    this.#watcher.close();
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
