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
 *
 * READ deeds/ for the faults, and stage/yard.ts for what must hold afterwards. The seed decides what is drawn; the
 * machine decides how long things take, so a seed does not replay a run exactly.
 */

import { parseArgs } from "node:util";
import { Random } from "../simulation/schedule/random.ts";
import { containerDeeds, leasedContainers } from "./deeds/container-deeds.ts";
import { engineDiskFull, engineFreeze, engineKill, engineKillLiving, engineRestart } from "./deeds/engine-deeds.ts";
import { fleetKills, powerCut } from "./deeds/fleet-kills.ts";
import { processDeeds } from "./deeds/process-deeds.ts";
import { DockerYard } from "./stage/docker-yard.ts";
import { ChaosEngine } from "./stage/engine.ts";
import { LocalYard } from "./stage/local-yard.ts";
import { Tally } from "./stage/tally.ts";
import type { Yard } from "./stage/yard.ts";

/** From this many kills on, every stage must have been hit this often: fewer would prove little. */
const FULL_RUN_KILLS = 150;
const HITS_MIN = 20;
const QUICK_KILLS = 6;
/** How often every other fault happens in a run that is not quick: once per this many kills, at least several times. */
const KILLS_PER_ROUND = 50;
const ROUNDS_MIN = 3;

const { values } = parseArgs({
  options: {
    backend: { type: "string", default: "docker" },
    runs: { type: "string" },
    kills: { type: "string" },
    seed: { type: "string", default: String(Math.floor(Math.random() * 1_000_000)) },
    only: { type: "string" },
    quick: { type: "boolean", default: false },
  },
});

const KINDS: Readonly<Record<string, readonly string[]>> = {
  docker: ["fleet", "container", "engine"],
  local: ["fleet", "process"],
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
  const kinds = KINDS[backend];
  if (kinds === undefined) return usage(`there is no chaos for the backend ${backend}`);
  const kills = Number(values.runs ?? values.kills ?? (quick ? QUICK_KILLS : 200));
  const seed = Number(values.seed);
  if (!Number.isInteger(kills) || kills < 0 || !Number.isInteger(seed))
    return usage("--runs and --seed take whole numbers");
  if (only !== undefined && !kinds.includes(only)) return usage(`there is no deed ${only} for ${backend}`);
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => process.exit(130));
  const rounds = quick ? 1 : Math.max(ROUNDS_MIN, Math.ceil(kills / KILLS_PER_ROUND));
  const tally = new Tally();
  const startedAt = performance.now();
  const run: Run = { kills, rounds, random: new Random(seed), tally, is: (kind) => (only ?? kind) === kind };
  console.log(`chaos on ${backend}: ${kills} kills, seed ${seed}`);
  const yard = await (backend === "docker" ? onDocker(run) : onThisMachine(run));
  if (typeof yard === "string") {
    console.log(`not possible: ${yard}`);
    return process.env.CI === "true" ? 1 : 0;
  }
  return report(yard, run, (performance.now() - startedAt) / 1_000);
}

/** A reason instead of an environment, where there is no engine. */
async function onDocker(run: Run): Promise<Yard | string> {
  const engine = await ChaosEngine.open();
  if (typeof engine === "string") return engine;
  const yard = new DockerYard(engine, run.tally);
  try {
    await inside(yard, run, async () => {
      if (run.is("container")) await (values.quick ? leasedContainers(yard) : containerDeeds(yard, run.rounds));
      if (!run.is("engine")) return;
      for (let round = 0; round < run.rounds; round += 1) {
        await engineDiskFull(yard);
        await engineKill(yard);
        if (values.quick) continue;
        await engineFreeze(yard);
        await engineRestart(yard);
        await engineKillLiving(yard);
        await powerCut(yard, run.random, round);
      }
    });
  } finally {
    await engine.close();
  }
  return yard;
}

async function onThisMachine(run: Run): Promise<Yard | string> {
  const problem = LocalYard.problem();
  if (problem !== null) return problem;
  const yard = new LocalYard(run.tally);
  await inside(yard, run, async () => {
    if (run.is("process")) await processDeeds(yard, run.rounds);
  });
  return yard;
}

async function inside(yard: Yard, { is, random, kills, tally }: Run, deeds: () => Promise<void>): Promise<void> {
  try {
    await yard.open();
    await deeds();
    if (is("fleet")) await fleetKills(yard, random, kills);
  } catch (error) {
    tally.violated(`the run ended: ${error instanceof Error ? error.stack : String(error)}`);
  } finally {
    await yard.close().catch((error: unknown) => tally.violated(`closing: ${error}`));
  }
}

function report({ stages }: Yard, { tally, kills, is }: Run, seconds: number): number {
  if (is("fleet") && kills >= FULL_RUN_KILLS) {
    for (const stage of stages)
      if (tally.kills[stage] < HITS_MIN) tally.violated(`only ${tally.kills[stage]} fleets were killed at ${stage}`);
  }
  console.log(tally.table());
  const byStage = stages.map((stage) => `${stage} ${tally.kills[stage]}`).join(", ");
  console.log(`fleets killed by stage: ${byStage}`);
  console.log(
    `${tally.deedCount} deeds, ${tally.settledCount} calls settled, ${tally.violations.length} violations, ${seconds.toFixed(1)} s`,
  );
  return tally.violations.length === 0 ? 0 : 1;
}

function usage(problem: string): number {
  console.error(
    `${problem}\nusage: npm run chaos -- [--backend docker|local] [--runs N] [--seed S] [--only fleet|container|engine|process] [--quick]`,
  );
  return 2;
}
