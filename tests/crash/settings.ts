/**
 * Shared by every process of a run: the fleet's settings, with short times, and the threads in use.
 *
 * A session lives a few seconds at most, so that a stopped process is declared dead within the run, and housekeeping
 * happens several times in a session's life. Six threads, and callers without one, share eight places with two blanks: there is room most
 * of the time, and often enough none, so that a sandbox must be evicted.
 */

import type { FleetId } from "@sandlot/contract";
import { type Blueprint, hashBlueprint } from "../../packages/fleet/src/backend/blueprint.ts";
import { resolveSettings } from "../../packages/fleet/src/config/resolve-settings.ts";
import type { Settings } from "../../packages/fleet/src/config/settings.ts";
import type { StoreAddress } from "./database/store-address.ts";

export const FLEET = "fleet-under-fire" as FleetId;
export const BACKEND = "crash-engine";

const BLUEPRINT: Blueprint = { environment: {}, limits: {}, mounts: [], network: { mode: "none", allow: [] } };
/** How long a step of a store on a server may take: less than half of a session's life. */
export const STEP_MS = 1_800;

/** A server and its clients need the processor in turns, which takes its time on a small machine. */
const TIMES = {
  file: { sessionLifetimeMs: 1_500, housekeepingIntervalMs: 250 },
  server: { sessionLifetimeMs: 4_000, housekeepingIntervalMs: 700 },
} as const;

export function timesWith(store: StoreAddress): (typeof TIMES)["file" | "server"] {
  return store.type === "postgres" || store.type === "redis" ? TIMES.server : TIMES.file;
}
export const RECORDS_MAX = 8;

export function settingsFor(home: string, store: StoreAddress): Settings {
  return {
    // The settings of other backends have no meaning here.
    ...resolveSettings({ backend: "memory", store: { type: "memory" } }, { SANDLOT_HOME: home }),
    home,
    fleetId: FLEET,
    backend: "memory",
    store,
    blueprints: { default: { name: "default", hash: hashBlueprint(BACKEND, BLUEPRINT), blueprint: BLUEPRINT } },
    pool: { default: 2 },
    limits: { mode: "hard", max: RECORDS_MAX, maxPerUser: 4, maxPerEngine: 0, queueMax: 20, onFull: "wait" },
    idleTimeoutMs: 1_500,
    maxLifetimeMs: 12_000,
    orphanTimeoutMs: 2_000,
    acquireTimeoutMs: 3_000,
    ...timesWith(store),
    stopTimeoutMs: 2_000,
    autoRestart: true,
    leakDetection: { afterMs: 0, captureStacks: false },
    activity: { cpuShareMin: 0.05, previewQuietMs: 1_000 },
  };
}

export interface ThreadOf {
  readonly user: string;
  readonly thread: string;
  /** Whether it may be deleted. Everything written in the others must be there at the end. */
  readonly purgeable: boolean;
}

export const THREADS: readonly ThreadOf[] = ["ann", "bob"].flatMap((user) =>
  ["t1", "t2", "t3"].map((thread) => ({ user, thread, purgeable: thread === "t3" })),
);

/** `user/thread`, as the ledger names the owner of a workspace. */
export function ownerOf({ user, thread }: { readonly user: string; readonly thread: string }): string {
  return `${user}/${thread}`;
}
