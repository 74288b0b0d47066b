/**
 * Limits by control groups, one group per sandbox: `sandlot/<fleet>/<name>` below the place where groups may be
 * created.
 *
 * Invariants
 * - A group that `create` could not finish is removed by `create`. Without a group, nothing of ours is in the tree.
 * - Killing spares the given pids. A fork bomb loses the right to start processes meanwhile.
 */

import { readdirSync } from "node:fs";
import { join } from "node:path";
import { type FleetId, SandlotError } from "@sandlot/contract";
import { sleep } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import {
  type Dialect,
  makeDirectory,
  read,
  readCounter,
  readNumber,
  readPids,
  removeDirectory,
} from "./group-files.ts";
import type { Controller } from "./hierarchy.ts";
import {
  GROUP_NAME_PATTERN,
  type LimitEvents,
  type LimitGroup,
  type LimitHits,
  type RequestedLimits,
} from "./limits.ts";
import { commandRlimits, startRlimits } from "./rlimits.ts";
import { startPrefix } from "./start-prefix.ts";

const PARENT = "sandlot";
/** No sandbox's group can have such a name. */
const TRIAL = ".trial-";
/** The kernel frees a group a moment after its last process. Longer means that something still runs. */
const RELEASE_TIMEOUT_MS = 5_000;
const RELEASE_RETRY_MS = { first: 1, most: 100 } as const;
/** Rounds of killing: a process that was being started in one round shows up in the next. */
const KILL_ROUNDS = 50;
/** A few new processes are the ordinary case. A fork bomb starts more in every round. */
const ROUNDS_BEFORE_HOLDING = 2;

export class ControlGroups {
  readonly #dialect: Dialect;
  readonly #controllers: ReadonlySet<Controller>;
  readonly #parent: string;
  readonly #world: World;

  /** Creates a group and removes it; throws the system's error when that is not permitted. */
  constructor(dialect: Dialect, controllers: ReadonlySet<Controller>, fleetId: FleetId, world: World) {
    this.#dialect = dialect;
    this.#controllers = controllers;
    this.#parent = join(PARENT, fleetId);
    this.#world = world;
    this.#sweepTrials();
    this.#tryOut();
  }

  create(name: string, requested: RequestedLimits): LimitGroup {
    checkName(name);
    try {
      this.#make(name, requested);
    } catch (error) {
      // Another process of the fleet may have just removed the parent together with its own last group.
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
      this.#make(name, requested);
    }
    return this.#group(name, requested);
  }

  open(name: string): LimitGroup {
    checkName(name);
    return this.#group(name, {});
  }

  findGroups(): readonly string[] {
    const names = this.#dialect.directoriesOf(this.#parent).flatMap(groupsIn);
    return [...new Set(names)].filter((name) => GROUP_NAME_PATTERN.test(name)).sort();
  }

  close(): void {
    this.#removeParents();
  }

  #make(name: string, requested: RequestedLimits): void {
    try {
      this.#dialect.prepare(this.#parent);
      for (const directory of this.#directories(name)) makeDirectory(directory);
      this.#dialect.setLimits(join(this.#parent, name), settable(requested, this.#controllers));
    } catch (error) {
      for (const directory of this.#directories(name)) removeDirectory(directory);
      this.#removeParents();
      throw error;
    }
  }

  /**
   * Removes trial groups of fleets that were killed while opening. A fleet that opens at this moment may lose its own
   * trial group without harm: its removal tolerates a missing group, and its next group is created with all parents.
   * The kernel keeps a group with processes. A failure here does not keep a fleet from opening.
   */
  #sweepTrials(): void {
    for (const parent of this.#dialect.directoriesOf(this.#parent)) {
      for (const name of groupsIn(parent).filter((group) => group.startsWith(TRIAL))) {
        try {
          removeDirectory(join(parent, name));
        } catch {}
      }
    }
  }

  /** The parent directories may belong to another account, so only a trial shows. */
  #tryOut(): void {
    const trial = join(this.#parent, `${TRIAL}${this.#world.randomHex(8)}`);
    const directories = this.#dialect.directoriesOf(trial);
    try {
      this.#dialect.prepare(this.#parent);
      for (const directory of directories) makeDirectory(directory);
    } finally {
      for (const directory of directories) removeDirectory(directory);
      this.#removeParents();
    }
  }

  /** They exist as long as there is a group. One that cannot be removed is in use, or another account's. */
  #removeParents(): void {
    for (const group of [this.#parent, PARENT]) {
      for (const path of this.#dialect.directoriesOf(group)) {
        try {
          removeDirectory(path);
        } catch {}
      }
    }
  }

  #group(name: string, requested: RequestedLimits): LimitGroup {
    const unheld = {
      ...(!this.#controllers.has("memory") &&
        requested.memoryBytes !== undefined && { memoryBytes: requested.memoryBytes }),
      ...(!this.#controllers.has("pids") && requested.pidsMax !== undefined && { pidsMax: requested.pidsMax }),
    };
    return {
      name,
      startPrefix: [...startPrefix(this.#entries(name)), ...startRlimits(requested)],
      commandPrefix: commandRlimits(unheld),
      isCounted: this.#controllers.has("memory") || this.#controllers.has("pids"),
      processes: () => this.#processes(name),
      events: () => this.#events(name),
      hits: () => this.#hits(name),
      usage: () => this.#usage(name),
      killExcept: (keep) => this.#killExcept(name, new Set(keep)),
      release: () => this.#release(name),
    };
  }

  #directories(name: string): readonly string[] {
    return this.#dialect.directoriesOf(join(this.#parent, name));
  }

  #entries(name: string): readonly string[] {
    return this.#directories(name).map((path) => join(path, this.#dialect.entry));
  }

  #directoryFor(name: string, controller: Controller | "cpuacct"): string | null {
    return this.#dialect.directoryFor(join(this.#parent, name), controller);
  }

  #processes(name: string): readonly number[] {
    return [...new Set(this.#directories(name).flatMap(readPids))];
  }

  #events(name: string): LimitEvents {
    const cpuThrottles = readCounter(this.#directoryFor(name, "cpu"), "cpu.stat", "nr_throttled");
    return { ...this.#hits(name), cpuThrottles };
  }

  #hits(name: string): LimitHits {
    const memory = this.#directoryFor(name, "memory");
    return {
      oomKills: readCounter(memory, this.#dialect.version === 1 ? "memory.oom_control" : "memory.events", "oom_kill"),
      pidsRefusals: readCounter(this.#directoryFor(name, "pids"), "pids.events", "max"),
    };
  }

  #usage(name: string): ReturnType<LimitGroup["usage"]> {
    const memory = this.#directoryFor(name, "memory");
    const pids = this.#directoryFor(name, "pids");
    const [used, most] = this.#dialect.version === 1 ? V1_MEMORY : V2_MEMORY;
    return {
      memoryBytes: readNumber(memory, used),
      memoryMaxBytes: readNumber(memory, most),
      processCount: readNumber(pids, "pids.current"),
      processMax: readNumber(pids, "pids.max"),
      cpuMs: this.#cpuMs(name),
    };
  }

  #cpuMs(name: string): number | null {
    if (this.#dialect.version === 2) {
      const microseconds = readCounter(this.#directoryFor(name, "cpu"), "cpu.stat", "usage_usec");
      return microseconds === null ? null : microseconds / 1_000;
    }
    const nanoseconds = readNumber(this.#directoryFor(name, "cpuacct"), "cpuacct.usage");
    return nanoseconds === null ? null : nanoseconds / 1e6;
  }

  #killExcept(name: string, keep: ReadonlySet<number>): readonly number[] {
    const group = join(this.#parent, name);
    const pidsMax = read(this.#directoryFor(name, "pids"), "pids.max")?.trim();
    const canHold = pidsMax !== undefined && this.#controllers.has("pids");
    const killed = new Set<number>();
    let isHeld = false;
    try {
      for (let round = 0; round < KILL_ROUNDS; round += 1) {
        const victims = this.#processes(name).filter((pid) => !keep.has(pid) && !killed.has(pid));
        if (victims.length === 0) break;
        if (round === ROUNDS_BEFORE_HOLDING && canHold) {
          this.#dialect.setLimits(group, { pidsMax: 0 });
          isHeld = true;
        }
        for (const pid of victims) if (kill(pid)) killed.add(pid);
      }
    } finally {
      if (isHeld) this.#dialect.setLimits(group, { pidsMax: pidsMax === "max" ? "max" : Number(pidsMax) });
    }
    return [...killed];
  }

  async #release(name: string): Promise<void> {
    const deadline = this.#world.monotonicMs() + RELEASE_TIMEOUT_MS;
    for (let pause: number = RELEASE_RETRY_MS.first; ; pause = Math.min(pause * 2, RELEASE_RETRY_MS.most)) {
      // All or nothing: otherwise a process that is entering the trees would get into some of them only.
      const empty = this.#processes(name).length === 0;
      if (empty && this.#directories(name).filter((path) => !removeDirectory(path)).length === 0)
        return this.#removeParents();
      if (this.#world.monotonicMs() > deadline) throw notEmpty(name, this.#processes(name));
      await sleep(this.#world, pause);
    }
  }
}

const V1_MEMORY = ["memory.usage_in_bytes", "memory.limit_in_bytes"] as const;
const V2_MEMORY = ["memory.current", "memory.max"] as const;

function settable(requested: RequestedLimits, controllers: ReadonlySet<Controller>) {
  return {
    ...(controllers.has("memory") && requested.memoryBytes !== undefined && { memoryBytes: requested.memoryBytes }),
    ...(controllers.has("cpu") && requested.cpuCount !== undefined && { cpuCount: requested.cpuCount }),
    ...(controllers.has("cpu") && requested.cpuWeight !== undefined && { cpuWeight: requested.cpuWeight }),
    ...(controllers.has("pids") && requested.pidsMax !== undefined && { pidsMax: requested.pidsMax }),
  };
}

function groupsIn(directory: string): readonly string[] {
  try {
    return readdirSync(directory, { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map(({ name }) => name);
  } catch {
    return [];
  }
}

function checkName(name: string): void {
  if (!GROUP_NAME_PATTERN.test(name)) throw new SandlotError("internal", { problem: `${name} cannot name a group` });
}

/** A missing process was already killed. */
function kill(pid: number): boolean {
  try {
    process.kill(pid, "SIGKILL");
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ESRCH") return true;
    throw error;
  }
}

function notEmpty(name: string, pids: readonly number[]): SandlotError {
  const left = pids.length === 0 ? "none that shows" : pids.join(", ");
  return new SandlotError("internal", { problem: `the control group ${name} still has processes: ${left}` });
}
