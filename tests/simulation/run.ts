/**
 * A whole run of one seed: run the workload with safety checked at every event, heal everything, check liveness, use
 * every thread once more, close with destroy, and check that nothing is left.
 */

import type { SandboxRecord } from "../../packages/fleet/src/store/record.ts";
import type { Violation } from "./checks/findings.ts";
import { LivenessChecks } from "./checks/liveness-checks.ts";
import type { Instance } from "./process/instance.ts";
import { Simulation } from "./simulation.ts";
import type { ThreadName } from "./workload/threads.ts";
import { Workload } from "./workload/workload.ts";

export interface RunResult {
  readonly seed: number;
  readonly violations: readonly Violation[];
  readonly hash: string;
  readonly events: number;
  readonly faults: Readonly<Record<string, number>>;
  readonly moves: Readonly<Record<string, number>>;
  readonly checks: Readonly<Record<string, number>>;
  readonly exceptions: Readonly<Record<string, number>>;
  readonly trace: readonly string[] | null;
}

/** How long a caller may try before a thread counts as unusable. */
const COMEBACK_MS = 60_000;

/** The present run; an unhandled rejection belongs to it. */
let current: Simulation | null = null;
process.on("unhandledRejection", (error) => {
  if (current === null) throw error;
  current.threw(error);
});
process.on("uncaughtException", (error) => {
  if (current === null) throw error;
  current.threw(error);
});

export interface RunOptions {
  readonly keepTrace?: boolean;
  /** Called every few events. */
  readonly onTurn?: () => void;
}

export async function runSeed(seed: number, { keepTrace = false, ...rest }: RunOptions = {}): Promise<RunResult> {
  const simulation = new Simulation(seed, { keepTrace, ...rest });
  current = simulation;
  try {
    return await walk(simulation, seed);
  } finally {
    current = null;
  }
}

async function walk(simulation: Simulation, seed: number): Promise<RunResult> {
  const workload = new Workload(simulation, seed);
  const liveness = new LivenessChecks(simulation.truth, simulation.findings);
  simulation.findings.check("nothing-thrown", true, () => "");
  await workload.run();
  await heal(simulation, workload, liveness);
  liveness.atRest();
  simulation.promiseChecks.atRest();
  simulation.factChecks.checkAnonymous();
  if (workload.callers.pending.size === 0)
    for (const instance of simulation.open()) simulation.factChecks.idle(instance, simulation.watchesOf(instance));
  await comeBack(simulation, workload, liveness);
  await refillPool(simulation, liveness);
  await closeAll(simulation, workload);
  liveness.afterClose();
  simulation.factChecks.checkAnonymous();
  simulation.checkSpin();
  const { findings, trace, scheduler, faults } = simulation;
  return {
    seed,
    violations: findings.violations,
    hash: trace.hash,
    events: scheduler.events,
    faults: Object.fromEntries(faults.fired),
    moves: Object.fromEntries(findings.moves),
    checks: Object.fromEntries(findings.evaluated),
    exceptions: Object.fromEntries(findings.exceptions),
    trace: trace.lines,
  };
}

/** Faults stop, every process runs, the store responds, and enough time passes for all work to settle. */
async function heal(simulation: Simulation, workload: Workload, liveness: LivenessChecks): Promise<void> {
  const { scheduler, settings, faults, trace, outage } = simulation;
  trace.add("----", "heal");
  faults.healed = true;
  outage.until = 0;
  simulation.partitions.heal();
  simulation.wake(simulation.hosts);
  for (const instance of simulation.instances) {
    instance.process.ambush = null;
    instance.script.late.clear();
    instance.script.registerFails = null;
    simulation.resume(instance);
  }
  workload.replenish();
  const { sessionLifetimeMs, orphanTimeoutMs, housekeepingIntervalMs, acquireTimeoutMs } = settings;
  const patienceMs =
    8 * sessionLifetimeMs + 2 * Math.max(orphanTimeoutMs, sessionLifetimeMs) + 4 * housekeepingIntervalMs;
  const until = scheduler.now + patienceMs + acquireTimeoutMs;
  // Every message in transit has arrived after this; from then on the wait ends as soon as the run is quiet.
  for (let part = 0; part < 4; part += 1) {
    await scheduler.run(scheduler.now + sessionLifetimeMs);
    workload.replenish();
  }
  const isDone = () => workload.callers.pending.size === 0 && liveness.isQuiet();
  while (scheduler.now < until && !isDone()) {
    // A process that was dying at the time of healing is dead by now.
    workload.replenish();
    await scheduler.run(Math.min(until, scheduler.now + 5_000));
  }
  await scheduler.run(scheduler.now + sessionLifetimeMs);
  liveness.checkSettled(workload.callers.pending);
}

/** Every thread is acquired once more, and must see every acknowledged write. */
async function comeBack(simulation: Simulation, workload: Workload, liveness: LivenessChecks): Promise<void> {
  const { scheduler, truth } = simulation;
  simulation.trace.add("----", "come back");
  for (const held of truth.leases) if (held.releasedAt === null) workload.callers.release(held);
  await scheduler.run(scheduler.now + 3_000);
  for (const thread of workload.threads) {
    const until = scheduler.now + COMEBACK_MS;
    let back = false;
    let isCrowded = false;
    while (!back && scheduler.now < until) {
      const instance = instanceFor(simulation, thread);
      if (instance === undefined) break;
      let done = false;
      const wish = { thread, user: thread.user, timeoutMs: 10_000, ttlMs: null, abortAfterMs: null };
      workload.callers.acquire(instance, wish, (held) => {
        back = true;
        workload.callers.read(held);
        workload.callers.write(held);
        scheduler.after(100, () => workload.callers.release(held));
        scheduler.after(200, () => {
          done = true;
        });
      });
      isCrowded ||= isCrowdedOut(simulation, thread);
      await scheduler.run(scheduler.now + 12_000, () => done);
    }
    if (back || !isCrowded) liveness.checkCameBack(`${thread.user}/${thread.thread}`, back);
  }
}

/** The last one that reaches the thread's engine. */
function instanceFor(simulation: Simulation, { user, thread }: ThreadName): Instance | undefined {
  const home = simulation.truth.homes.get(`${user}/${thread}`)?.engine ?? null;
  return simulation.open().findLast(({ engine }) => home === null || engine === home);
}

/** No instance ends the unused sandboxes of another engine, so they may fill the fleet's or the user's room. */
function isCrowdedOut({ truth, settings, engines }: Simulation, { user, thread }: ThreadName): boolean {
  const { limits } = settings;
  const userMax = truth.userMax(user);
  const home = truth.homes.get(`${user}/${thread}`)?.engine;
  if (!engines.isShared || limits.mode === "soft") return false;
  const records = truth.tables.records();
  const own = records.filter((record) => record.user === user);
  const isOther = ({ engine }: SandboxRecord) => engine !== home;
  return (
    (records.length >= limits.max && records.some(isOther)) ||
    (userMax > 0 && own.length >= userMax && own.some(isOther))
  );
}

/** The pool is refilled at intervals, and may just have lost a blank. */
async function refillPool({ scheduler, settings }: Simulation, liveness: LivenessChecks): Promise<void> {
  const until = scheduler.now + 5 * settings.housekeepingIntervalMs + 5_000;
  while (scheduler.now < until && !liveness.isPoolBack()) await scheduler.run(scheduler.now + 1_000);
  liveness.checkPool();
}

async function closeAll(simulation: Simulation, workload: Workload): Promise<void> {
  const { scheduler } = simulation;
  simulation.trace.add("----", "close");
  for (const instance of simulation.instances.filter(({ process }) => process.alive)) {
    let closed = false;
    workload.callers.close(instance, { destroy: true, drainMs: 0 }, () => {
      closed = true;
      simulation.kill(instance);
    });
    await scheduler.run(scheduler.now + 60_000, () => closed);
  }
}
