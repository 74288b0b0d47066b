/**
 * Guarding the sandboxes of this machine, whichever backend made them: how a limit that was hit is told, how a workspace is held
 * to its disk budget, and where that workspace is. Which sandboxes are guarded, and by whom, is the backend's.
 */

import { existsSync } from "node:fs";
import { join } from "node:path";
import type { LimitKind, Sandbox } from "@sandlot/contract";
import type { Place } from "../../backend/backend.ts";
import type { Blueprint } from "../../backend/blueprint.ts";
import type { Labels } from "../../backend/labels.ts";
import type { World } from "../../world/world.ts";
import type { Layout, ObjectName } from "../layout.ts";
import {
  DiskGuard,
  type DiskKeeper,
  DiskWatcher,
  type LimitGroup,
  LimitWatch,
  limitedSandbox,
} from "../limits/index.ts";
import { Layout as DiskLayout, slotNameOf, USER_DATA } from "../workspaces/layout.ts";

/** An object of a backend, as far as guarding it goes. */
export interface GuardedObject {
  readonly name: ObjectName;
  readonly record: { readonly labels: Labels; readonly place: Place };
}

export interface GuardsListener {
  onHit(object: GuardedObject, limit: LimitKind, because: string): void;
  onProblem(error: unknown): void;
}

export abstract class HostGuards {
  protected readonly world: World;
  protected readonly watching: LimitWatch;
  protected readonly disk: DiskLayout;
  readonly #watcher: DiskWatcher;
  readonly #listener: GuardsListener;

  constructor(world: World, layout: Layout, listener: GuardsListener) {
    this.world = world;
    this.watching = new LimitWatch(world);
    this.disk = new DiskLayout(layout.root);
    this.#watcher = new DiskWatcher({ world });
    this.#listener = listener;
  }

  close(): void {
    this.#watcher.close();
    this.watching.close();
  }

  protected problem(error: unknown): void {
    this.#listener.onProblem(error);
  }

  /** From now on it is told when this sandbox runs into a limit. */
  protected heed(object: GuardedObject, group: LimitGroup): LimitGroup {
    this.watching.watch(group, (limit, because) => this.#listener.onHit(object, limit, because));
    return group;
  }

  /** The sandbox as it is given out. */
  protected limit(name: ObjectName, sandbox: Sandbox, group: LimitGroup, keeper: DiskKeeper | null): Sandbox {
    return limitedSandbox(sandbox, group, keeper, {
      onEnd: (hits) => this.watching.look(name, hits),
      onFileLimit: (because) => this.watching.note(name, "disk", because),
    });
  }

  /** Watches the workspace and stops what writes past the budget; the processes in `spare` go on. */
  protected diskGuard(
    object: GuardedObject,
    group: LimitGroup,
    { diskBytes, filesMax }: Blueprint["limits"],
    spare: readonly number[],
  ): DiskGuard {
    const guard: DiskGuard = new DiskGuard(this.#watcher, {
      ...{ world: this.world, group, diskBytes, filesMax, spare },
      place: () => this.placeOf(object),
      onExceeded: () => this.watching.note(object.name, "disk", guard.says),
      onProblem: (error) => this.#listener.onProblem(error),
    });
    return guard;
  }

  /** Where the object's workspace is on the host; `null` when it has none. */
  protected placeOf({ record }: GuardedObject): string | null {
    const { threadKey } = record.labels;
    const slot = slotNameOf(record.place);
    const home = threadKey === null ? null : this.disk.userData(threadKey);
    const path = slot === null ? home : join(this.disk.mnt(slot), USER_DATA);
    return path !== null && existsSync(path) ? path : null;
  }
}

/** Whether there is a budget that a process has to hold. */
export function holdsDisk({ diskBytes, filesMax }: Blueprint["limits"]): boolean {
  return diskBytes !== undefined || filesMax !== undefined;
}
