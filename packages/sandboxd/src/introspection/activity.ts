/**
 * Activity inside: running execs, processor use, the last call that did work, the processes.
 *
 * Reading it does not count as activity.
 */

import { readFileSync } from "node:fs";
import type { DaemonActivity, ProcessInfo } from "@sandlot/contract";
import { monotonicMs, sleep, TICKS_PER_SECOND, wallMs } from "../clock.ts";
import type { ExecTable } from "../exec/exec-table.ts";
import type { ProcessRow } from "../exec/process-table.ts";
import type { TerminalTable } from "../terminals/terminal-table.ts";

interface Sample {
  readonly atMs: number;
  readonly cpuMs: number;
}

/** A share is measured over at least this long, and over no more than this. */
const SAMPLE_MIN_MS = 100;
const SAMPLE_MAX_MS = 30_000;
const PAGE_BYTES = 4_096;

export class ActivityMonitor {
  readonly #execs: ExecTable;
  readonly #terminals: TerminalTable;
  #lastActivityAt = wallMs();
  readonly #preview = new LastMoment();
  #sample: Sample | null = null;

  constructor(execs: ExecTable, terminals: TerminalTable) {
    this.#execs = execs;
    this.#terminals = terminals;
  }

  /** A command ran or a file was touched. */
  note(): void {
    this.#lastActivityAt = wallMs();
  }

  /** Bytes went through a tunnel to a port. */
  notePreview(): void {
    this.#preview.note();
  }

  async read(): Promise<Omit<DaemonActivity, "heldCount">> {
    const cpuShare = await this.#cpuShare();
    return {
      runningExecs: this.#execs.runningCount(),
      openTerminals: this.#terminals.openCount,
      previewTrafficAt: this.#preview.wallMs,
      cpuShare,
      lastActivityAt: this.#lastActivityAt,
    };
  }

  /** The processes of execs, and strays, without the daemon's own. */
  processes(): ProcessInfo[] {
    const { byExec, strays } = this.#execs.processes.census(this.#execs.traces());
    const known = [...byExec].flatMap(([key, rows]) => rows.map((row) => infoOf(row, this.#execs.idOf(key))));
    return [...known, ...strays.map((row) => infoOf(row, null))];
  }

  async #cpuShare(): Promise<number> {
    let before = this.#sample;
    const now = monotonicMs();
    if (before === null || now - before.atMs > SAMPLE_MAX_MS || now - before.atMs < SAMPLE_MIN_MS) {
      before = this.#measure();
      await sleep(SAMPLE_MIN_MS);
    }
    const after = this.#measure();
    this.#sample = after;
    return Math.max(0, after.cpuMs - before.cpuMs) / Math.max(1, after.atMs - before.atMs);
  }

  /** Running processes, and those that the daemon has waited for. Children waited for by others count with these. */
  #measure(): Sample {
    const rows = this.#execs.processes.rows();
    const { byExec, strays } = this.#execs.processes.census(this.#execs.traces(), rows);
    const members = [...byExec.values(), strays].flat();
    let ticks = rows.find(({ pid }) => pid === process.pid)?.childrenCpuTicks ?? 0;
    for (const { cpuTicks, childrenCpuTicks } of members) ticks += cpuTicks + childrenCpuTicks;
    return { atMs: monotonicMs(), cpuMs: (ticks * 1_000) / TICKS_PER_SECOND };
  }
}

function infoOf(row: ProcessRow, execId: string | null): ProcessInfo {
  return {
    pid: row.pid,
    parentPid: row.parentPid,
    command: commandLine(row),
    state: row.state,
    residentBytes: row.residentPages * PAGE_BYTES,
    cpuMs: (row.cpuTicks * 1_000) / TICKS_PER_SECOND,
    execId,
  };
}

function commandLine({ pid, name }: ProcessRow): string {
  try {
    const text = readFileSync(`/proc/${pid}/cmdline`, "utf8").replace(/\0+$/, "").replaceAll("\0", " ");
    return text === "" ? name : text.slice(0, 4_096);
  } catch {
    return name;
  }
}

/**
 * When something last happened. Stored on the monotonic clock and reported on the present wall clock, so that a
 * comparison with the host's wall clock is right, also after that was stepped.
 */
export class LastMoment {
  #at: number | null = null;

  note(): void {
    this.#at = monotonicMs();
  }

  /** `null`: never. */
  get wallMs(): number | null {
    return this.#at === null ? null : wallMs() - (monotonicMs() - this.#at);
  }
}
