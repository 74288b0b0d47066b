/** A caller that waits for room: how many calls to the server it costs beside what its instance does anyway. */

import { setTimeout as sleep } from "node:timers/promises";
import { RowStore } from "../../../packages/fleet/src/store/rows/row-store.ts";
import { systemWorld } from "../../../packages/fleet/src/world/system-world.ts";
import { type Result, resultOf } from "../../measuring/result.ts";
import { openBenchFleet } from "../../stage/bench-fleet.ts";
import type { SuiteOptions } from "../suite.ts";
import type { BenchServer } from "./servers.ts";

/** Calls in a second. */
const LIMIT = 1;
/** One by itself, and as many as share a look at the store. */
const WAITERS = [1, 8];

export async function* waiter(server: BenchServer, options: SuiteOptions): AsyncGenerator<Result> {
  for (const waiters of WAITERS) yield await measure(server, waiters, options);
}

async function measure(server: BenchServer, waiters: number, { quick }: SuiteOptions): Promise<Result> {
  const world = systemWorld();
  const seconds = quick ? 5 : 20;
  const openStore = async () => new RowStore({ server: await server.openRows(`waiter-${waiters}`), world });
  const [store, other] = [await openStore(), await openStore()];
  const limits = { max: 1, queueMax: 100 };
  await using holder = await openBenchFleet({ store: other, world, limits });
  await using fleet = await openBenchFleet({ store, world, limits });
  await using _held = await holder.acquire({ thread: "held" });
  const idle = await callsPerSecond(store, seconds);
  const giveUp = new AbortController();
  const waiting = Array.from({ length: waiters }, (_, index) =>
    fleet.acquire({ thread: `waiting-${index}`, timeoutMs: 600_000, signal: giveUp.signal }).catch(() => null),
  );
  await sleep(1_000);
  const samples = await callsPerSecond(store, seconds);
  giveUp.abort("measured");
  await Promise.all(waiting);
  const name = `${waiters}-waiters-calls-a-second-${server.name}`;
  const about = `${waiters} callers of one instance wait for room that another instance has; calls of that instance in each second beside its own, per waiter`;
  const sides = [
    { name: "with waiters", samples },
    { name: "without", samples: idle },
  ];
  // A second has two looks now and then, so the mean of all seconds counts.
  const perWaiter = [(mean(samples) - mean(idle)) / waiters];
  return resultOf({ name, limit: LIMIT, about }, "calls", sides, perWaiter, mean(perWaiter));
}

async function callsPerSecond(store: RowStore, seconds: number): Promise<readonly number[]> {
  const samples: number[] = [];
  for (let second = 0; second < seconds; second += 1) {
    const before = store.counts.calls;
    await sleep(1_000);
    samples.push(store.counts.calls - before);
  }
  return samples;
}

function mean(samples: readonly number[]): number {
  return samples.reduce((sum, sample) => sum + sample, 0) / samples.length;
}
