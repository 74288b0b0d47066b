/** The sums over many runs: how often each fault fired, each move happened and each check was evaluated. */

import { INVARIANTS, MOVE_NAMES } from "./checks/invariants.ts";
import { FAULT_KINDS } from "./faults.ts";
import type { RunResult } from "./run.ts";

/** The total count of an event, and the number of runs with it. */
type Counts = Record<string, { total: number; runs: number }>;

export interface Tally {
  runs: number;
  events: number;
  readonly faults: Counts;
  readonly moves: Counts;
  readonly checks: Counts;
  /** Broken promises that a store which may rewind excepts. */
  readonly exceptions: Counts;
}

/** A kind of fault that fires in a smaller share of the runs proves too little. */
const FAULT_SHARE_MIN = 0.01;
/** With fewer runs than this, absence means nothing. */
const RUNS_TO_JUDGE = 500;

export function newTally(): Tally {
  return { runs: 0, events: 0, faults: {}, moves: {}, checks: {}, exceptions: {} };
}

export function addRun(tally: Tally, run: RunResult): void {
  tally.runs += 1;
  tally.events += run.events;
  for (const kind of ["faults", "moves", "checks", "exceptions"] as const) {
    for (const [name, count] of Object.entries(run[kind])) add(tally[kind], name, count, 1);
  }
}

export function addTally(tally: Tally, other: Tally): void {
  tally.runs += other.runs;
  tally.events += other.events;
  for (const kind of ["faults", "moves", "checks", "exceptions"] as const) {
    for (const [name, { total, runs }] of Object.entries(other[kind])) add(tally[kind], name, total, runs);
  }
}

/** Events too rare for the runs to have proved anything about them. */
export function shortcomings(tally: Tally): string[] {
  if (tally.runs < RUNS_TO_JUDGE) return [];
  return [
    ...FAULT_KINDS.filter((kind) => (tally.faults[kind]?.runs ?? 0) < FAULT_SHARE_MIN * tally.runs).map(
      (kind) => `the fault ${kind} fired in under ${FAULT_SHARE_MIN * 100} % of the runs`,
    ),
    ...MOVE_NAMES.filter((name) => tally.moves[name] === undefined).map((name) => `the move ${name} never happened`),
    ...Object.keys(INVARIANTS)
      .filter((name) => tally.checks[name] === undefined)
      .map((name) => `the check ${name} was never evaluated`),
  ];
}

export function describe(tally: Tally): string {
  const section = (title: string, names: readonly string[], counts: Counts) => [
    `\n${title}`,
    ...names.map((name) => {
      const { total, runs } = counts[name] ?? { total: 0, runs: 0 };
      const share = ((100 * runs) / Math.max(1, tally.runs)).toFixed(1);
      return `  ${name.padEnd(34)} ${String(total).padStart(11)} times, in ${share.padStart(5)} % of the runs`;
    }),
  ];
  return [
    ...section("Faults", FAULT_KINDS, tally.faults),
    ...section("Moves", MOVE_NAMES, tally.moves),
    ...section("Checks", Object.keys(INVARIANTS), tally.checks),
    ...section("Excepted after a rewind", Object.keys(tally.exceptions).sort(), tally.exceptions),
  ].join("\n");
}

function add(counts: Counts, name: string, total: number, runs: number): void {
  const before = counts[name] ?? { total: 0, runs: 0 };
  counts[name] = { total: before.total + total, runs: before.runs + runs };
}
