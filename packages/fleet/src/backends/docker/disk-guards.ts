/**
 * Disk budgets of sandboxes whose blueprint has one. The engine limits no directory of the host, so the workspace is watched
 * there, as the local backend does it: writes through the API are refused beyond the budget, and commands that write past it
 * are stopped, in the container's control group where this process may look into it, otherwise through the daemon.
 *
 * Watched from when this process first makes, reaches or sees a container until it is destroyed, also while it is parked.
 */

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Sandbox } from "@sandlot/contract";
import type { Settings } from "../../config/settings.ts";
import { Layout as DiskLayout, slotNameOf, USER_DATA } from "../../workspace/disk/layout.ts";
import type { World } from "../../world/world.ts";
import { DiskGuard, DiskWatcher, type LimitGroup, limitedSandbox } from "../local/limits/index.ts";
import type { Layout, ObjectName } from "../local/objects/layout.ts";
import type { Engine } from "./engine/engine.ts";
import type { ContainerObject } from "./objects/container-objects.ts";

export interface DiskGuardsParts {
  readonly world: World;
  readonly engine: Engine;
  readonly layout: Layout;
  readonly blueprints: Settings["blueprints"];
  readonly onProblem: (error: unknown) => void;
}

interface Guarded {
  readonly guard: DiskGuard;
  readonly group: LimitGroup;
}

export class DiskGuards {
  readonly #parts: DiskGuardsParts;
  readonly #watcher: DiskWatcher;
  readonly #disk: DiskLayout;
  readonly #guarded = new Map<ObjectName, Promise<Guarded | null>>();

  constructor(parts: DiskGuardsParts) {
    this.#parts = parts;
    this.#watcher = new DiskWatcher({ world: parts.world });
    this.#disk = new DiskLayout(parts.layout.root);
  }

  /** Whether any blueprint has a budget. */
  get isNeeded(): boolean {
    return Object.values(this.#parts.blueprints).some(({ hash }) => this.guards(hash));
  }

  /** Whether a blueprint of this hash has one. Asks nobody. */
  guards(blueprintHash: string): boolean {
    return this.#budgetOf(blueprintHash) !== null;
  }

  /** Begins to watch, where there is something to watch. */
  watch(object: ContainerObject): Promise<Guarded | null> {
    const known = this.#guarded.get(object.name);
    if (known !== undefined) return known;
    const budget = this.#budgetOf(object.record.labels.blueprintHash);
    const { container } = object;
    if (budget === null || container === null) return Promise.resolve(null);
    const guarded = this.#guard(object, container.containerId, budget).catch((error: unknown) => {
      // Asked again by whoever comes next.
      this.#guarded.delete(object.name);
      this.#parts.onProblem(error);
      return null;
    });
    this.#guarded.set(object.name, guarded);
    return guarded;
  }

  /** The sandbox as it is given out. */
  async limited(object: ContainerObject, sandbox: Sandbox): Promise<Sandbox> {
    const guarded = await this.watch(object);
    return guarded === null ? sandbox : limitedSandbox(sandbox, guarded.group, guarded.guard);
  }

  forget(name: ObjectName): void {
    void this.#guarded.get(name)?.then((guarded) => guarded?.guard.close());
    this.#guarded.delete(name);
  }

  close(): void {
    for (const name of [...this.#guarded.keys()]) this.forget(name);
    this.#watcher.close();
  }

  #budgetOf(blueprintHash: string): { diskBytes?: number | undefined; filesMax?: number | undefined } | null {
    const named = Object.values(this.#parts.blueprints).find(({ hash }) => hash === blueprintHash);
    const { diskBytes, filesMax } = named?.blueprint.limits ?? {};
    return diskBytes === undefined && filesMax === undefined ? null : { diskBytes, filesMax };
  }

  async #guard(
    object: ContainerObject,
    containerId: string,
    budget: { diskBytes?: number | undefined; filesMax?: number | undefined },
  ): Promise<Guarded> {
    const { engine, onProblem } = this.#parts;
    const found = await engine.inspect(containerId);
    const init = engine.facts.isOnThisHost ? (found?.State.Pid ?? 0) : 0;
    const group = groupOf(object.name, init);
    const place = () => this.#placeOf(object);
    const guard = new DiskGuard(this.#watcher, { group, place, ...budget, spare: init > 0 ? [init] : [], onProblem });
    return { guard, group };
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

const NOT_COUNTED = { oomKills: null, pidsRefusals: null, cpuThrottles: null };
const NOT_MEASURED = { memoryBytes: null, memoryMaxBytes: null, processCount: null, processMax: null, cpuMs: null };
/** Where version 1 has the controller that every engine uses, and where version 2 is. */
const MOUNTS = [
  { pattern: /^\d+:pids:(\/.+)$/m, mount: "/sys/fs/cgroup/pids" },
  { pattern: /^0::(\/.+)$/m, mount: "/sys/fs/cgroup" },
];

/** A container's own group, as far as it matters here: who is in it, and how to end them. The engine has the rest. */
function groupOf(name: string, init: number): LimitGroup {
  const file = process.getuid?.() === 0 && init > 0 ? processesFile(init) : null;
  const processes = () => (file === null ? null : readPids(file));
  return {
    name,
    startPrefix: [],
    commandPrefix: [],
    isCounted: false,
    processes,
    events: () => NOT_COUNTED,
    hits: () => NOT_COUNTED,
    usage: () => NOT_MEASURED,
    killExcept: (keep) => (processes() ?? []).filter((pid) => !keep.includes(pid) && tryKill(pid)),
    release: async () => {},
  };
}

/** `null` where the group of a container cannot be looked into, such as from another container. */
function processesFile(init: number): string | null {
  const groups = tryRead(`/proc/${init}/cgroup`) ?? "";
  const files = MOUNTS.flatMap(({ pattern, mount }) => {
    const path = pattern.exec(groups)?.[1];
    return path === undefined ? [] : [join(mount, path, "cgroup.procs")];
  });
  return files.find((file) => readPids(file)?.includes(init) === true) ?? null;
}

function readPids(file: string): readonly number[] | null {
  const text = tryRead(file);
  return text === null ? null : text.split("\n").filter(Boolean).map(Number);
}

function tryRead(path: string): string | null {
  try {
    return readFileSync(path, "latin1");
  } catch {
    return null;
  }
}

function tryKill(pid: number): boolean {
  try {
    process.kill(pid, "SIGKILL");
    return true;
  } catch {
    return false;
  }
}
