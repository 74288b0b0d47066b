/**
 * Limits of sandboxes whose blueprint has some, from when this process first makes, reaches or sees a container until it is
 * destroyed, also while it is parked.
 *
 *   memory, processes   the engine has the kernel hold them; the kernel counts, and of what it counted is told
 *   disk                the engine limits no directory of the host, so the workspace is watched there, as the local backend does it:
 *                       writes through the API are refused beyond the budget, and commands that write past it are stopped
 *
 * Invariant: where the kernel's counters are not to be seen, as on another machine, the engine's own word for memory is told, and
 * nothing for processes: no engine has one.
 */

import { existsSync } from "node:fs";
import { join } from "node:path";
import type { LimitKind, Sandbox, SandboxId } from "@sandlot/contract";
import type { Blueprint } from "../../backend/blueprint.ts";
import type { FleetFacts } from "../../backend/entry.ts";
import type { Layout, ObjectName } from "../../host/layout.ts";
import { DiskGuard, DiskWatcher, type LimitGroup, LimitWatch, limitedSandbox } from "../../host/limits/index.ts";
import { explainHit } from "../../host/limits/limits.ts";
import { Layout as DiskLayout, slotNameOf, USER_DATA } from "../../host/workspaces/layout.ts";
import type { World } from "../../world/world.ts";
import { containerGroup } from "./container-group.ts";
import type { Engine } from "./engine/engine.ts";
import type { ContainerObject } from "./objects/container-objects.ts";

export interface ContainerGuardsParts {
  readonly world: World;
  readonly engine: Engine;
  readonly layout: Layout;
  readonly blueprints: FleetFacts["blueprints"];
  readonly onHit: (sandboxId: SandboxId, limit: LimitKind, because: string) => void;
  readonly onProblem: (error: unknown) => void;
}

interface Guarded {
  readonly guard: DiskGuard | null;
  readonly group: LimitGroup;
}

export class ContainerGuards {
  readonly #parts: ContainerGuardsParts;
  readonly #watcher: DiskWatcher;
  readonly #watch: LimitWatch;
  readonly #disk: DiskLayout;
  readonly #guarded = new Map<ObjectName, Promise<Guarded | null>>();
  /** Of these, what is known already; `null` for one without limits. */
  readonly #known = new Map<ObjectName, Guarded | null>();

  constructor(parts: ContainerGuardsParts) {
    this.#parts = parts;
    this.#watcher = new DiskWatcher({ world: parts.world });
    this.#watch = new LimitWatch(parts.world);
    this.#disk = new DiskLayout(parts.layout.root);
  }

  /** Begins to watch, where there is something to watch. */
  watch(object: ContainerObject): Promise<Guarded | null> {
    const { name, container } = object;
    const under = this.#guarded.get(name);
    if (under !== undefined) return under;
    const limits = this.#limitsOf(object.record);
    if (limits === null) this.#known.set(name, null);
    if (limits === null || container === null) return Promise.resolve(null);
    const guarded = this.#guard(object, container.containerId, limits).then(
      (made) => {
        if (this.#guarded.get(name) === guarded) this.#known.set(name, made);
        return made;
      },
      (error: unknown) => {
        // Asked again by whoever comes next.
        this.#guarded.delete(name);
        this.#parts.onProblem(error);
        return null;
      },
    );
    this.#guarded.set(name, guarded);
    return guarded;
  }

  /** The sandbox as it is given out, if what guards it is known already. */
  limitedNow(name: ObjectName, sandbox: Sandbox): Sandbox | null {
    const known = this.#known.get(name);
    if (known === undefined) return null;
    return known === null ? sandbox : this.#limit(name, sandbox, known);
  }

  /** The sandbox as it is given out. */
  async limited(object: ContainerObject, sandbox: Sandbox): Promise<Sandbox> {
    const guarded = await this.watch(object);
    return guarded === null ? sandbox : this.#limit(object.name, sandbox, guarded);
  }

  /** The engine says that something of a container was ended for want of memory. Without a limit it was the host's want. */
  async outOfMemory(name: ObjectName): Promise<void> {
    const guarded = await this.#guarded.get(name);
    if (guarded?.group.isCounted === true) this.#watch.look(name);
    else if (guarded != null) this.#watch.note(name, "memory", explainHit(guarded.group, "memory"));
  }

  forget(name: ObjectName): void {
    void this.#guarded.get(name)?.then((guarded) => guarded?.guard?.close());
    this.#guarded.delete(name);
    this.#known.delete(name);
    this.#watch.forget(name);
  }

  close(): void {
    for (const name of [...this.#guarded.keys()]) this.forget(name);
    this.#watcher.close();
    this.#watch.close();
  }

  #limit(name: ObjectName, sandbox: Sandbox, { group, guard }: Guarded): Sandbox {
    return limitedSandbox(sandbox, group, guard, {
      onEnd: (hits) => this.#watch.look(name, hits),
      onFileLimit: (because) => this.#watch.note(name, "disk", because),
    });
  }

  /** Those that it was made with, whatever is configured meanwhile. */
  #limitsOf({ limits, labels }: ContainerObject["record"]): Blueprint["limits"] | null {
    if (limits !== null) return watchedOf(limits);
    const { blueprints } = this.#parts;
    const named = Object.values(blueprints).find(({ hash }) => hash === labels.blueprintHash);
    return watchedOf(named?.blueprint.limits ?? {});
  }

  async #guard(object: ContainerObject, containerId: string, limits: Blueprint["limits"]): Promise<Guarded> {
    const { engine, onHit, onProblem, world } = this.#parts;
    const { name, record } = object;
    const found = engine.facts.isOnThisHost ? await engine.inspect(containerId) : null;
    const init = found?.State.Pid ?? 0;
    const seen = containerGroup(name, init);
    const group = seen.isCounted ? seen : uncounted(seen, limits);
    this.#watch.watch(group, (limit, because) => onHit(record.labels.sandboxId, limit, because));
    if (!holdsDisk(limits)) return { group, guard: null };
    const { diskBytes, filesMax } = limits;
    const guard: DiskGuard = new DiskGuard(this.#watcher, {
      ...{ world, group, diskBytes, filesMax, onProblem },
      place: () => this.#placeOf(object),
      spare: init > 0 ? [init] : [],
      onExceeded: () => this.#watch.note(name, "disk", guard.says),
    });
    return { group, guard };
  }

  /** Where the object's workspace is on the host; `null` when it has none. */
  #placeOf({ record }: ContainerObject): string | null {
    const { threadKey } = record.labels;
    const slot = slotNameOf(record.place);
    const home = threadKey === null ? null : this.#disk.userData(threadKey);
    const path = slot === null ? home : join(this.#disk.mnt(slot), USER_DATA);
    return path !== null && existsSync(path) ? path : null;
  }
}

/** Whether there is a budget that takes somebody to hold it. */
export function holdsDisk({ diskBytes, filesMax }: Blueprint["limits"]): boolean {
  return diskBytes !== undefined || filesMax !== undefined;
}

/** `null` where there are none. */
function watchedOf({ memoryBytes, pidsMax, diskBytes, filesMax }: Blueprint["limits"]): Blueprint["limits"] | null {
  const isLimited = [memoryBytes, pidsMax, diskBytes, filesMax].some((limit) => limit !== undefined);
  return isLimited ? { memoryBytes, pidsMax, diskBytes, filesMax } : null;
}

/** Of a group that cannot be looked into only its limits are known. */
function uncounted(group: LimitGroup, { memoryBytes, pidsMax }: Blueprint["limits"]): LimitGroup {
  const limits = { memoryMaxBytes: memoryBytes ?? null, processMax: pidsMax ?? null };
  return { ...group, usage: () => ({ ...group.usage(), ...limits }) };
}
