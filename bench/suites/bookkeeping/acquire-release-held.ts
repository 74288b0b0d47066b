/** One more lease on a held slot: the hot path, in memory only. Against a Map with a keyed mutex. */

import type { Fleet } from "../../../packages/fleet/src/fleet.ts";
import { KeyedMutexMap } from "../../baselines/keyed-mutex-map.ts";
import { interleave, type Subject } from "../../measuring/interleave.ts";
import { compare, type Result } from "../../measuring/result.ts";
import { openBenchFleet } from "../../stage/bench-fleet.ts";
import { threadName } from "../../stage/thread-names.ts";
import type { SuiteOptions } from "../suite.ts";

const LIMIT = 4;

export async function* acquireReleaseHeld({ quick }: SuiteOptions): AsyncGenerator<Result> {
  const thread = threadName();
  await using plain = await openBenchFleet();
  // Long enough that no leak is reported meanwhile; the configuration refuses stacks without a report.
  await using tracing = await openBenchFleet({ leakDetection: { captureStacks: true, afterMs: 3_600_000 } });
  await using _plainHolder = await plain.acquire({ thread });
  await using _tracingHolder = await tracing.acquire({ thread });

  const plan = { rounds: quick ? 60 : 400, batch: 1_000, timingsPerRound: 1, warmUp: 50_000 };
  const [ours, traced, baseline] = await interleave(
    [fleetSubject("fleet", plain, thread), fleetSubject("fleet with stacks", tracing, thread), mapSubject(thread)],
    plan,
  );
  if (ours === undefined || traced === undefined || baseline === undefined) throw new Error("A side is missing.");
  const about = "acquire + release of one thread while another lease holds it; nobody else asks for it";
  yield compare({ name: "acquire-release-held", limit: LIMIT, about }, ours, baseline);
  yield compare(
    { name: "acquire-release-held-with-stacks", limit: null, about: `${about}; leakDetection.captureStacks is on` },
    traced,
    baseline,
  );
}

function fleetSubject(name: string, fleet: Fleet, thread: string): Subject {
  return {
    name,
    async run(count) {
      for (let done = 0; done < count; done += 1) {
        const lease = await fleet.acquire({ thread });
        await lease.release();
      }
    },
  };
}

function mapSubject(key: string): Subject {
  const map = new KeyedMutexMap();
  return {
    name: "Map + keyed mutex",
    async run(count) {
      for (let done = 0; done < count; done += 1) {
        await map.acquire(key);
        await map.release(key);
      }
    },
  };
}
