/**
 * Chaos of a shared store: `npm run chaos -- --store postgres|redis --runs N`.
 *
 *   child × P ──link──┐                       ┌── replica
 *   row client × 3 ──link──▶ primary ─────────┘       each link is a proxy of the tests (link.ts)
 *   main, engine ──────────▶     ▲
 *
 * The children are those of tests/crash, with their engine and its checks. Asserted beside those:
 *   - every acknowledged commit is there, or the epoch is another (row-facts.ts)
 *   - nothing takes effect after it was refused
 *   - no step of a store takes longer than its deadline
 *   - only a failover begins a new epoch; two sandboxes of a thread appear at most between it and the new epoch
 */

import { CrashRun } from "../../crash/control/crash-run.ts";
import { Tally } from "../../crash/control/tally.ts";
import type { ChaosDatabase } from "./chaos-database.ts";
import { Link } from "./link.ts";
import { RowClients } from "./row-clients.ts";
import { StoreHarm } from "./store-harm.ts";
import { StoreTally } from "./store-tally.ts";

const DATABASES = {
  postgres: async (): Promise<ChaosDatabase> => (await import("./postgres-pair.ts")).PostgresPair.start(),
  redis: async (): Promise<ChaosDatabase> => (await import("./redis-sentinels.ts")).RedisSentinels.start(),
} as const;
export type ChaosStore = keyof typeof DATABASES;

export function isChaosStore(text: string): text is ChaosStore {
  return Object.hasOwn(DATABASES, text);
}

const PROCESSES = 4;
/** Links that wait for the children to come: two more than those at work are loaded at any time. */
const LINKS = PROCESSES + 8;

export async function storeChaos(options: { store: ChaosStore; runs: number; seed: number; keep: boolean }) {
  const { store, runs, seed, keep } = options;
  const startedAt = performance.now();
  const tally = new Tally();
  const storeTally = new StoreTally();
  const links = new Map<string, Link>();
  const spare: Link[] = [];
  let rows: RowClients | null = null;
  const run = new CrashRun({
    options: { cycles: runs, seed, processes: PROCESSES, plant: null },
    tally,
    async openDatabase() {
      const database = await DATABASES[store]();
      while (spare.length < LINKS) spare.push(await Link.open(database.upstream));
      rows = await RowClients.start(database, seed, (what) => tally.violated(what));
      return database;
    },
    addressFor(name, database) {
      const link = spare.pop();
      if (link === undefined) throw new Error("more children than links");
      links.set(name, link);
      return (database as ChaosDatabase).addressAt(link.port);
    },
    harm(scene, database) {
      if (rows === null) throw new Error("the row clients have not started");
      return new StoreHarm(scene, { database: database as ChaosDatabase, links, rows, tally: storeTally });
    },
  });
  process.on("exit", () => run.endNow());
  console.log(
    `chaos on ${store}: ${runs} faults, seed ${seed}, ${PROCESSES} instances on loopback, in ${run.directory}`,
  );
  const done = await run.execute();
  for (const link of [...links.values(), ...spare]) await link.close();
  const seconds = (performance.now() - startedAt) / 1_000;
  console.log(`${storeTally.table()}\n${run.summary()}`);
  const facts = (rows as RowClients | null)?.facts;
  if (facts !== undefined) console.log(facts.summary());
  for (const violation of tally.violations) console.log(`VIOLATION ${violation}`);
  const isClean = tally.violations.length === 0;
  if (isClean && !keep) run.removeDirectory();
  else console.log(`kept: ${run.directory} (engine.log, child-N.log)`);
  for (const owner of tally.leftByLostEpochs)
    console.log(`excused: the workspace of ${owner} was left by a lost epoch`);
  console.log(
    `${done} faults, ${tally.steps + (facts?.steps ?? 0)} steps, worst step of an instance ${tally.worstStepMs} ms, ` +
      `${storeTally.epochsChanged} epochs changed, ${tally.acquires} acquires, ${tally.writes} acknowledged writes, ` +
      `${tally.leftByLostEpochs.length} workspaces left by lost epochs, ${tally.violations.length} violations, ${seconds.toFixed(1)} s`,
  );
  return isClean ? 0 : 1;
}
