/**
 * Limits of sandboxes whose blueprint has some, from when this process first makes, reaches or sees a container until
 * it is destroyed, also while it is parked.
 *
 *   memory, processes   the kernel enforces them for the engine; this process reports what the kernel counted
 *   disk                the engine limits no directory of the host, so this process watches the workspace:
 *                       writes through the API are refused beyond the budget, and commands that write past it are stopped
 *
 * Invariant: where the kernel's counters are out of reach, as on another machine, the engine's events report memory,
 * and nothing reports processes: no engine has such an event.
 */

import type { Sandbox } from "@sandlot/contract";
import type { Blueprint } from "../../backend/blueprint.ts";
import type { FleetFacts } from "../../backend/entry.ts";
import { type GuardsListener, HostGuards, holdsDisk } from "../../host/guards/host-guards.ts";
import type { Layout, ObjectName } from "../../host/layout.ts";
import { containerGroup } from "../../host/limits/container-group.ts";
import type { DiskGuard, LimitGroup } from "../../host/limits/index.ts";
import { explainHit } from "../../host/limits/limits.ts";
import type { World } from "../../world/world.ts";
import type { Engine } from "./engine/engine.ts";
import type { ContainerObject } from "./objects/container-objects.ts";

export interface ContainerGuardsParts {
  readonly world: World;
  readonly engine: Engine;
  readonly layout: Layout;
  readonly blueprints: FleetFacts["blueprints"];
  readonly listener: GuardsListener;
}

interface Guarded {
  readonly guard: DiskGuard | null;
  readonly group: LimitGroup;
}

export class ContainerGuards extends HostGuards {
  readonly #parts: ContainerGuardsParts;
  readonly #guarded = new Map<ObjectName, Promise<Guarded | null>>();
  /** The known guards; `null` for a container without limits. */
  readonly #known = new Map<ObjectName, Guarded | null>();

  constructor(parts: ContainerGuardsParts) {
    super(parts.world, parts.layout, parts.listener);
    this.#parts = parts;
  }

  /** Starts to watch, where there is something to watch. */
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
        // The next caller tries again.
        this.#guarded.delete(name);
        this.problem(error);
        return null;
      },
    );
    this.#guarded.set(name, guarded);
    return guarded;
  }

  /** The sandbox for the caller, if its guards are known already. */
  limitedNow(name: ObjectName, sandbox: Sandbox): Sandbox | null {
    const known = this.#known.get(name);
    if (known === undefined) return null;
    return known === null ? sandbox : this.limit(name, sandbox, known.group, known.guard);
  }

  /** The sandbox for the caller. */
  async limited(object: ContainerObject, sandbox: Sandbox): Promise<Sandbox> {
    const guarded = await this.watch(object);
    return guarded === null ? sandbox : this.limit(object.name, sandbox, guarded.group, guarded.guard);
  }

  /** `null` where the container has no limits, so that its group is not known. */
  async memoryOf(object: ContainerObject | null): Promise<number | null> {
    const guarded = object === null ? null : await this.watch(object);
    return guarded?.group.usage().memoryBytes ?? null;
  }

  /**
   * The engine reports that the kernel killed a process of a container for lack of memory. Without a limit the host was
   * out of memory.
   */
  async outOfMemory(name: ObjectName): Promise<void> {
    const guarded = await this.#guarded.get(name);
    if (guarded?.group.isCounted === true) this.watching.look(name);
    else if (guarded != null) this.watching.note(name, "memory", explainHit(guarded.group, "memory"));
  }

  forget(name: ObjectName): void {
    void this.#guarded.get(name)?.then((guarded) => guarded?.guard?.close());
    this.#guarded.delete(name);
    this.#known.delete(name);
    this.watching.forget(name);
  }

  override close(): void {
    for (const name of [...this.#guarded.keys()]) this.forget(name);
    super.close();
  }

  /** The limits that it was made with, also after a change of the configuration. */
  #limitsOf({ limits, labels }: ContainerObject["record"]): Blueprint["limits"] | null {
    if (limits !== null) return watchedOf(limits);
    const { blueprints } = this.#parts;
    const named = Object.values(blueprints).find(({ hash }) => hash === labels.blueprintHash);
    return watchedOf(named?.blueprint.limits ?? {});
  }

  async #guard(object: ContainerObject, containerId: string, limits: Blueprint["limits"]): Promise<Guarded> {
    const { engine } = this.#parts;
    const found = engine.facts.isOnThisHost ? await engine.inspect(containerId) : null;
    const init = found?.State.Pid ?? 0;
    const seen = containerGroup(object.name, init);
    const group = this.heed(object, seen.isCounted ? seen : uncounted(seen, limits));
    const guard = holdsDisk(limits) ? this.diskGuard(object, group, limits, init > 0 ? [init] : []) : null;
    return { group, guard };
  }
}

/** `null` where there are none. */
function watchedOf({ memoryBytes, pidsMax, diskBytes, filesMax }: Blueprint["limits"]): Blueprint["limits"] | null {
  const isLimited = [memoryBytes, pidsMax, diskBytes, filesMax].some((limit) => limit !== undefined);
  return isLimited ? { memoryBytes, pidsMax, diskBytes, filesMax } : null;
}

/** A group without readable counters has only its limits. */
function uncounted(group: LimitGroup, { memoryBytes, pidsMax }: Blueprint["limits"]): LimitGroup {
  const limits = { memoryMaxBytes: memoryBytes ?? null, processMax: pidsMax ?? null };
  return { ...group, usage: () => ({ ...group.usage(), ...limits }) };
}
