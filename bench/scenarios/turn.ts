/** One turn: acquire, run, release, each timed. A failed turn is a row like the others, and has released its lease. */

import type { AcquirePath } from "@sandlot/contract";
import type { Fleet, Lease } from "../../packages/fleet/src/fleet.ts";
import type { ScenarioName, ScenarioPlan } from "./scenarios.ts";
import { type Step, WORKLOADS, type WorkloadName } from "./workloads.ts";

/** The fields of DeerFlow's rows, with their names. */
export interface Row {
  readonly provider: string;
  readonly scenario: string;
  readonly workload: string;
  readonly iteration: number;
  readonly concurrency: number;
  readonly thread_id: string;
  readonly user_id: string;
  readonly acquire_ms: number;
  readonly run_ms: number;
  readonly release_ms: number;
  readonly total_ms: number;
  /** The thread's own sandbox existed already. */
  readonly warm_hit: boolean | null;
  readonly success: boolean;
  readonly error: string | null;
  readonly replicas: number;
  /** Seconds. */
  readonly idle_timeout: number;
  /** There is no health check to skip: deaths are pushed. */
  readonly health_check_skip_seconds: number;
  readonly image: string | null;
  readonly no_warmpool: boolean;
}

export interface Turns {
  readonly fleet: Fleet;
  readonly provider: string;
  readonly image: string | null;
  readonly scenario: ScenarioName | "warmup";
  readonly workload: WorkloadName;
  readonly plan: ScenarioPlan;
}

export const USER = "bench-user";
const RUN_MS = 30_000;

export async function turn(turns: Turns, iteration: number, thread: string): Promise<Row> {
  const { fleet, plan, workload } = turns;
  const clock = { acquire: 0, run: 0, release: 0 };
  const timed = async <T>(part: keyof typeof clock, work: () => Promise<T>): Promise<T> => {
    const from = performance.now();
    try {
      return await work();
    } finally {
      clock[part] += performance.now() - from;
    }
  };
  const startedAt = performance.now();
  let lease: Lease | null = null;
  let warm: boolean | null = null;
  let error: string | null = null;
  try {
    const path = acquirePath(fleet);
    lease = await timed("acquire", () => fleet.acquire({ user: USER, thread }));
    warm = isWarm(path.of(lease.id));
    const { sandbox } = lease;
    await timed("run", () => perform(sandbox, WORKLOADS[workload](iteration)));
  } catch (problem) {
    error = problem instanceof Error ? problem.message : String(problem);
  }
  await timed("release", async () => lease?.release());
  const totalMs = performance.now() - startedAt;
  if (!plan.keepsWarm) await fleet.destroy({ user: USER, thread });
  return rowOf(turns, { iteration, thread, clock, totalMs, warm, error });
}

async function perform(sandbox: Lease["sandbox"], { command, expected }: Step): Promise<void> {
  const { exitCode, status, stdout, stderr } = await sandbox.exec(command, { timeoutMs: RUN_MS });
  if (status !== "completed" || exitCode !== 0) throw new Error(`Error: ${status} ${exitCode}: ${stderr.trim()}`);
  if (expected !== undefined && !stdout.includes(expected))
    throw new Error(`Error: unexpected output ${stdout.trim()}`);
}

/** The path of each lease, which the fleet reports when it grants it. */
const paths = new WeakMap<Fleet, Map<string, AcquirePath>>();

function acquirePath(fleet: Fleet): { of(leaseId: string): AcquirePath | undefined } {
  let known = paths.get(fleet);
  if (known === undefined) {
    const fresh = new Map<string, AcquirePath>();
    fleet.events.on((event) => {
      if (event.type === "lease-acquired") fresh.set(event.leaseId, event.path);
    }, "lease-acquired");
    paths.set(fleet, fresh);
    known = fresh;
  }
  const found = known;
  return {
    of: (leaseId) => {
      const path = found.get(leaseId);
      found.delete(leaseId);
      return path;
    },
  };
}

function isWarm(path: AcquirePath | undefined): boolean | null {
  return path === undefined ? null : path === "parked" || path === "held";
}

interface Measured {
  readonly iteration: number;
  readonly thread: string;
  readonly clock: { readonly acquire: number; readonly run: number; readonly release: number };
  readonly totalMs: number;
  readonly warm: boolean | null;
  readonly error: string | null;
}

function rowOf({ provider, scenario, workload, image, plan }: Turns, measured: Measured): Row {
  const { iteration, thread, clock, totalMs, warm, error } = measured;
  return {
    ...{ provider, scenario, workload, iteration, concurrency: plan.concurrency, thread_id: thread, user_id: USER },
    ...{ acquire_ms: clock.acquire, run_ms: clock.run, release_ms: clock.release, total_ms: totalMs },
    ...{ warm_hit: warm, success: error === null, error },
    ...{ replicas: plan.replicas, idle_timeout: plan.idleTimeoutSeconds, health_check_skip_seconds: 0 },
    ...{ image, no_warmpool: !plan.keepsWarm },
  };
}
