/**
 * Finds out by trying which limits this process can enforce: it creates a group for the fleet, and processes limit
 * themselves where groups cannot.
 */

import { join } from "node:path";
import type { FleetId } from "@sandlot/contract";
import type { World } from "../../world/world.ts";
import { ControlGroups } from "./control-groups.ts";
import { describeLimits } from "./describe.ts";
import { type Dialect, read, versionOne, versionTwo } from "./group-files.ts";
import { CONTROLLERS, type Controller, findHierarchies, type Hierarchies } from "./hierarchy.ts";
import type { LimitGroup, Limits, RequestedLimits } from "./limits.ts";
import { commandRlimits, startRlimits } from "./rlimits.ts";
import { startPrefix } from "./start-prefix.ts";

export interface LimitsOptions {
  readonly fleetId: FleetId;
  readonly world: World;
  /** `never` does not use control groups: limits of processes only. */
  readonly controlGroups?: "auto" | "never";
  /** The machine's file system root, for tests. */
  readonly root?: string;
  /** Whether this process is root; others get at most their own group in version 2. */
  readonly isRoot?: boolean;
}

export function openLimits(options: LimitsOptions): Limits {
  const { fleetId, world, controlGroups = "auto" } = options;
  if (controlGroups === "never") return withoutGroups("control groups are switched off in the configuration");
  const hierarchies = findHierarchies(options.root);
  const isRoot = options.isRoot ?? process.geteuid?.() === 0;
  const [dialect, controllers] = dialectOf(hierarchies, isRoot);
  if (dialect === null) return withoutGroups("this machine shows no control groups with memory, cpu or pids");
  try {
    const groups = new ControlGroups(dialect, controllers, fleetId, world);
    const missing = CONTROLLERS.filter((controller) => !controllers.has(controller));
    const description = describeLimits(
      dialect.version,
      controllers,
      `there is no controller for ${missing.join(", ")}`,
    );
    return {
      description,
      create: (name, requested) => groups.create(name, requested),
      open: (name) => groups.open(name),
      findGroups: () => groups.findGroups(),
      close: () => groups.close(),
    };
  } catch (error) {
    return withoutGroups(`control groups cannot be made: ${(error as Error).message}`);
  }
}

/** Version 1 where it has a controller: on a machine with both, version 2 then lacks it. */
function dialectOf(hierarchies: Hierarchies, isRoot: boolean): [Dialect | null, ReadonlySet<Controller>] {
  const { trees, unified, ownUnified } = hierarchies;
  const inTrees = CONTROLLERS.filter((controller) => trees[controller] !== undefined);
  if (inTrees.length > 0) return [versionOne(trees), new Set(inTrees)];
  if (unified === null) return [null, new Set()];
  const base = isRoot ? "/" : ownUnified;
  const available = (read(join(unified, base), "cgroup.controllers") ?? "").trim().split(" ");
  const controllers = CONTROLLERS.filter((controller) => available.includes(controller));
  if (controllers.length === 0) return [null, new Set()];
  return [versionTwo({ mountPoint: unified, base, controllers, ownPid: process.pid }), new Set(controllers)];
}

function withoutGroups(missing: string): Limits {
  const groupOf = (name: string, requested: RequestedLimits): LimitGroup => ({
    name,
    startPrefix: [...startPrefix([]), ...startRlimits(requested)],
    commandPrefix: commandRlimits({
      ...(requested.memoryBytes !== undefined && { memoryBytes: requested.memoryBytes }),
      ...(requested.pidsMax !== undefined && { pidsMax: requested.pidsMax }),
    }),
    isCounted: false,
    processes: () => null,
    events: () => ({ oomKills: null, pidsRefusals: null, cpuThrottles: null }),
    hits: () => ({ oomKills: null, pidsRefusals: null }),
    usage: () => ({ memoryBytes: null, memoryMaxBytes: null, processCount: null, processMax: null, cpuMs: null }),
    killExcept: () => [],
    release: async () => {},
  });
  return {
    description: describeLimits(null, new Set(), missing),
    create: groupOf,
    open: (name) => groupOf(name, {}),
    findGroups: () => [],
    close: () => {},
  };
}
