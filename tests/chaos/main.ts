/**
 * Chaos with a real engine: fleets are killed at every stage of a sandbox's life, containers are killed, removed, paused and
 * starved of memory, and the engine itself is restarted, killed, stopped and filled up. After each deed nothing of the fleet
 * may be left (containers, networks, volumes, directories), nobody else may have been hurt, every call must have settled, and
 * the time until the sandbox was usable again is taken.
 *
 *   npm run chaos -- --backend docker --runs 200      fleets killed 200 times, and everything else a few times
 *   npm run chaos -- --quick                          a dozen deeds, for CI
 *   npm run chaos -- --only engine                    one kind of deed: fleet, container or engine
 *
 * READ deeds/ for what is done, and stage/yard.ts for what must hold afterwards. The seed decides what is drawn; how long
 * things take is the machine's, so a seed does not replay a run exactly.
 */

import { parseArgs } from "node:util";
import { Random } from "../simulation/schedule/random.ts";
import { containerDeeds, leasedContainers } from "./deeds/container-deeds.ts";
import { engineDiskFull, engineFreeze, engineKill, engineKillLiving, engineRestart } from "./deeds/engine-deeds.ts";
import { fleetKills, powerCut } from "./deeds/fleet-kills.ts";
import { ChaosEngine } from "./stage/engine.ts";
import { KILL_STAGES, Tally } from "./stage/tally.ts";
import { Yard } from "./stage/yard.ts";

/** From this many kills on, every stage must have been hit this often: fewer would prove little. */
const FULL_RUN_KILLS = 150;
const HITS_MIN = 20;
const QUICK_KILLS = 6;
/** How often everything else is done in a run that is not quick: once for so many kills, and several times at least. */
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

process.exitCode = await main();

async function main(): Promise<number> {
  if (values.backend !== "docker") return usage(`there is no chaos for the backend ${values.backend}`);
  const kills = Number(values.runs ?? values.kills ?? (values.quick ? QUICK_KILLS : 200));
  const seed = Number(values.seed);
  if (!Number.isInteger(kills) || kills < 0 || !Number.isInteger(seed))
    return usage("--runs and --seed take whole numbers");
  const { only } = values;
  if (only !== undefined && !["fleet", "container", "engine"].includes(only)) return usage(`there is no deed ${only}`);
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => process.exit(130));
  const engine = await ChaosEngine.open();
  if (typeof engine === "string") {
    console.log(`no Docker engine: ${engine}`);
    return process.env.CI === "true" ? 1 : 0;
  }
  console.log(`chaos: ${kills} kills, seed ${seed}, engine in ${engine.place}`);
  const tally = new Tally();
  const startedAt = performance.now();
  await run(engine, tally, { kills, seed, only });
  return report(tally, kills, only, (performance.now() - startedAt) / 1_000);
}

async function run(
  engine: ChaosEngine,
  tally: Tally,
  { kills, seed, only }: { kills: number; seed: number; only: string | undefined },
): Promise<void> {
  const yard = new Yard(engine, tally);
  const rounds = values.quick ? 1 : Math.max(ROUNDS_MIN, Math.ceil(kills / KILLS_PER_ROUND));
  const random = new Random(seed);
  const is = (kind: string) => only === undefined || only === kind;
  try {
    await yard.open();
    if (is("container")) await (values.quick ? leasedContainers(yard) : containerDeeds(yard, rounds));
    if (is("engine")) {
      for (let round = 0; round < rounds; round += 1) {
        await engineDiskFull(yard);
        await engineKill(yard);
        if (values.quick) continue;
        await engineFreeze(yard);
        await engineRestart(yard);
        await engineKillLiving(yard);
        await powerCut(yard, random, round);
      }
    }
    if (is("fleet")) await fleetKills(yard, random, kills);
  } catch (error) {
    tally.violated(`the run ended: ${error instanceof Error ? error.stack : String(error)}`);
  } finally {
    await yard.close().catch((error: unknown) => tally.violated(`closing: ${error}`));
    await engine.close();
  }
}

function report(tally: Tally, kills: number, only: string | undefined, seconds: number): number {
  if ((only ?? "fleet") === "fleet" && kills >= FULL_RUN_KILLS) {
    for (const stage of KILL_STAGES)
      if (tally.kills[stage] < HITS_MIN) tally.violated(`only ${tally.kills[stage]} fleets were killed at ${stage}`);
  }
  console.log(tally.table());
  const byStage = KILL_STAGES.map((stage) => `${stage} ${tally.kills[stage]}`).join(", ");
  console.log(`fleets killed by stage: ${byStage}`);
  console.log(
    `${tally.deedCount} deeds, ${tally.settledCount} calls settled, ${tally.violations.length} violations, ${seconds.toFixed(1)} s`,
  );
  return tally.violations.length === 0 ? 0 : 1;
}

function usage(problem: string): number {
  console.error(
    `${problem}\nusage: npm run chaos -- [--backend docker] [--runs N] [--seed S] [--only fleet|container|engine] [--quick]`,
  );
  return 2;
}
