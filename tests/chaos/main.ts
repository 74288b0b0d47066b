/**
 * Chaos with real sandboxes: fleets are killed at every stage of a sandbox's life, containers are killed, removed,
 * paused and starved of memory, processes are killed, and the engine itself is restarted, killed, paused and filled up.
 * After each fault nothing of the fleet may be left (containers, networks, volumes, processes, control groups, mounts,
 * directories), no other sandbox may be affected, every call must have settled, and the time until the sandbox was
 * usable again is measured.
 *
 *   npm run chaos -- --backend docker --runs 200      fleets killed 200 times, and everything else a few times
 *   npm run chaos -- --backend local --runs 200       the same without an engine
 *   npm run chaos -- --quick                          a dozen faults, for CI
 *   npm run chaos -- --only engine                    one kind of fault: fleet, container, engine or process
 *   npm run chaos -- --backend kubernetes --runs 8    on a cluster (kubernetes/kubernetes-chaos.ts)
 *   npm run chaos -- --store postgres --runs 50       a shared store behind broken links (store/store-chaos.ts)
 *
 * READ faults/ for the faults, and stage/environment.ts for what must hold afterwards. The seed decides what is drawn; the
 * machine decides how long things take, so a seed does not replay a run exactly.
 */

import { parseArgs } from "node:util";
import { Random } from "../simulation/schedule/random.ts";
import { containerFaults, leasedContainers } from "./faults/container-faults.ts";
import { engineDiskFull, engineFreeze, engineKill, engineKillLiving, engineRestart } from "./faults/engine-faults.ts";
import { fleetKills, powerCut } from "./faults/fleet-kills.ts";
import { processFaults } from "./faults/process-faults.ts";
import { KUBERNETES_KINDS } from "./kubernetes/kinds.ts";
import { DockerEnvironment } from "./stage/docker-environment.ts";
import { ChaosEngine } from "./stage/engine.ts";
import type { Environment } from "./stage/environment.ts";
import { LocalEnvironment } from "./stage/local-environment.ts";
import { Tally } from "./stage/tally.ts";

/** From this many kills on, every stage must have been hit this often: fewer would prove little. */
const FULL_RUN_KILLS = 150;
const HITS_MIN = 20;
const QUICK_KILLS = 6;
const STORE_RUNS = 8;
/** How often every other fault happens in a run that is not quick: once per this many kills, at least several times. */
const KILLS_PER_ROUND = 50;
const ROUNDS_MIN = 3;

const { values } = parseArgs({
  options: {
    backend: { type: "string", default: "docker" },
    store: { type: "string" },
    keep: { type: "boolean", default: false },
    runs: { type: "string" },
    kills: { type: "string" },
    seed: { type: "string", default: String(Math.floor(Math.random() * 1_000_000)) },
    only: { type: "string" },
    quick: { type: "boolean", default: false },
    minutes: { type: "string", default: "600" },
    "whole-cluster": { type: "boolean", default: false },
  },
});

const KINDS: Readonly<Record<string, readonly string[]>> = {
  docker: ["fleet", "container", "engine"],
  local: ["fleet", "process"],
  kubernetes: KUBERNETES_KINDS,
};

const ON: Readonly<Record<string, (run: Run) => Promise<Environment | string>>> = {
  docker: onDocker,
  local: onThisMachine,
  async kubernetes({ kills: runs, random, tally, is }) {
    const { onKubernetes } = await import("./kubernetes/kubernetes-chaos.ts");
    return onKubernetes({
      runs,
      random,
      tally,
      isWanted: is,
      isWholeCluster: values["whole-cluster"],
      limitMs: Number(values.minutes) * 60_000,
    });
  },
};

interface Run {
  readonly kills: number;
  readonly rounds: number;
  readonly random: Random;
  readonly tally: Tally;
  readonly is: (kind: string) => boolean;
}

process.exitCode = await main();

async function main(): Promise<number> {
  const { backend, only, quick } = values;
  if (values.store !== undefined) return onStore(values.store);
  const kinds = KINDS[backend];
  if (kinds === undefined) return usage(`there is no chaos for the backend ${backend}`);
  const kills = Number(values.runs ?? values.kills ?? (quick ? QUICK_KILLS : 200));
  const seed = Number(values.seed);
  if (!Number.isInteger(kills) || kills < 0 || !Number.isInteger(seed))
    return usage("--runs and --seed take whole numbers");
  if (only !== undefined && !kinds.includes(only)) return usage(`there is no fault ${only} for ${backend}`);
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => process.exit(130));
  const rounds = quick ? 1 : Math.max(ROUNDS_MIN, Math.ceil(kills / KILLS_PER_ROUND));
  const tally = new Tally();
  const startedAt = performance.now();
  const run: Run = { kills, rounds, random: new Random(seed), tally, is: (kind) => (only ?? kind) === kind };
  console.log(`chaos on ${backend}: ${kills} kills, seed ${seed}`);
  const environment = await ON[backend]?.(run);
  if (environment === undefined || typeof environment === "string") {
    console.log(`not possible: ${environment}`);
    return process.env.CI === "true" ? 1 : 0;
  }
  return report(environment, run, (performance.now() - startedAt) / 1_000);
}

async function onStore(store: string): Promise<number> {
  const { isChaosStore, storeChaos } = await import("./store/store-chaos.ts");
  const [runs, seed] = [Number(values.runs ?? STORE_RUNS), Number(values.seed)];
  if (!isChaosStore(store)) return usage(`there is no chaos for the store ${store}`);
  if (!Number.isInteger(runs) || runs < 1 || !Number.isInteger(seed))
    return usage("--runs and --seed take whole numbers");
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => process.exit(130));
  return storeChaos({ store, runs, seed, keep: values.keep });
}

/** A reason instead of an environment, where there is no engine. */
async function onDocker(run: Run): Promise<Environment | string> {
  const engine = await ChaosEngine.open();
  if (typeof engine === "string") return engine;
  const environment = new DockerEnvironment(engine, run.tally);
  try {
    await inside(environment, run, async () => {
      if (run.is("container"))
        await (values.quick ? leasedContainers(environment) : containerFaults(environment, run.rounds));
      if (!run.is("engine")) return;
      for (let round = 0; round < run.rounds; round += 1) {
        await engineDiskFull(environment);
        await engineKill(environment);
        if (values.quick) continue;
        await engineFreeze(environment);
        await engineRestart(environment);
        await engineKillLiving(environment);
        await powerCut(environment, run.random, round);
      }
    });
  } finally {
    await engine.close();
  }
  return environment;
}

async function onThisMachine(run: Run): Promise<Environment | string> {
  const problem = LocalEnvironment.problem();
  if (problem !== null) return problem;
  const environment = new LocalEnvironment(run.tally);
  await inside(environment, run, async () => {
    if (run.is("process")) await processFaults(environment, run.rounds);
  });
  return environment;
}

async function inside(
  environment: Environment,
  { is, random, kills, tally }: Run,
  faults: () => Promise<void>,
): Promise<void> {
  try {
    await environment.open();
    await faults();
    if (is("fleet")) await fleetKills(environment, random, kills);
  } catch (error) {
    tally.violated(`the run ended: ${error instanceof Error ? error.stack : String(error)}`);
  } finally {
    await environment.close().catch((error: unknown) => tally.violated(`closing: ${error}`));
  }
}

function report({ stages }: Environment, { tally, kills, is }: Run, seconds: number): number {
  if (is("fleet") && kills >= FULL_RUN_KILLS && values.backend !== "kubernetes") {
    for (const stage of stages)
      if (tally.kills[stage] < HITS_MIN) tally.violated(`only ${tally.kills[stage]} fleets were killed at ${stage}`);
  }
  console.log(tally.table());
  const byStage = stages.map((stage) => `${stage} ${tally.kills[stage]}`).join(", ");
  console.log(`fleets killed by stage: ${byStage}`);
  console.log(
    `${tally.deedCount} faults, ${tally.settledCount} calls settled, ${tally.violations.length} violations, ${seconds.toFixed(1)} s`,
  );
  return tally.violations.length === 0 ? 0 : 1;
}

function usage(problem: string): number {
  console.error(
    `${problem}\nusage: npm run chaos -- [--backend docker|local|kubernetes] [--runs N] [--seed S] [--only fleet|container|engine|process|pod|node|outage] [--quick]\n       npm run chaos -- --store postgres|redis [--runs N] [--seed S] [--keep]`,
  );
  return 2;
}
