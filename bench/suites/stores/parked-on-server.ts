/**
 * A parked thread is acquired and released again: two changes of state on a server. Against the two bare writes that
 * such a store needs at least; one caller, and sixteen at once.
 */

import { DEFAULT_USER, parseThreadId } from "@sandlot/contract";
import type { Fleet } from "../../../packages/fleet/src/fleet.ts";
import { RowStore } from "../../../packages/fleet/src/store/rows/row-store.ts";
import { systemWorld } from "../../../packages/fleet/src/world/system-world.ts";
import { interleave, type Subject } from "../../measuring/interleave.ts";
import { compare, type Result } from "../../measuring/result.ts";
import { openBenchFleet } from "../../stage/bench-fleet.ts";
import { threadNames } from "../../stage/thread-names.ts";
import type { SuiteOptions } from "../suite.ts";
import { type Bare, type BenchServer, CLIENTS } from "./servers.ts";

const LIMIT = 3;
/** Half of the throughput is twice the time. */
const THROUGHPUT_LIMIT = 2;
/** Parked at the same time. A multiple of the clients: each has its own. */
const THREADS = 96;

interface Rows {
  readonly held: string;
  readonly parked: string;
}

export async function* parkedOnServer(server: BenchServer, { quick }: SuiteOptions): AsyncGenerator<Result> {
  const world = systemWorld();
  const store = new RowStore({ server: await server.openRows("parked"), world });
  await using fleet = await openBenchFleet({ store, world });
  const bare = await server.openBare();
  try {
    const threads = threadNames(THREADS);
    const rows = await parkAll(fleet, store, threads);
    const about = `acquire + release of a parked thread, ${THREADS} in turn, rows of ${rows.parked.length} to ${rows.held.length} bytes`;
    const baseline = `2 × ${server.unit}`;
    const one = { rounds: quick ? 30 : 150, batch: 1, timingsPerRound: 10, warmUp: quick ? 300 : 1_000 };
    const calls = store.counts.calls;
    let operations = 0;
    const ours = fleetSubject(`fleet on ${server.name}`, fleet, threads, 1, () => (operations += 1));
    const [alone, bareAlone] = await interleave([ours, bareSubject(baseline, bare, threads, rows, 1)], one);
    if (alone === undefined || bareAlone === undefined) throw new Error("A side is missing.");
    const trips = ((store.counts.calls - calls) / operations).toFixed(2);
    const naming = { name: `parked-leased-parked-${server.name}`, limit: LIMIT };
    yield compare({ ...naming, about: `${about}; ${trips} round trips each` }, alone, bareAlone);

    const many = { rounds: quick ? 20 : 100, batch: 2 * THREADS, timingsPerRound: 1, warmUp: quick ? 400 : 2_000 };
    const crowd = fleetSubject(`fleet on ${server.name}`, fleet, threads, CLIENTS, () => {});
    const [busy, bareBusy] = await interleave([crowd, bareSubject(baseline, bare, threads, rows, CLIENTS)], many);
    if (busy === undefined || bareBusy === undefined) throw new Error("A side is missing.");
    const together = { name: `${CLIENTS}-clients-${server.name}`, limit: THROUGHPUT_LIMIT };
    yield compare({ ...together, about: `${about}; ${CLIENTS} callers at once, time per operation` }, busy, bareBusy);
  } finally {
    await bare.close();
  }
}

/** The baseline writes what the store has in its record. */
async function parkAll(fleet: Fleet, store: RowStore, threads: readonly string[]): Promise<Rows> {
  let rows: Rows | null = null;
  for (const thread of threads) {
    const lease = await fleet.acquire({ thread });
    const held = await store.find(DEFAULT_USER, parseThreadId(thread));
    await lease.release();
    const parked = await store.find(DEFAULT_USER, parseThreadId(thread));
    rows ??= { held: JSON.stringify(held), parked: JSON.stringify(parked) };
  }
  if (rows === null) throw new Error("There is no thread.");
  return rows;
}

function fleetSubject(
  name: string,
  fleet: Fleet,
  threads: readonly string[],
  clients: number,
  done: () => void,
): Subject {
  return sharedOut(name, threads, clients, async (_, thread) => {
    const lease = await fleet.acquire({ thread });
    await lease.release();
    done();
  });
}

function bareSubject(name: string, bare: Bare, threads: readonly string[], rows: Rows, clients: number): Subject {
  return sharedOut(name, threads, clients, async (client, thread) => {
    await bare.write(client, thread, rows.held);
    await bare.write(client, thread, rows.parked);
  });
}

/** Each client has threads of its own and takes them in turn. */
function sharedOut(
  name: string,
  threads: readonly string[],
  clients: number,
  operation: (client: number, thread: string) => Promise<void>,
): Subject {
  let turn = 0;
  return {
    name,
    async run(count) {
      const perClient = Math.max(1, Math.floor(count / clients));
      const from = turn;
      turn += perClient;
      await Promise.all(
        Array.from({ length: clients }, async (_, client) => {
          const own = threads.filter((_thread, index) => index % clients === client);
          for (let done = 0; done < perClient; done += 1)
            await operation(client, own[(from + done) % own.length] ?? "");
        }),
      );
    },
  };
}
