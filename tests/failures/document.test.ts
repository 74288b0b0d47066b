import { existsSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { ROOT } from "../../scripts/runtime.mjs";
import { checkDocument, rowOf, tableOf, withRows } from "./document.ts";
import { FAULT_KINDS } from "./fault.ts";
import { figuresOf } from "./faults/engine-figures.ts";
import { MACHINE_FAULTS } from "./faults/machine-faults.ts";
import { PROCESS_FAULTS } from "./faults/process-faults.ts";
import { STORE_FAULTS } from "./faults/store-faults.ts";

const FAULTS = [...PROCESS_FAULTS, ...STORE_FAULTS, ...MACHINE_FAULTS];

test("the failure budget has figures for every kind of fault", () => expect(checkDocument()).toEqual([]));

test("every fault names a test that exists, and no kind is made twice", () => {
  const named = FAULTS.flatMap(({ test: path, testsOf = {} }) => [path, ...Object.values(testsOf)]);
  expect(named.filter((path) => !existsSync(join(ROOT, path)))).toEqual([]);
  expect(new Set(FAULTS.map(({ kind }) => kind)).size).toBe(FAULTS.length);
  expect(FAULTS.filter(({ kind }) => !FAULT_KINDS.includes(kind))).toEqual([]);
});

test("the figures of an engine are those that chaos prints", () => {
  const text = "the engine restarted: usable after 2019 ms; all of it\nthe engine restarted: usable after 5 ms; all\n";
  expect(figuresOf(text)).toMatchObject([{ kind: "engine restarted", runs: 2, medianMs: 5, worstMs: 2_019 }]);
});

test("a row has the median and the worst, and says how many writes were lost", () => {
  const [fault] = PROCESS_FAULTS;
  if (fault === undefined) throw new Error("there is no fault");
  const one = { detectedMs: 100, undisturbed: 0, acknowledged: 9, madeAnew: 0, problems: [] };
  const times = [4_000, 1_000, 2_000].map((usableMs) => ({ ...one, usableMs, lostWrites: usableMs === 4_000 ? 2 : 0 }));
  const row = rowOf(fault, { name: "sqlite" }, times, null);
  expect(row).toMatchObject({ detected: "0.1 s (0.1 s)", usable: "2.0 s (4.0 s)", lostWrites: 2, runs: 3 });
  expect(tableOf([row])).toContain("2 acknowledged writes");
});

test("rows are added without touching the figures of others, and every row has its test of now", () => {
  const [fault, other] = PROCESS_FAULTS;
  if (fault === undefined || other === undefined) throw new Error("there are no faults");
  const moved = { ...other, test: "former.test.ts" };
  const counts = { undisturbed: 0, acknowledged: 9, lostWrites: 0, madeAnew: 0, problems: [] };
  const outcomes = [{ detectedMs: 100, usableMs: 200, ...counts }];
  const rows = [rowOf(fault, { name: "sqlite" }, outcomes, null), rowOf(moved, { name: "redis" }, outcomes, null)];
  const figures = `\n\nMeasured then\n\n${tableOf(rows)}\n\nHow each fault was made:\n\n- **engine restarted**: so.\n\n`;
  const added = rowOf(fault, { name: "redis" }, [], "new");
  const once = withRows(figures, [added], [fault, other], "today");
  expect(once).toContain(`Measured then\n\nThe rows of redis with ${fault.kind}: today\n\n| fault`);
  expect(once).toContain(tableOf([rows[0] as typeof added, rowOf(other, { name: "redis" }, outcomes, null), added]));
  expect(once).toMatch(/: so\.\n\n$/);
  expect(once).toContain(`- **${fault.kind}**: ${fault.how}. Detected: ${fault.detection}.`);
  expect(withRows(once, [added], [fault, other], "today")).toBe(once);
});

test("a store that cannot have a fault has no test of it", () => {
  const fault = STORE_FAULTS.find(({ kind }) => kind === "store killed");
  if (fault === undefined) throw new Error("there is no such fault");
  expect(rowOf(fault, { name: "sqlite" }, [], "a file has no process")).toMatchObject({ test: "–", runs: 0 });
});

test("a row names the test of its own store", () => {
  const fault = STORE_FAULTS.find(({ kind }) => kind === "store failed over with lost writes");
  if (fault === undefined) throw new Error("there is no such fault");
  const tests = ["sqlite", "postgres", "redis"].map((name) => rowOf(fault, { name }, [], null).test);
  expect(tests).toEqual([
    "`packages/fleet/test/store/sqlite-files.test.ts`",
    "`packages/fleet/test/engines/postgres/lost-writes.test.ts`",
    "`packages/fleet/test/engines/redis/replicas.test.ts`",
  ]);
});
