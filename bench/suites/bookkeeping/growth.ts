/**
 * Whether the hot path stays fast with many threads: acquire + release while held, with 10 and with 100,000 threads. A
 * Map also gets slower once it no longer fits into the processor's caches, so the result is how much more the fleet
 * slows down than a Map.
 *
 * All sides touch the same keys in the same random order. Both fleets live in one process and therefore in one heap:
 * the running side pays for a full collection that the large one makes expensive, so that growth is not visible here.
 */

import type { Fleet } from "../../../packages/fleet/src/fleet.ts";
import { BareMap } from "../../baselines/bare-map.ts";
import { KeyedMutexMap } from "../../baselines/keyed-mutex-map.ts";
import { interleave, ratios, type Subject, type Timings } from "../../measuring/interleave.ts";
import { type Result, resultOf } from "../../measuring/result.ts";
import { median } from "../../measuring/statistics.ts";
import { openBenchFleet } from "../../stage/bench-fleet.ts";
import { threadNames } from "../../stage/thread-names.ts";
import type { SuiteOptions } from "../suite.ts";

const LIMIT = 1.5;
const FEW = 10;
const MANY = 100_000;
/** The length of the random order before it repeats: every key comes several times. */
const ORDER_LENGTH = 1_000_003;

interface Counter {
  acquire(key: string): Promise<void> | void;
  release(key: string): Promise<void> | void;
}

export async function* growth({ quick }: SuiteOptions): AsyncGenerator<Result> {
  const many = threadNames(MANY);
  const few = many.slice(0, FEW);
  await using small = await openBenchFleet();
  await using large = await openBenchFleet();
  for (const thread of few) await small.acquire({ thread });
  for (const thread of many) await large.acquire({ thread });
  const subjects = [
    fleetSubject("fleet, 10", small, few),
    fleetSubject("fleet, 100,000", large, many),
    bareSubject("Map, 10", few),
    bareSubject("Map, 100,000", many),
    mutexSubject("Map + keyed mutex, 10", few),
    mutexSubject("Map + keyed mutex, 100,000", many),
  ];
  // Long enough for the large tables to be rebuilt once, so that they have their final size.
  const plan = { rounds: quick ? 40 : 250, batch: 2_000, timingsPerRound: 1, warmUp: 200_000 };
  const [fleetFew, fleetMany, mapFew, mapMany, mutexFew, mutexMany] = await interleave(subjects, plan);
  if (!fleetFew || !fleetMany || !mapFew || !mapMany || !mutexFew || !mutexMany) throw new Error("A side is missing.");
  const ours = ratios(fleetMany, fleetFew);
  const oursOfMedians = ofMedians(fleetMany, fleetFew);
  const over = (theirs: readonly number[]) => ours.map((ratio, round) => ratio / (theirs[round] ?? Number.NaN));
  yield resultOf(
    {
      name: "growth-10-to-100000",
      limit: LIMIT,
      about: "(fleet at 100,000 / at 10) / (Map at 100,000 / at 10), keys in the same random order",
    },
    "ns",
    [fleetFew, fleetMany, mapFew, mapMany],
    over(ratios(mapMany, mapFew)),
    oursOfMedians / ofMedians(mapMany, mapFew),
  );
  yield resultOf(
    { name: "growth-over-keyed-mutex", limit: null, about: "the same against a Map with a keyed mutex" },
    "ns",
    [mutexFew, mutexMany],
    over(ratios(mutexMany, mutexFew)),
    oursOfMedians / ofMedians(mutexMany, mutexFew),
  );
  yield resultOf(
    { name: "growth-alone", limit: null, about: "fleet at 100,000 / fleet at 10, not compared with anything" },
    "ns",
    [fleetFew, fleetMany],
    ours,
    oursOfMedians,
  );
}

function ofMedians(many: Timings, few: Timings): number {
  return median(many.samples) / median(few.samples);
}

function fleetSubject(name: string, fleet: Fleet, keys: readonly string[]): Subject {
  const next = inRandomOrder(keys);
  return {
    name,
    async run(count) {
      for (let done = 0; done < count; done += 1) {
        const lease = await fleet.acquire({ thread: next() });
        await lease.release();
      }
    },
  };
}

function bareSubject(name: string, keys: readonly string[]): Subject {
  const map = filled(new BareMap(), keys);
  const next = inRandomOrder(keys);
  return {
    name,
    run(count) {
      for (let done = 0; done < count; done += 1) {
        const key = next();
        map.acquire(key);
        map.release(key);
      }
    },
  };
}

function mutexSubject(name: string, keys: readonly string[]): Subject {
  const map = filled(new KeyedMutexMap(), keys);
  const next = inRandomOrder(keys);
  return {
    name,
    async run(count) {
      for (let done = 0; done < count; done += 1) {
        const key = next();
        await map.acquire(key);
        await map.release(key);
      }
    },
  };
}

/** Every key is held once, like every thread. */
function filled<T extends Counter>(map: T, keys: readonly string[]): T {
  for (const key of keys) void map.acquire(key);
  return map;
}

/** The same numbers for every side, each with its own position. */
const ORDER = Float64Array.from({ length: ORDER_LENGTH }, () => Math.random());

function inRandomOrder(keys: readonly string[]): () => string {
  let turn = 0;
  return () => {
    const key = keys[Math.floor((ORDER[turn % ORDER_LENGTH] ?? 0) * keys.length)];
    turn += 1;
    if (key === undefined) throw new Error("There is no key to touch.");
    return key;
  };
}
