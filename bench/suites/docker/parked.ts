/**
 * Paused parked sandboxes against unpaused ones: their cost while unused, and the time of the first command afterwards.
 */

import { setTimeout as sleep } from "node:timers/promises";
import type Docker from "dockerode";
import type { Fleet } from "../../../packages/fleet/src/fleet.ts";
import { interleave, type Subject } from "../../measuring/interleave.ts";
import { compare, type Result, resultOf } from "../../measuring/result.ts";
import { median } from "../../measuring/statistics.ts";
import type { SuiteOptions } from "../suite.ts";
import { LIMITS, type Stage } from "./stage.ts";

/** A paused one does nothing; the rest is rounding. */
const CPU_LIMIT = 0.05;
const PATIENCE_MS = 30_000;

export async function* parked(stage: Stage, { quick }: SuiteOptions): AsyncGenerator<Result> {
  const count = quick ? 2 : 4;
  const common = { blueprints: { default: { limits: LIMITS } } };
  await using plain = await stage.fleet(common);
  const fromPlain = await park(stage, plain.fleet, count);
  await using pausing = await stage.fleet({ ...common, docker: { ...stage.engine, pauseParked: true } });
  const fromPausing = await park(stage, pausing.fleet, count);
  await arePaused(stage, fromPausing);
  yield await processorTime(stage, fromPausing, fromPlain, quick ? 3 : 8);
  const subjects = [
    comingBack("first command, paused before", pausing.fleet, () => arePaused(stage, fromPausing)),
    comingBack("first command, not paused", plain.fleet, async () => {}),
  ];
  const plan = { rounds: quick ? 3 : 10, batch: 1, timingsPerRound: 1, warmUp: 1 };
  const [paused, running] = await interleave(subjects, plan);
  if (paused === undefined || running === undefined) throw new Error("A side is missing.");
  const about = "acquire of a parked thread + exec of /bin/true; no limit, this is what pausing is paid with";
  yield compare({ name: "docker-parked-first-exec", limit: null, about }, paused, running);
}

/** Ids of the containers of threads that were used once. */
async function park(stage: Stage, fleet: Fleet, count: number): Promise<readonly string[]> {
  const ids: string[] = [];
  for (let index = 0; index < count; index += 1) {
    await using lease = await fleet.acquire({ thread: `parked-${index}` });
    await lease.sandbox.exec(["/bin/true"]);
    ids.push((await stage.containerOf(lease.sandbox.id)).id);
  }
  return ids;
}

async function arePaused({ docker }: Stage, ids: readonly string[]): Promise<void> {
  const deadline = Date.now() + PATIENCE_MS;
  for (;;) {
    const listed = await docker.listContainers({ filters: { id: [...ids] } });
    if (listed.filter(({ State }) => State === "paused").length === ids.length) return;
    if (Date.now() > deadline) throw new Error("Parked sandboxes were not paused.");
    await sleep(50);
  }
}

async function processorTime(
  { docker }: Stage,
  paused: readonly string[],
  running: readonly string[],
  rounds: number,
): Promise<Result> {
  const used = { paused: [] as number[], running: [] as number[] };
  for (let round = 0; round < rounds; round += 1) {
    const before = [await cpuNanoseconds(docker, paused), await cpuNanoseconds(docker, running)];
    await sleep(1_000);
    used.paused.push((await cpuNanoseconds(docker, paused)) - (before[0] ?? 0));
    used.running.push((await cpuNanoseconds(docker, running)) - (before[1] ?? 0));
  }
  const name = "docker-parked-processor-time";
  const about = `processor time in one second of ${running.length} parked sandboxes that nobody uses, together`;
  const sides = [
    { name: "paused", samples: used.paused },
    { name: "not paused", samples: used.running },
  ];
  const ratios = used.paused.map((time, round) => time / Math.max(1, used.running[round] ?? 0));
  return resultOf(
    { name, limit: CPU_LIMIT, about },
    "ns",
    sides,
    ratios,
    median(used.paused) / Math.max(1, median(used.running)),
  );
}

async function cpuNanoseconds(docker: Docker, ids: readonly string[]): Promise<number> {
  const stats = await Promise.all(ids.map((id) => docker.getContainer(id).stats({ stream: false, "one-shot": true })));
  return stats.reduce((sum, { cpu_stats }) => sum + cpu_stats.cpu_usage.total_usage, 0);
}

function comingBack(name: string, fleet: Fleet, prepare: () => Promise<void>): Subject {
  return {
    name,
    prepare,
    run: async () => {
      await using lease = await fleet.acquire({ thread: "parked-0" });
      await lease.sandbox.exec(["/bin/true"]);
    },
  };
}
