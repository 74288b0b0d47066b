/** Settings of one run, small in virtual time and varied by the seed. */

import type { BlueprintHash, FleetId } from "@sandlot/contract";
import { type Blueprint, hashBlueprint } from "../../../packages/fleet/src/backend/blueprint.ts";
import { resolveSettings } from "../../../packages/fleet/src/config/resolve-settings.ts";
import type { Settings } from "../../../packages/fleet/src/config/settings.ts";
import type { Random } from "../schedule/random.ts";

const FLEET = "fleet-under-test" as FleetId;

const BLUEPRINT: Blueprint = { environment: {}, limits: {}, mounts: [], network: { mode: "none", allow: [] } };
const HASH: BlueprintHash = hashBlueprint("simulated", BLUEPRINT);
const OTHER: Blueprint = { ...BLUEPRINT, environment: { BLUEPRINT: "other" } };
const OTHER_HASH: BlueprintHash = hashBlueprint("simulated", OTHER);
/** The blueprints that callers may request. */
export const BLUEPRINT_NAMES = ["default", "other"] as const;
const USERS = ["ada", "bob", "cy"];
/** Options of other backends have no meaning for the simulated one. */
const OTHERS = resolveSettings({ backend: "memory", store: { type: "memory" } }, { SANDLOT_HOME: "/simulated" });

/** `more` is for later additions, so that the rest of a run stays the same. */
export function drawSettings(random: Random, more: Random = random): Settings {
  const pool = random.pick([0, 0, 1, 2]);
  const others = pool > 0 && more.chance(0.4) ? 1 : 0;
  return {
    ...OTHERS,
    home: "/simulated",
    // They would change nothing but the number of calls: `workload/restores.ts` takes some.
    checkpoints: { ...OTHERS.checkpoints, automatic: false },
    fleetId: FLEET,
    backend: "memory",
    store: { type: "memory" },
    blueprints: {
      default: { name: "default", hash: HASH, blueprint: BLUEPRINT },
      other: { name: "other", hash: OTHER_HASH, blueprint: OTHER },
    },
    pool: pool === 0 ? {} : { default: pool, ...(others === 0 ? {} : { other: others }) },
    limits: {
      mode: random.chance(0.7) ? "hard" : "soft",
      max: random.between(2, 8),
      maxPerUser: random.pick([0, 0, 1, 2, 3]),
      maxPerEngine: 0,
      users: drawUsers(more),
      queueMax: random.between(0, 4),
      onFull: random.chance(0.5) ? "wait" : "reject",
    },
    idleTimeoutMs: random.pick([0, 12_000, 25_000, 60_000]),
    maxLifetimeMs: random.pick([0, 0, 30_000, 90_000]),
    orphanTimeoutMs: random.pick([5_000, 15_000]),
    acquireTimeoutMs: random.pick([6_000, 15_000]),
    sessionLifetimeMs: 10_000,
    stopTimeoutMs: random.pick([1_500, 4_000]),
    housekeepingIntervalMs: random.pick([1_500, 4_000]),
    autoRestart: random.chance(0.7),
    leakDetection: { afterMs: random.pick([0, 20_000]), captureStacks: false },
    activity: { cpuShareMin: 0.05, previewQuietMs: 10_000 },
  };
}

/** The fleet has room for several engines, and sometimes each of them has a limit of its own. */
export function forEngines(settings: Settings, random: Random): Settings {
  const limits = { ...settings.limits, max: random.between(5, 12), maxPerEngine: random.pick([0, 0, 3, 4, 5]) };
  return { ...settings, limits };
}

/** Individual limits for some users, in some runs; 0: none. */
function drawUsers(random: Random): Record<string, { readonly max: number }> {
  if (random.chance(0.6)) return {};
  return Object.fromEntries(
    USERS.filter(() => random.chance(0.5)).map((user) => [user, { max: random.between(0, 3) }]),
  );
}
