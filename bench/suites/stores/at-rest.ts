/**
 * Ten instances with 5,000 parked sandboxes and nothing to do: their calls to the server in a second, and the bytes on
 * the wire in both directions. Beats, housekeeping and notifications run at their default intervals.
 */

import { setTimeout as sleep } from "node:timers/promises";
import type { EngineRef } from "@sandlot/contract";
import type { Created, CreateSpec, EngineObject } from "../../../packages/fleet/src/backend/backend.ts";
import type { Fleet } from "../../../packages/fleet/src/fleet.ts";
import { RowStore } from "../../../packages/fleet/src/store/rows/row-store.ts";
import { systemWorld } from "../../../packages/fleet/src/world/system-world.ts";
import { Link } from "../../../tests/chaos/store/link.ts";
import { type Result, resultOf } from "../../measuring/result.ts";
import { openRestingFleet } from "../../stage/bench-fleet.ts";
import { InstantBackend } from "../../stage/instant-backend.ts";
import { threadNames } from "../../stage/thread-names.ts";
import type { SuiteOptions } from "../suite.ts";
import type { BenchServer } from "./servers.ts";

const INSTANCES = 10;
const RECORDS = 5_000;
/** Reservations write the same counts, so more at once would only meet conflicts. */
const AT_ONCE = 2;
const CALLS_LIMIT = 50;
const BYTES_LIMIT = 200_000;
/** Longer than the interval of housekeeping, so that each window has all of it. */
const WINDOW_MS = 15_000;

/** Instances of one engine: each sees what the others have made. */
class SharedBackend extends InstantBackend {
  readonly #objects: Map<EngineRef, EngineObject>;

  constructor(objects: Map<EngineRef, EngineObject>) {
    super();
    this.#objects = objects;
  }

  override async create(spec: CreateSpec): Promise<Created> {
    const created = { ref: `shared:${this.#objects.size + 1}` as EngineRef, place: "home", workspace: "new" } as const;
    this.#objects.set(created.ref, { ...created, labels: spec.labels, liveness: "alive" });
    return created;
  }

  override async list(): Promise<readonly EngineObject[]> {
    return [...this.#objects.values()];
  }
}

export async function* atRest(server: BenchServer, { quick }: SuiteOptions): AsyncGenerator<Result> {
  const world = systemWorld();
  const objects = new Map<EngineRef, EngineObject>();
  await using stack = new AsyncDisposableStack();
  const link = await Link.open({ host: "127.0.0.1", port: server.port });
  stack.defer(() => link.close());
  const stores: RowStore[] = [];
  const fleets: Fleet[] = [];
  while (fleets.length < INSTANCES) {
    const store = new RowStore({ server: await server.openRows("rest", link.port), world });
    stores.push(store);
    fleets.push(stack.use(await openRestingFleet({ store, world, backend: new SharedBackend(objects) })));
  }
  await park(fleets);
  // Until every instance has seen the last changes.
  await sleep(WINDOW_MS);
  const calls: number[] = [];
  const bytes: number[] = [];
  const count = () => stores.reduce((sum, store) => sum + store.counts.calls, 0);
  for (let window = 0; window < (quick ? 2 : 6); window += 1) {
    const [callsBefore, bytesBefore, at] = [count(), link.passedBytes, performance.now()];
    await sleep(WINDOW_MS);
    const seconds = (performance.now() - at) / 1_000;
    calls.push((count() - callsBefore) / seconds);
    bytes.push((link.passedBytes - bytesBefore) / seconds);
  }
  const about = `${INSTANCES} instances, ${RECORDS} parked records, in each second of a window of ${WINDOW_MS / 1_000} s`;
  const callsName = { name: `at-rest-calls-a-second-${server.name}`, limit: CALLS_LIMIT, about };
  yield resultOf(callsName, "calls", [{ name: "calls in all", samples: calls }], calls, middle(calls));
  const bytesName = { name: `at-rest-bytes-a-second-${server.name}`, limit: BYTES_LIMIT, about };
  yield resultOf(bytesName, "bytes", [{ name: "bytes in all", samples: bytes }], bytes, middle(bytes));
}

async function park(fleets: readonly Fleet[]): Promise<void> {
  const threads = [...threadNames(RECORDS)];
  const worker = async (fleet: Fleet) => {
    for (let thread = threads.pop(); thread !== undefined; thread = threads.pop()) {
      const lease = await fleet.acquire({ thread });
      await lease.release();
    }
  };
  const [first] = fleets;
  if (first === undefined) throw new Error("There is no fleet.");
  // One instance makes them all: instances that reserve at once wait for each other.
  await Promise.all(Array.from({ length: AT_ONCE }, () => worker(first)));
}

function middle(samples: readonly number[]): number {
  return samples.toSorted((a, b) => a - b)[samples.length >> 1] ?? Number.NaN;
}
