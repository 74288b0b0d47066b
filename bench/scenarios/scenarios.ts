/** The five scenarios: the thread of each turn, the fleet's configuration, and the expected effect. */

import { setTimeout as sleep } from "node:timers/promises";
import type { FleetConfig } from "../../packages/fleet/src/config/fleet-config.ts";
import { type Row, type Turns, turn, USER } from "./turn.ts";

export interface ScenarioPlan {
  readonly iterations: number;
  readonly concurrency: number;
  readonly warmUpIterations: number;
  /** How many sandboxes may exist before parked ones are evicted. */
  readonly replicas: number;
  readonly idleTimeoutSeconds: number;
  /** Otherwise a sandbox ends with its turn. */
  readonly keepsWarm: boolean;
  /** The sandbox of this turn is ended without the fleet's knowledge. */
  readonly faultAfter: number | null;
  readonly image: string | null;
}

interface Outcome {
  readonly rows: readonly Row[];
  /** The expected effect that is missing. */
  readonly problem: string | null;
}

interface Scenario {
  config(plan: ScenarioPlan): FleetConfig;
  run(turns: Turns): Promise<Outcome>;
}

const IDLE_MAX_SECONDS = 2;
const IDLE_TURNS_MAX = 20;
const PATIENCE_MS = 30_000;
const THREADS_MIN = 4;
const SECOND_MS = 1_000;

export const SCENARIOS = {
  warm_same_thread: {
    config: softly,
    run: (turns) =>
      inOrder(
        turns,
        () => "warm-hit",
        (rows) => rows.slice(1).every(hit) || !keeps(turns),
      ),
  },
  cold_unique_thread: {
    config: (plan) => ({
      ...softly(plan),
      limits: { mode: "soft", max: Math.max(plan.replicas, plan.concurrency + 1) },
    }),
    run: (turns) =>
      inOrder(
        turns,
        (index) => `cold-${index}`,
        (rows) => !rows.some(hit),
      ),
  },
  warm_miss_many_threads: {
    config: (plan) => ({ ...softly(plan), limits: { mode: "soft", max: Math.max(plan.replicas, manyThreads(plan)) } }),
    run: (turns) =>
      inOrder(
        turns,
        (index) => `thread-${index % manyThreads(turns.plan)}`,
        (rows) => rows.slice(manyThreads(turns.plan)).every(hit) || !keeps(turns),
      ),
  },
  idle_timeout: {
    config: (plan) => ({ ...softly(plan), idleTimeoutMs: idleSeconds(plan) * SECOND_MS, housekeepingIntervalMs: 250 }),
    run: idleTimeout,
  },
  replica_pressure: { config: softly, run: replicaPressure },
} as const satisfies Record<string, Scenario>;

export type ScenarioName = keyof typeof SCENARIOS;

/** DeerFlow's `replicas` is a soft cap: beyond it parked sandboxes are evicted, and work goes on. */
function softly({ replicas, idleTimeoutSeconds }: ScenarioPlan): FleetConfig {
  return { limits: { mode: "soft", max: replicas }, idleTimeoutMs: idleTimeoutSeconds * SECOND_MS };
}

function manyThreads({ concurrency }: ScenarioPlan): number {
  return Math.max(concurrency, THREADS_MIN);
}

function idleSeconds({ idleTimeoutSeconds }: ScenarioPlan): number {
  return Math.min(idleTimeoutSeconds, IDLE_MAX_SECONDS);
}

const hit = ({ warm_hit }: Row) => warm_hit === true;
const keeps = ({ plan }: Turns) => plan.keepsWarm && plan.faultAfter === null && plan.concurrency === 1;

async function warmUp(turns: Turns): Promise<void> {
  const quiet: Turns = { ...turns, scenario: "warmup", workload: "noop" };
  for (let count = turns.plan.warmUpIterations; count > 0; count -= 1) await turn(quiet, -count, "warmup");
  await turns.fleet.destroy({ user: USER, thread: "warmup" });
}

/** With the plan's concurrency, in the order of their numbers. */
async function inOrder(
  turns: Turns,
  threadOf: (index: number) => string,
  shows: (rows: readonly Row[]) => boolean,
): Promise<Outcome> {
  const { iterations, concurrency, faultAfter } = turns.plan;
  await warmUp(turns);
  const rows: Row[] = [];
  let next = 0;
  const work = async () => {
    for (let index = next++; index < iterations; index = next++) {
      const thread = threadOf(index);
      rows.push(await turn(turns, index, thread));
      if (index === faultAfter) await turns.fleet.destroy({ user: USER, thread }, { force: true });
    }
  };
  await Promise.all(Array.from({ length: concurrency }, work));
  const problem = shows(rows) ? null : "sandboxes were not reused as they should be";
  return { rows: rows.toSorted((a, b) => a.iteration - b.iteration), problem };
}

/** A turn, a rest longer than the timeout, and another turn, which must find nothing warm. */
async function idleTimeout(given: Turns): Promise<Outcome> {
  const plan = { ...given.plan, idleTimeoutSeconds: idleSeconds(given.plan) };
  const turns = { ...given, plan };
  const { fleet } = turns;
  await warmUp(turns);
  const rows: Row[] = [];
  for (let index = 0; index < Math.min(plan.iterations, IDLE_TURNS_MAX); index += 1) {
    const thread = `idle-${index}`;
    rows.push(await turn(turns, index * 2, thread));
    const deadline = performance.now() + PATIENCE_MS;
    await sleep(plan.idleTimeoutSeconds * SECOND_MS);
    while ((await fleet.find({ user: USER, thread })) !== null && performance.now() < deadline) await sleep(50);
    rows.push(await turn(turns, index * 2 + 1, thread));
  }
  return { rows, problem: rows.some(hit) ? "an idle sandbox was not ended" : null };
}

/** Twice as many threads as sandboxes, and one leased throughout: it must not be evicted. */
async function replicaPressure(turns: Turns): Promise<Outcome> {
  const { fleet, plan } = turns;
  await warmUp(turns);
  await using active = await fleet.acquire({ user: USER, thread: "active" });
  const { generation } = active;
  const { rows } = await inOrder(
    turns,
    (index) => `pressure-${index % (plan.replicas * 2)}`,
    () => true,
  );
  const { exitCode } = await active.sandbox.exec("true");
  const isTouched = exitCode !== 0 || active.generation !== generation;
  return { rows, problem: isTouched ? "a leased sandbox was evicted" : null };
}
