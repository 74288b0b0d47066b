/**
 * Killed processes: real Sandlot processes that share one store and one engine are killed (SIGKILL) and stopped
 * (SIGSTOP, often for longer than their session lives) in every state of a record, and nothing may go wrong. A store on
 * a server has the same happen to its server.
 *
 *   npm run crash -- --cycles N [--store sqlite|postgres|redis] [--seed S] [--processes P] [--keep]
 *   npm run crash -- --plant double         one planted violation; it must be reported, and the exit code is 1
 *   npm run crash -- --self-check           all of them (plants.ts), one run each; fails if one goes unnoticed
 *
 *   main ──stdin, stdout, signals──▶ child × P ──unix socket──▶ engine process (ledger, checks, faults, traps)
 *     └──────────────── reads ─────────▶ database ◀──────────────────┘
 *
 * READ control/cycles.ts for the faults of the children and the server, engine-process/checks.ts for what must hold at every effect,
 * control/final-checks.ts for what must hold at the end.
 *
 * The seed decides what is drawn; with real processes the machine decides who draws first, so a seed does not replay. A
 * failure keeps its directory: the logs of every child and the engine, and the database.
 *
 * Invariant: no process survives main. It ends those it started, by their pid, however it ends itself; if it is killed,
 * the engine notices and does it.
 */

import { spawnSync } from "node:child_process";
import { rmSync } from "node:fs";
import { parseArgs } from "node:util";
import { type CrashOptions, CrashRun } from "./control/crash-run.ts";
import { Cycles } from "./control/cycles.ts";
import { STATES } from "./control/states.ts";
import { Steering } from "./control/steering.ts";
import { Tally } from "./control/tally.ts";
import { openDatabase, parseStoreName } from "./database/open-database.ts";
import { PLANTS, parsePlant } from "./plants.ts";
import { timesWith } from "./settings.ts";

/** From this many cycles on, every state must have been hit this often: fewer would prove little. */
const FULL_RUN_CYCLES = 1_000;
const HITS_MIN = 20;
const PLANT_CYCLES = 8;

const { values } = parseArgs({
  options: {
    cycles: { type: "string", default: "60" },
    seed: { type: "string", default: String(Math.floor(Math.random() * 1_000_000)) },
    processes: { type: "string", default: "4" },
    store: { type: "string", default: "sqlite" },
    plant: { type: "string" },
    keep: { type: "boolean", default: false },
    "self-check": { type: "boolean", default: false },
  },
});

process.exitCode = values["self-check"] ? selfCheck() : await run();

async function run(): Promise<number> {
  const options: CrashOptions = {
    cycles: wholeNumber("cycles", values.cycles, 1),
    seed: wholeNumber("seed", values.seed, 0),
    // One must be left to notice, and one to work, while a third is stopped.
    processes: wholeNumber("processes", values.processes, 3),
    plant: parsePlant(values.plant),
  };
  const storeName = parseStoreName(values.store);
  const startedAt = performance.now();
  const tally = new Tally();
  const crashRun = new CrashRun({
    ...{ options, tally },
    openDatabase: (directory) => openDatabase(storeName, directory),
    harm: (scene, { server, address }) =>
      new Cycles({ ...scene, ...timesWith(address), server, steering: new Steering(scene) }),
  });
  process.on("exit", () => crashRun.endNow());
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    process.on(signal, () => {
      console.error(`${signal}: ended`);
      process.exit(130);
    });
  }
  console.log(
    `crash on ${storeName}: ${options.cycles} cycles, seed ${options.seed}, ${options.processes} processes, in ${crashRun.directory}`,
  );
  const done = await crashRun.execute();
  if (done >= FULL_RUN_CYCLES) {
    for (const state of STATES) {
      if (tally.hits.kills[state] < HITS_MIN)
        tally.violated(`only ${tally.hits.kills[state]} kills hit a process in state ${state}`);
    }
  }
  const seconds = (performance.now() - startedAt) / 1_000;
  console.log(`${tally.table()}\n${crashRun.summary()}`);
  for (const violation of tally.violations) console.log(`VIOLATION ${violation}`);
  const isClean = tally.violations.length === 0;
  if (isClean && !values.keep) crashRun.removeDirectory();
  else console.log(`kept: ${crashRun.directory} (engine.log, child-N.log, the database)`);
  const { killed, stopped, "stopped long": stoppedLong } = tally.serverFaults;
  if (killed + stopped + stoppedLong > 0)
    console.log(
      `server: ${killed} times killed, ${stopped} stopped, ${stoppedLong} stopped beyond a session's lifetime`,
    );
  console.log(
    `${done} cycles, ${tally.kills} kills, ${tally.stops} stops (${tally.longStops} beyond a session's lifetime), ` +
      `${tally.acquires} acquires, ${tally.writes} acknowledged writes, ${tally.violations.length} violations, ${seconds.toFixed(1)} s`,
  );
  return isClean ? 0 : 1;
}

function selfCheck(): number {
  let unnoticed = 0;
  for (const [plant, expected] of Object.entries(PLANTS)) {
    const argv = [...process.execArgv, import.meta.filename, "--cycles", String(PLANT_CYCLES), "--plant", plant];
    const { status, stdout } = spawnSync(process.execPath, argv, { encoding: "utf8" });
    const found = stdout.split("\n").find((line) => line.startsWith("VIOLATION") && expected.test(line));
    const isNoticed = status === 1 && found !== undefined;
    if (!isNoticed) unnoticed += 1;
    console.log(`${plant}: ${isNoticed ? found : `NOT NOTICED (exit code ${status})\n${stdout}`}`);
    const kept = /^kept: (\S+)/m.exec(stdout)?.[1];
    if (isNoticed && kept !== undefined) rmSync(kept, { recursive: true, force: true });
  }
  console.log(`${Object.keys(PLANTS).length} planted violations, ${unnoticed} unnoticed`);
  return unnoticed === 0 ? 0 : 1;
}

function wholeNumber(name: string, text: string, min: number): number {
  const value = Number(text);
  if (Number.isInteger(value) && value >= min) return value;
  throw new Error(`--${name} takes a whole number of at least ${min}, not ${text}`);
}
