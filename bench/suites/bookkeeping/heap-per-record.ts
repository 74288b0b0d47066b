/**
 * What an instance keeps in memory for each held thread: slot, lease, indexes, and the record in the slot.
 *
 * The store forgets records as soon as they are ready and the benchmark keeps neither leases nor thread ids, so the
 * growth is the fleet's, and that of the backend's attachments. The same number of attachments is created alone,
 * weighed, and subtracted. Objects that a fleet has once are too small to matter among so many threads.
 */

import type { EngineRef, Generation, SandboxId, Token } from "@sandlot/contract";
import { systemWorld } from "../../../packages/fleet/src/world/system-world.ts";
import { settledHeapBytes } from "../../measuring/garbage.ts";
import { type Result, resultOf } from "../../measuring/result.ts";
import { median } from "../../measuring/statistics.ts";
import { openBenchFleet } from "../../stage/bench-fleet.ts";
import { forgetfulStore } from "../../stage/forgetful-store.ts";
import { InstantBackend } from "../../stage/instant-backend.ts";
import { threadName } from "../../stage/thread-names.ts";
import type { SuiteOptions } from "../suite.ts";

const LIMIT_BYTES = 2_048;
const THREADS = 100_000;

export async function* heapPerRecord({ quick }: SuiteOptions): AsyncGenerator<Result> {
  // The first few create compiled code and hidden classes, which would be counted as theirs.
  await fleetBytes(2_000, false);
  const repetitions = quick ? 1 : 3;
  const [bare, used, attachments]: [number[], number[], number[]] = [[], [], []];
  for (let repetition = 0; repetition < repetitions; repetition += 1) {
    const attachment = await attachmentBytes(THREADS);
    attachments.push(attachment);
    bare.push((await fleetBytes(THREADS, false)) - attachment);
    used.push((await fleetBytes(THREADS, true)) - attachment);
  }
  const limits = { name: "the limit", samples: bare.map(() => LIMIT_BYTES) };
  const taken = `attachments (${Math.round(attachments[0] ?? 0)} bytes each) are taken off`;
  yield resultOf(
    {
      name: "heap-per-record",
      limit: 1,
      about: `${THREADS.toLocaleString("en")} threads with one lease each; thread ids counted, ${taken}`,
    },
    "bytes",
    [{ name: "fleet", samples: bare }, limits],
    bare.map((bytes) => bytes / LIMIT_BYTES),
    median(bare) / LIMIT_BYTES,
  );
  yield resultOf(
    { name: "heap-per-record-in-use", limit: null, about: "the same after `lease.sandbox.files` was asked for once" },
    "bytes",
    [{ name: "fleet", samples: used }, limits],
    used.map((bytes) => bytes / LIMIT_BYTES),
    median(used) / LIMIT_BYTES,
  );
}

async function fleetBytes(threads: number, touch: boolean): Promise<number> {
  const world = systemWorld();
  await using fleet = await openBenchFleet({ store: forgetfulStore(world), world });
  const before = await settledHeapBytes();
  for (let made = 0; made < threads; made += 1) {
    const lease = await fleet.acquire({ thread: threadName() });
    if (touch) void lease.sandbox.files;
  }
  return ((await settledHeapBytes()) - before) / threads;
}

/** The array exists before, so that only the attachments are weighed. */
async function attachmentBytes(threads: number): Promise<number> {
  const backend = new InstantBackend();
  // Strings that every attachment shares, because the fleet's own ids count as the fleet's.
  const target = {
    sandboxId: "shared" as SandboxId,
    generation: 1 as Generation,
    token: "shared" as Token,
    ref: "shared" as EngineRef,
  };
  const kept = new Array<unknown>(threads).fill(null);
  const before = await settledHeapBytes();
  for (let made = 0; made < threads; made += 1) kept[made] = await backend.attach(target);
  const bytes = ((await settledHeapBytes()) - before) / threads;
  if (kept.length !== threads) throw new Error("Attachments were lost.");
  return bytes;
}
