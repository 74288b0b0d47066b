/**
 * A parked thread is acquired and released again: two changes of state in a SQLite store on a real file. Against the
 * two bare write transactions that such a store needs at least.
 */

import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DEFAULT_USER, type InstanceId, parseThreadId } from "@sandlot/contract";
import type { Fleet } from "../../../packages/fleet/src/fleet.ts";
import { openSqliteStore } from "../../../packages/fleet/src/store/sqlite/sqlite-store.ts";
import type { Store } from "../../../packages/fleet/src/store/store.ts";
import { systemWorld } from "../../../packages/fleet/src/world/system-world.ts";
import { type RawRow, RawSqlite } from "../../baselines/raw-sqlite.ts";
import { interleave, type Subject } from "../../measuring/interleave.ts";
import { compare, type Result } from "../../measuring/result.ts";
import { openBenchFleet } from "../../stage/bench-fleet.ts";
import { threadNames } from "../../stage/thread-names.ts";
import type { SuiteOptions } from "../suite.ts";

const LIMIT = 3;
/** Parked at the same time: enough for several pages, as in a fleet of this size. */
const THREADS = 100;

export async function* parkedLeasedParked(options: SuiteOptions): AsyncGenerator<Result> {
  const directory = await mkdtemp(join(tmpdir(), "sandlot-bench-"));
  try {
    yield* measure(directory, options);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

async function* measure(directory: string, { quick }: SuiteOptions): AsyncGenerator<Result> {
  const world = systemWorld();
  const store = await openSqliteStore({ path: join(directory, "fleet.db"), world });
  await using fleet = await openBenchFleet({ store, world });
  const threads = threadNames(THREADS);
  const rows = await parkAll(fleet, store, threads);
  // In a separate directory: the store watches the one of its file.
  await mkdir(join(directory, "raw"));
  const raw = new RawSqlite(join(directory, "raw", "raw.db"), rows);
  try {
    // One operation per timing: they are long enough for the clock, and their tails are of interest.
    const plan = { rounds: quick ? 60 : 300, batch: 1, timingsPerRound: 20, warmUp: 3_000 };
    const subjects = [
      fleetSubject(fleet, threads),
      storeSubject(store, fleet.instanceId, threads),
      rawSubject(raw, rows),
    ];
    const [ours, steps, baseline] = await interleave(subjects, plan);
    if (ours === undefined || steps === undefined || baseline === undefined) throw new Error("A side is missing.");
    const about = `acquire + release of a parked thread, ${THREADS} in turn, rows of ${rows[0]?.parked.length} to ${rows[0]?.held.length} bytes`;
    yield compare({ name: "parked-leased-parked", limit: LIMIT, about }, ours, baseline);
    const part = "the store's share of it: find + hold + unhold, without a fleet around them";
    yield compare({ name: "parked-leased-parked-store-only", limit: null, about: part }, steps, baseline);
  } finally {
    raw.close();
  }
}

/** Parks every thread once, and records the store's writes: the raw side writes the same text. */
async function parkAll(fleet: Fleet, store: Store, threads: readonly string[]): Promise<readonly RawRow[]> {
  const rows: RawRow[] = [];
  for (const thread of threads) {
    const lease = await fleet.acquire({ thread });
    const held = await store.find(DEFAULT_USER, parseThreadId(thread));
    await lease.release();
    const parked = await store.find(DEFAULT_USER, parseThreadId(thread));
    if (held === null || parked === null) throw new Error("A thread that was just leased has no record.");
    rows.push({ id: parked.sandboxId, held: JSON.stringify(held), parked: JSON.stringify(parked) });
  }
  return rows;
}

function fleetSubject(fleet: Fleet, threads: readonly string[]): Subject {
  const next = inTurn(threads);
  return {
    name: "fleet on SQLite",
    async run(count) {
      for (let done = 0; done < count; done += 1) {
        const lease = await fleet.acquire({ thread: next() });
        await lease.release();
      }
    },
  };
}

/** The same steps on the same file. A session renewal heals unknown holds, and none happens while this runs. */
function storeSubject(store: Store, instance: InstanceId, threads: readonly string[]): Subject {
  const next = inTurn(threads.map(parseThreadId));
  return {
    name: "SQLite store alone",
    async run(count) {
      for (let done = 0; done < count; done += 1) {
        const record = await store.find(DEFAULT_USER, next());
        if (record === null) throw new Error("A parked sandbox has no record.");
        const { sandboxId, generation } = record;
        // The highest counter: the fleet's own holds of this record are over by now.
        const request = { sandboxId, generation, instance, seq: Number.MAX_SAFE_INTEGER };
        await store.hold(request);
        await store.unhold({ ...request, used: true });
      }
    },
  };
}

function rawSubject(raw: RawSqlite, rows: readonly RawRow[]): Subject {
  const next = inTurn(rows);
  return {
    name: "2 raw transactions",
    run(count) {
      for (let done = 0; done < count; done += 1) {
        const { id, held, parked } = next();
        raw.write(id, 1, held);
        raw.write(id, 0, parked);
      }
    },
  };
}

function inTurn<T>(items: readonly T[]): () => T {
  let turn = 0;
  return () => {
    const item = items[turn % items.length];
    turn += 1;
    if (item === undefined) throw new Error("There is nothing to take turns with.");
    return item;
  };
}
