/**
 * From the acquire of a new thread to the end of its first command, with a blank in the pool, against one spawn on the
 * host.
 */

import { setTimeout as sleep } from "node:timers/promises";
import type { Lease } from "../../../packages/fleet/src/fleet.ts";
import { spawnTrue } from "../../baselines/host-process.ts";
import { interleave, type Subject } from "../../measuring/interleave.ts";
import { compare, type Result } from "../../measuring/result.ts";
import { type LocalFleet, openLocalFleet } from "../../stage/local-fleet.ts";
import type { SuiteOptions } from "../suite.ts";

const LIMIT = 3;
const POOL = 2;
const PATIENCE_MS = 60_000;

export async function* blankAcquire({ quick }: SuiteOptions): AsyncGenerator<Result> {
  // Creating the next blank at the same time would be measured too; it happens before the next timing instead.
  await using local = await openLocalFleet({ pool: { default: POOL }, housekeepingIntervalMs: 1_000 });
  const subjects = [subject(local), { name: "spawn on the host", run: () => spawnTrue() }];
  const plan = { rounds: quick ? 8 : 30, batch: 1, timingsPerRound: 1, warmUp: 2 };
  const [blank, host] = await interleave(subjects, plan);
  if (blank === undefined || host === undefined) throw new Error("A side is missing.");
  const about = "acquire from the blank pool + exec of /bin/true; the pool is full before each timing";
  yield compare({ name: "blank-acquire-first-exec", limit: LIMIT, about }, blank, host);
}

function subject({ fleet }: LocalFleet): Subject {
  let serial = 0;
  let lease: Lease | null = null;
  let thread = "";
  return {
    name: "acquire a blank and exec",
    prepare: async () => {
      thread = `thread-${++serial}`;
      const deadline = Date.now() + PATIENCE_MS;
      while ((await fleet.list()).filter(({ state }) => state === "blank").length < POOL) {
        if (Date.now() > deadline) throw new Error("The pool was not filled.");
        await sleep(20);
      }
      // The newest sandbox is still starting inside.
      await sleep(100);
    },
    run: async () => {
      lease = await fleet.acquire({ thread });
      const { exitCode } = await lease.sandbox.exec(["/bin/true"]);
      if (exitCode !== 0) throw new Error(`true ended with ${exitCode}`);
    },
    settle: async () => {
      await lease?.release();
      await fleet.destroy({ thread }, { purge: true });
    },
  };
}
