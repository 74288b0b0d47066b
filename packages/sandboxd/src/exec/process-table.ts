/**
 * Which processes there are, and which exec each belongs to.
 *
 * A process belongs to an exec when one of these holds:
 *   1. its environment carries the exec's marker. It is inherited, and neither forking twice nor `setsid` changes it;
 *   2. its session or process group is the one the exec was started in;
 *   3. its parent belongs to the exec;
 *   4. it belonged to the exec at an earlier look (a program may write over its environment);
 *   5. only where the pid namespace is the sandbox's own, and no rule above applies: it carries the exec's tag
 *      (`process-tag.ts`), which only this exec and no older process has;
 *   6. likewise: no other exec has run since this one began.
 *
 * What escapes: a process that has cleared its environment *and* left its session *and* lost its parent before the
 * first look, and has chosen its own core dumps too, or is outside a pid namespace of the sandbox's own. No exec's end
 * reaches it; destroying the sandbox does. In a pid namespace of the sandbox's own it is a **stray**: it is listed, and
 * it counts as running, like a background process of a forgotten exec. Without /proc (macOS) only the process group is
 * known.
 */

import { closeSync, openSync, readdirSync, readSync } from "node:fs";
import { randomDigits } from "../random.ts";
import { readTag, tagOf } from "./process-tag.ts";

export interface ProcessRow {
  readonly pid: number;
  readonly parentPid: number;
  readonly group: number;
  readonly session: number;
  readonly state: string;
  readonly name: string;
  /** Clock ticks since boot. Tells a process from a later one with the same pid. */
  readonly startTicks: number;
  readonly cpuTicks: number;
  /** Of its children that have ended and were waited for. */
  readonly childrenCpuTicks: number;
  readonly residentPages: number;
}

/** The traces of an exec that identify its processes. */
export interface ExecTrace {
  /** The marker's value for this exec. */
  readonly key: string;
  /** Of the first process; also its session and process group. `null` when it could not be started. */
  readonly pid: number | null;
  /** No process of the exec began earlier. */
  readonly startTicks: number;
  /** No other exec has run since it began. */
  readonly alone: boolean;
}

interface Census {
  readonly byExec: ReadonlyMap<string, readonly ProcessRow[]>;
  readonly strays: readonly ProcessRow[];
}

export const MARKER_NAME = "SANDLOT_EXEC";
/** The part of an environment that is searched for the marker. */
const ENVIRON_MAX_BYTES = 256 * 1024;
const scratch = Buffer.allocUnsafeSlow(ENVIRON_MAX_BYTES);

export class ProcessTable {
  /** Distinguishes this daemon's markers from those of any other on the same machine. */
  readonly #prefix: string;
  readonly #ownsPidNamespace: boolean;
  /** Markers seen before, by pid and start time. Holds living processes only. */
  #seen = new Map<string, string>();

  constructor(ownsPidNamespace: boolean) {
    this.#ownsPidNamespace = ownsPidNamespace;
    this.#prefix = `${process.pid}.${randomDigits(8)}.`;
  }

  marker(key: string): string {
    return this.#prefix + key;
  }

  /** All processes, without those that have ended but were not yet waited for. */
  rows(): ProcessRow[] {
    return pids()
      .map(readRow)
      .filter((row): row is ProcessRow => row !== null && row.state !== "Z" && row.state !== "X");
  }

  /** Living processes of the daemon's execs: by the exec's key. */
  byExec(
    traces: readonly ExecTrace[],
    rows: readonly ProcessRow[] = this.rows(),
  ): ReadonlyMap<string, readonly ProcessRow[]> {
    return this.census(traces, rows).byExec;
  }

  /** The same, and the processes without a known exec, where all processes are the sandbox's. */
  census(traces: readonly ExecTrace[], rows: readonly ProcessRow[] = this.rows()): Census {
    const owner = this.#owners(traces, rows);
    return { byExec: grouped(rows, owner), strays: this.#ownsPidNamespace ? strayRows(rows, owner) : [] };
  }

  #owners(traces: readonly ExecTrace[], rows: readonly ProcessRow[]): Map<number, string> {
    const owner = new Map<number, string>();
    const seen = new Map<string, string>();
    const bySession = new Map(traces.flatMap((trace) => (trace.pid === null ? [] : [[trace.pid, trace] as const])));
    for (const row of rows) {
      if (row.pid === process.pid) continue;
      const identity = `${row.pid}.${row.startTicks}`;
      const key = this.#seen.get(identity) ?? this.#markerOf(row.pid) ?? sessionOwner(bySession, row);
      if (key === undefined) continue;
      owner.set(row.pid, key);
      seen.set(identity, key);
    }
    this.#inherit(rows, owner, seen);
    if (this.#ownsPidNamespace) {
      const strays = strayRows(rows, owner);
      recognize(strays, traces, owner, seen);
      this.#inherit(rows, owner, seen);
      adopt(strays, traces, owner, seen);
    }
    this.#seen = seen;
    return owner;
  }

  /** Children belong to their parents' exec, at any depth. */
  #inherit(rows: readonly ProcessRow[], owner: Map<number, string>, seen: Map<string, string>): void {
    for (let grew = true; grew; ) {
      grew = false;
      for (const row of rows) {
        const key = owner.get(row.parentPid);
        if (key === undefined || owner.has(row.pid) || row.pid === process.pid) continue;
        owner.set(row.pid, key);
        seen.set(`${row.pid}.${row.startTicks}`, key);
        grew = true;
      }
    }
  }

  #markerOf(pid: number): string | undefined {
    const environ = readProc(`/proc/${pid}/environ`);
    if (environ === null) return undefined;
    const wanted = `${MARKER_NAME}=${this.#prefix}`;
    // The last one wins, as it does for the program.
    const at = environ.lastIndexOf(wanted);
    if (at < 0 || (at > 0 && environ[at - 1] !== 0)) return undefined;
    const end = environ.indexOf(0, at);
    return environ.toString("latin1", at + wanted.length, end < 0 ? environ.length : end);
  }
}

function grouped(rows: readonly ProcessRow[], owner: ReadonlyMap<number, string>): Map<string, ProcessRow[]> {
  const found = new Map<string, ProcessRow[]>();
  for (const row of rows) {
    const key = owner.get(row.pid);
    if (key === undefined) continue;
    const members = found.get(key);
    if (members === undefined) found.set(key, [row]);
    else members.push(row);
  }
  return found;
}

/** Processes without an owner that are neither the daemon's ancestors nor its own helpers. */
function strayRows(rows: readonly ProcessRow[], owner: ReadonlyMap<number, string>): readonly ProcessRow[] {
  const kin = ancestors(rows, process.pid);
  return rows.filter(({ pid, parentPid }) => !owner.has(pid) && !kin.has(pid) && parentPid !== process.pid);
}

/** Strays with a tag that can only belong to one exec. */
function recognize(
  strays: readonly ProcessRow[],
  traces: readonly ExecTrace[],
  owner: Map<number, string>,
  seen: Map<string, string>,
): void {
  const tags = new Map(strays.map((row) => [row, readTag(row.pid)]));
  for (const tag of new Set(tags.values())) {
    if (tag === null) continue;
    const bearers = strays.filter((row) => tags.get(row) === tag);
    const [only, ...others] = traces.filter(({ key }) => tagOf(key) === tag);
    // Tags are reused: an older process with this tag may belong to an exec that has ended.
    if (only === undefined || others.length > 0 || bearers.some((row) => row.startTicks < only.startTicks)) continue;
    for (const row of bearers) {
      owner.set(row.pid, only.key);
      seen.set(`${row.pid}.${row.startTicks}`, only.key);
    }
  }
}

/** Strays that can only come from the single exec that runs. */
function adopt(
  strays: readonly ProcessRow[],
  traces: readonly ExecTrace[],
  owner: Map<number, string>,
  seen: Map<string, string>,
): void {
  const only = traces.find((trace) => trace.alone);
  if (only === undefined) return;
  for (const row of strays) {
    if (owner.has(row.pid) || row.startTicks < only.startTicks) continue;
    owner.set(row.pid, only.key);
    seen.set(`${row.pid}.${row.startTicks}`, only.key);
  }
}

function sessionOwner(bySession: ReadonlyMap<number, ExecTrace>, row: ProcessRow): string | undefined {
  const trace = bySession.get(row.session) ?? bySession.get(row.group);
  // An older process with that pid is unrelated: pids are reused.
  if (trace === undefined || row.startTicks < trace.startTicks) return undefined;
  return trace.key;
}

function ancestors(rows: readonly ProcessRow[], pid: number): Set<number> {
  const parents = new Map(rows.map((row) => [row.pid, row.parentPid]));
  const kin = new Set([1]);
  for (let at: number | undefined = pid; at !== undefined && !kin.has(at); at = parents.get(at)) kin.add(at);
  return kin;
}

function pids(): number[] {
  try {
    return readdirSync("/proc").map(Number).filter(Number.isInteger);
  } catch {
    return [];
  }
}

function readRow(pid: number): ProcessRow | null {
  const stat = readProc(`/proc/${pid}/stat`)?.toString("latin1");
  if (stat === undefined || stat === "") return null;
  // The name stands in parentheses and may hold anything, so the fields are counted from the last one.
  const open = stat.indexOf("(");
  const close = stat.lastIndexOf(")");
  const fields = stat.slice(close + 2).split(" ");
  const number = (index: number) => Number(fields[index] ?? 0);
  return {
    pid,
    name: stat.slice(open + 1, close),
    state: fields[0] ?? "?",
    parentPid: number(1),
    group: number(2),
    session: number(3),
    cpuTicks: number(11) + number(12),
    childrenCpuTicks: number(13) + number(14),
    startTicks: number(19),
    residentPages: number(21),
  };
}

/** Reads a file of /proc. The result is valid until the next call. `null`: gone, or not readable for this account. */
function readProc(path: string): Buffer | null {
  let fd: number;
  try {
    fd = openSync(path, "r");
  } catch {
    return null;
  }
  try {
    let size = 0;
    // The kernel returns a file of /proc in pieces of a page.
    for (let count = -1; count !== 0 && size < scratch.length; size += count) {
      count = readSync(fd, scratch, size, scratch.length - size, null);
    }
    return scratch.subarray(0, size);
  } catch {
    return null;
  } finally {
    closeSync(fd);
  }
}
