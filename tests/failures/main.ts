/**
 * The failure budget: makes every fault with real gateways, sandboxes and stores, measures how long callers notice it,
 * and writes the figures into docs/FAILURES.md.
 *
 *   npm run failures                      every fault, three times on each store, and writes the document
 *   npm run failures -- --store sqlite:5  on one store, five times each
 *   npm run failures -- --quick           once each, and prints only
 *   npm run failures -- --only "disk"     faults whose name has this text; prints only
 *   npm run failures -- --store redis:3 --add   and leaves all other rows as they are; also with --only
 *   npm run failures -- --record F        adds each measurement to a file as well; prints only
 *   npm run failures -- --from F,F        writes the document from such files; --chaos F: and from the output of chaos
 *   npm run failures -- --check           whether the document names every kind of fault; measures nothing
 *
 * READ fault.ts for the kinds, faults/ for how each is made, and stage/callers.ts for what counts as usable and lost.
 * It needs root (a disk of its own, faketime) and bubblewrap. A run takes about an hour.
 */

import { appendFileSync, readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import {
  addToDocument,
  checkDocument,
  engineRow,
  explained,
  type FaultRow,
  rowOf,
  tableOf,
  writeDocument,
} from "./document.ts";
import { FAULT_KINDS, type Fault } from "./fault.ts";
import { type EngineFigures, engineFigures, figuresOf } from "./faults/engine-figures.ts";
import { MACHINE_FAULTS } from "./faults/machine-faults.ts";
import { PROCESS_FAULTS } from "./faults/process-faults.ts";
import { STORE_FAULTS } from "./faults/store-faults.ts";
import { postgresStore } from "./stage/postgres-store.ts";
import { redisStore } from "./stage/redis-store.ts";
import { type Measured, Stage } from "./stage/stage.ts";
import { type StageStore, sqliteStore } from "./stage/stage-store.ts";

const { values } = parseArgs({
  options: {
    quick: { type: "boolean", default: false },
    check: { type: "boolean", default: false },
    only: { type: "string" },
    record: { type: "string" },
    from: { type: "string" },
    add: { type: "boolean", default: false },
    chaos: { type: "string" },
    store: { type: "string", default: "sqlite:3,postgres:3,redis:3" },
  },
});

const STORES: Readonly<Record<string, () => StageStore>> = {
  sqlite: sqliteStore,
  postgres: postgresStore,
  redis: redisStore,
};
const ENGINE_KINDS = ["gateway cut off from the engine", "engine restarted"] as const;
const FAULTS: readonly Fault[] = [...PROCESS_FAULTS, ...STORE_FAULTS, ...MACHINE_FAULTS];

if (values.check) {
  const problems = checkDocument();
  for (const problem of problems) console.error(problem);
  process.exit(problems.length === 0 ? 0 : 1);
}

const failures: string[] = [];
const recorded = values.from?.split(",").flatMap(readRecords) ?? null;
const rows = recorded === null ? await measureAll() : rowsFrom(recorded);
const isWhole = !values.quick && !values.add && values.only === undefined && values.record === undefined;
const engine = isWhole ? await engineFiguresOf(values.chaos) : [];
for (const kind of isWhole ? ENGINE_KINDS : [])
  rows.push(
    engineRow(
      kind,
      engine.find((one) => one.kind === kind),
    ),
  );
console.log(`\n${tableOf(rows)}\n`);
if (isWhole) writeDocument(rows, explained(FAULTS, engine));
if (values.add) addToDocument(rows, FAULTS);
const lost = rows.filter(({ lostWrites }) => lostWrites > 0);
for (const { kind, store, lostWrites } of lost)
  console.error(`${kind} (${store}): ${lostWrites} acknowledged writes lost`);
process.exit(lost.length === 0 && failures.length === 0 ? 0 : 1);

function engineFiguresOf(log: string | undefined): readonly EngineFigures[] | Promise<readonly EngineFigures[]> {
  return log === undefined ? engineFigures() : figuresOf(readFileSync(log, "utf8"));
}

async function measureAll(): Promise<FaultRow[]> {
  const measured: FaultRow[] = [];
  for (const one of values.store.split(",")) {
    const [name = "", runs = "1"] = one.split(":");
    const newStore = STORES[name];
    if (newStore === undefined) throw new Error(`there is no store ${name}`);
    for (const kind of FAULT_KINDS) {
      const fault = chosen(kind);
      if (fault !== undefined) measured.push(await budgetOf(fault, newStore, values.quick ? 1 : Number(runs)));
    }
  }
  return measured;
}

function chosen(kind: string): Fault | undefined {
  return FAULTS.find((known) => known.kind === kind && kind.includes(values.only ?? ""));
}

interface Recorded {
  readonly kind: string;
  readonly store: string;
  readonly outcome: Measured;
}

function readRecords(path: string): readonly Recorded[] {
  const lines = readFileSync(path, "utf8").trimEnd().split("\n");
  return lines.map((line) => JSON.parse(line) as Recorded);
}

function rowsFrom(records: readonly Recorded[]): FaultRow[] {
  const names = [...new Set(records.map(({ store }) => store))];
  return names.flatMap((name) => {
    const store = STORES[name]?.();
    return FAULT_KINDS.flatMap((kind) => {
      const fault = chosen(kind);
      if (fault === undefined || store === undefined) return [];
      const outcomes = records.filter((one) => one.kind === kind && one.store === name).map(({ outcome }) => outcome);
      return rowOf(fault, store, outcomes, fault.unfit?.(store) ?? (outcomes.length === 0 ? "not measured" : null));
    });
  });
}

async function budgetOf(fault: Fault, newStore: () => StageStore, runs: number): Promise<FaultRow> {
  const measured: Measured[] = [];
  const store = newStore();
  const unfit = fault.unfit?.(store) ?? null;
  if (unfit !== null) return rowOf(fault, store, [], unfit);
  for (let run = 0; run < runs; run += 1) {
    try {
      const outcome = await once(fault, newStore());
      measured.push(outcome);
      const record: Recorded = { kind: fault.kind, store: store.name, outcome };
      if (values.record !== undefined) appendFileSync(values.record, `${JSON.stringify(record)}\n`);
      console.log(`${fault.kind} (${store.name}): ${sentence(outcome)}`);
    } catch (error) {
      failures.push(`${fault.kind} (${store.name}): ${error instanceof Error ? error.stack : String(error)}`);
      console.error(failures.at(-1));
    }
  }
  return rowOf(fault, store, measured, measured.length === 0 ? "every run has failed" : null);
}

function sentence(outcome: Measured): string {
  const { detectedMs, usableMs, lostWrites, madeAnew, undisturbed, acknowledged, problems } = outcome;
  const detected = detectedMs === null ? "not detected" : `detected after ${Math.round(detectedMs)} ms`;
  const lost = `${lostWrites} of ${acknowledged} writes lost, ${madeAnew} made anew, ${undisturbed} undisturbed`;
  return `${detected}, usable after ${Math.round(usableMs)} ms, ${lost}; ${problems.join(", ")}`;
}

async function once(fault: Fault, store: StageStore): Promise<Measured> {
  const stage = new Stage(store);
  try {
    await fault.prepare?.(stage);
    await stage.open();
    return await stage.measure(() => fault.strike(stage));
  } finally {
    await stage.dispose();
  }
}
