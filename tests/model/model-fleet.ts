/** One fleet on a tiny engine and the memory store, whose responses come in the order that the scheduler draws. */

import type { Scheduler } from "fast-check";
import type { Settings } from "../../packages/fleet/src/config/settings.ts";
import { assembleFleet } from "../../packages/fleet/src/open-fleet.ts";
import { MemoryStore, newMemoryTables } from "../../packages/fleet/src/store/memory/memory-store.ts";
import type { Store } from "../../packages/fleet/src/store/store.ts";
import { Random } from "../simulation/schedule/random.ts";
import { drawSettings } from "../simulation/workload/draw-settings.ts";
import { TinyEngine } from "./tiny-engine.ts";
import { tinyWorld } from "./tiny-world.ts";

/** Longer than any model run, so that no instance doubts its session because the model's time jumps. */
const FOR_EVER_MS = 1_000_000_000;

export async function openModelFleet(scheduler: Scheduler, autoRestart: boolean) {
  const world = tinyWorld(scheduler);
  const engine = new TinyEngine(scheduler);
  const store = answeringInTurn(new MemoryStore(newMemoryTables(world)), scheduler);
  const drawn = drawSettings(new Random(1));
  const settings: Settings = {
    ...drawn,
    ...{ autoRestart, pool: {}, idleTimeoutMs: 0, maxLifetimeMs: 0, sessionLifetimeMs: FOR_EVER_MS },
    ...{ housekeepingIntervalMs: FOR_EVER_MS, orphanTimeoutMs: FOR_EVER_MS, acquireTimeoutMs: 60_000 },
    limits: { mode: "hard", max: 10, maxPerUser: 0, maxPerEngine: 0, queueMax: 10, onFull: "wait" },
  };
  const opening = assembleFleet({ settings, world, store, backend: engine });
  const fleet = await drained(scheduler, opening);
  return { fleet, engine, close: () => drained(scheduler, fleet.close()) };
}

/** Lets the scheduler deliver responses, in its order, until `promise` has settled. */
export async function drained<T>(scheduler: Scheduler, promise: Promise<T>): Promise<T> {
  let settled = false;
  const done = promise.finally(() => {
    settled = true;
  });
  done.catch(() => undefined);
  while (!settled) {
    if (scheduler.count() > 0) await scheduler.waitOne();
    else await new Promise((resolve) => setImmediate(resolve));
  }
  return done;
}

/** The same store; each response waits for its turn. */
function answeringInTurn(store: MemoryStore, scheduler: Scheduler): Store {
  return new Proxy(store, {
    get(target, name) {
      const member: unknown = Reflect.get(target, name, target);
      if (typeof member !== "function") return member;
      if (name === "watch" || name === "close") return member.bind(target) as unknown;
      return (...args: unknown[]) =>
        scheduler.schedule(Promise.resolve(), String(name)).then(() => member.apply(target, args) as unknown);
    },
  });
}
