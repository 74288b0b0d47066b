/** The table of docs/FAILURES.md: rows from measurements, between two marks, and the check that no kind is missing. */

import { readFileSync, writeFileSync } from "node:fs";
import { cpus, loadavg, totalmem } from "node:os";
import { join } from "node:path";
import { ROOT } from "../../scripts/runtime.mjs";
import { FAULT_KINDS, type Fault, type FaultKind } from "./fault.ts";
import type { EngineFigures } from "./faults/engine-figures.ts";
import type { Measured } from "./stage/stage.ts";
import type { StageStore } from "./stage/stage-store.ts";

const PAGE = join(ROOT, "docs", "FAILURES.md");
const BEGIN = "<!-- figures: begin (npm run failures) -->";
const END = "<!-- figures: end -->";

/** Up to so many faults are named with the machine that measured them. */
const PARTIAL_MAX = 5;

export interface FaultRow {
  readonly kind: FaultKind;
  readonly store: string;
  readonly detected: string;
  readonly usable: string;
  readonly lost: string;
  readonly lostWrites: number;
  readonly runs: number;
  readonly test: string;
}

/** `why`: the store cannot have the fault. */
export function rowOf(
  fault: Fault,
  { name: store }: Pick<StageStore, "name">,
  measured: readonly Measured[],
  why: string | null,
): FaultRow {
  const lostWrites = measured.reduce((sum, one) => sum + one.lostWrites, 0);
  const madeAnew = Math.max(0, ...measured.map((one) => one.madeAnew));
  const lost = why ?? (madeAnew === 0 ? "nothing" : `processes of ${madeAnew} of 8 sandboxes`);
  const times = (of: (one: Measured) => number | null) => span(measured.flatMap((one) => of(one) ?? []));
  return {
    kind: fault.kind,
    store,
    detected: times((one) => one.detectedMs),
    usable: times((one) => one.usableMs),
    lost: lostWrites === 0 ? lost : `${lostWrites} acknowledged writes; ${lost}`,
    lostWrites,
    runs: measured.length,
    test: testCell(fault, store, why === null || measured.length > 0),
  };
}

function testCell({ test, testsOf }: Fault, store: string, isPossible: boolean): string {
  return isPossible ? `\`${testsOf?.[store] ?? test}\`` : "–";
}

/** Without figures the row says that the engine was missing. */
export function engineRow(kind: FaultKind, figures: EngineFigures | undefined): FaultRow {
  const test = "`tests/chaos/faults/engine-faults.ts`";
  const row = { kind, store: "sqlite", detected: "–", lostWrites: 0, test };
  if (figures === undefined) return { ...row, usable: "–", lost: "not measured: no engine here", runs: 0 };
  const { medianMs, worstMs, lost, runs } = figures;
  return { ...row, usable: `${seconds(medianMs)} (${seconds(worstMs)})`, lost, runs };
}

/** The median and the worst. */
function span(times: readonly number[]): string {
  if (times.length === 0) return "–";
  const sorted = times.toSorted((one, other) => one - other);
  const [middle, worst] = [sorted[Math.floor((sorted.length - 1) / 2)] ?? 0, sorted.at(-1) ?? 0];
  return `${seconds(middle)} (${seconds(worst)})`;
}

function seconds(ms: number): string {
  return `${(ms / 1_000).toFixed(ms < 9_950 ? 1 : 0)} s`;
}

export function tableOf(rows: readonly FaultRow[]): string {
  return tableOfCells(rows.map(cellsOfRow));
}

function cellsOfRow({ kind, store, detected, usable, lost, runs, test }: FaultRow): readonly string[] {
  return [kind, store, detected, usable, lost, String(runs), test];
}

function tableOfCells(cells: readonly (readonly string[])[]): string {
  const head = ["fault", "store", "detected", "usable", "lost", "runs", "test"];
  const widths = head.map((name, column) => Math.max(name.length, ...cells.map((row) => (row[column] ?? "").length)));
  const line = (row: readonly string[]) =>
    `| ${row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join(" | ")} |`;
  const rule = `| ${widths.map((width) => "-".repeat(width)).join(" | ")} |`;
  return [line(head), rule, ...cells.map(line)].join("\n");
}

/** How each fault was made, and what shows it. */
export function explained(faults: readonly Fault[], engine: readonly EngineFigures[]): string {
  const own = faults.map(({ kind, how, detection }) => `- **${kind}**: ${how}. Detected: ${detection}.`);
  return [...own, ...engine.map(({ kind, how }) => `- **${kind}**: ${how}.`)].join("\n");
}

/**
 * The rows of a page, with `added` in the place of those of the same fault and store. The other figures stay; their tests
 * are those of `faults`.
 */
export function withRows(
  figures: string,
  added: readonly FaultRow[],
  faults: readonly Fault[],
  measuredOn: string,
): string {
  const lines = figures.split("\n");
  const from = lines.findIndex(isRow);
  const kept = lines.filter(isRow).slice(2).map(cellsOf);
  const fresh = new Map(added.map((row) => [`${row.kind} ${row.store}`, cellsOfRow(row)]));
  const others = kept.map((cells) => fresh.get(`${cells[0]} ${cells[1]}`) ?? withTest(cells, faults));
  const isNew = ({ kind, store }: FaultRow) => !kept.some(([one, of]) => one === kind && of === store);
  const rows = [...others, ...added.filter(isNew).map(cellsOfRow)];
  const rest = lines.slice(from + kept.length + 2);
  const name = `The rows of ${nameOf(added)}: `;
  const above = lines.slice(0, from).filter((line) => !line.startsWith(name));
  while (above.at(-1) === "") above.pop();
  return [...above, "", `${name}${measuredOn}`, "", tableOfCells(rows), ...withExplained(rest, faults)].join("\n");
}

/** The stores where all of their faults were measured, else the faults as well. */
function nameOf(added: readonly FaultRow[]): string {
  const [stores, kinds] = [new Set(added.map(({ store }) => store)), new Set(added.map(({ kind }) => kind))];
  const of = [...stores].join(" and ");
  return kinds.size > PARTIAL_MAX ? of : `${of} with ${[...kinds].join(", ")}`;
}

function isRow(line: string): boolean {
  return line.startsWith("| ");
}

function cellsOf(line: string): readonly string[] {
  const cells = line.slice(2, -2).split(" | ");
  return cells.map((cell) => cell.trim());
}

function withTest(cells: readonly string[], faults: readonly Fault[]): readonly string[] {
  const [kind, store = "", , , , runs] = cells;
  const fault = faults.find((one) => one.kind === kind);
  return fault === undefined ? cells : [...cells.slice(0, -1), testCell(fault, store, runs !== "0")];
}

/** The lines of faults from elsewhere, such as chaos, stay. */
function withExplained(lines: readonly string[], faults: readonly Fault[]): readonly string[] {
  const isOwn = (line: string) => faults.some(({ kind }) => line.startsWith(`- **${kind}**: `));
  const first = lines.findIndex((line) => line.startsWith("- **"));
  if (first < 0 || faults.length === 0) return lines;
  const others = lines.slice(first).filter((line) => !isOwn(line));
  return [...lines.slice(0, first), explained(faults, []), ...others];
}

/** Replaces the rows that were measured. */
export function addToDocument(rows: readonly FaultRow[], faults: readonly Fault[]): void {
  const page = readFileSync(PAGE, "utf8");
  const [begin, end] = marksOf(page);
  const figures = withRows(page.slice(begin + BEGIN.length, end), rows, faults, machine());
  writeFileSync(PAGE, `${page.slice(0, begin)}${BEGIN}${figures}${page.slice(end)}`);
  console.log("added to docs/FAILURES.md");
}

function marksOf(page: string): readonly [begin: number, end: number] {
  const [begin, end] = [page.indexOf(BEGIN), page.indexOf(END)];
  if (begin < 0 || end < begin) throw new Error(`${PAGE} lacks its marks`);
  return [begin, end];
}

export function writeDocument(rows: readonly FaultRow[], explanation: string): void {
  const page = readFileSync(PAGE, "utf8");
  const [begin, end] = marksOf(page);
  const figures = [machine(), tableOf(rows), "How each fault was made:", explanation].join("\n\n");
  writeFileSync(PAGE, `${page.slice(0, begin)}${BEGIN}\n\n${figures}\n\n${page.slice(end)}`);
  console.log("wrote docs/FAILURES.md");
}

function machine(): string {
  const processors = cpus();
  const gigabytes = Math.round(totalmem() / 1024 ** 3);
  const load = (loadavg()[2] ?? 0).toFixed(1);
  return (
    `Measured on ${new Date().toISOString().slice(0, 10)}: ${processors.length} processors (${processors[0]?.model.trim()}), ` +
    `${gigabytes} GB, Node ${process.versions.node}; load average of the last 15 minutes ${load}, other work included.`
  );
}

/** What the document lacks. */
export function checkDocument(): readonly string[] {
  const page = readFileSync(PAGE, "utf8");
  const figures = page.slice(page.indexOf(BEGIN), page.indexOf(END));
  const missing = FAULT_KINDS.filter((kind) => !figures.includes(`| ${kind} `));
  return missing.map((kind) => `docs/FAILURES.md has no figures for: ${kind}`);
}
