/**
 * What the row clients were told, and whether the rows agree.
 *
 *   acknowledged   the last acknowledged commit of a row is in it, or the epoch is another
 *   refused        a commit that was refused is in no row after its `notAfter`
 *   shared row     no two acknowledged commits of an epoch wrote the same count: that would be a lost update
 *   step           no step takes longer than its deadline
 */

import type { Epoch } from "@sandlot/contract";
import { isSandlotError } from "@sandlot/contract";
import type { ReadAnswer, RowKey, RowServer } from "../../../packages/fleet/src/store/rows/row-server.ts";
import { Standstills } from "../../crash/standstills.ts";

export interface Acknowledged {
  readonly epoch: Epoch;
  readonly id: string;
  readonly row: RowKey;
  /** The count in the shared row, if the commit raised it. */
  readonly count: number | null;
}

export interface Refused {
  readonly epoch: Epoch;
  readonly id: string;
  readonly row: RowKey;
  /** On the server's clock. */
  readonly notAfter: number;
  /** The server said so. Otherwise it did not answer: the commit may have taken effect, but not after `notAfter`. */
  readonly isCertain: boolean;
}

/** For the event loop and the processors of a small machine. */
const SLACK_MS = 400;
const READ_MS = 5_000;
const READ_MAX = 500;

export class RowFacts {
  readonly #violated: (what: string) => void;
  readonly #last = new Map<RowKey, Acknowledged>();
  /** When each commit began, as a number. */
  readonly #order = new Map<string, number>();
  readonly #refused: Refused[] = [];
  readonly #counts = new Map<string, string>();
  readonly #failures = new Map<string, number>();
  steps = 0;
  acknowledgedCount = 0;
  unansweredCount = 0;
  retries = 0;
  rewinds = 0;
  worstStepMs = 0;
  readonly #standstills = new Standstills();
  readonly #slow: { readonly name: string; readonly from: number; readonly to: number; readonly timeoutMs: number }[] =
    [];
  /** Pairs of commits that wrote the same count: a lost update, unless a rewind has ended their epoch. */
  #twice: { readonly epoch: Epoch; readonly what: string }[] = [];
  lostInRewinds = 0;

  constructor(violated: (what: string) => void) {
    this.#violated = violated;
  }

  /** Before a commit is sent for the first time. */
  began(id: string): void {
    this.#order.set(id, this.#order.size);
  }

  acknowledged(commit: Acknowledged): void {
    this.acknowledgedCount += 1;
    this.#last.set(commit.row, commit);
    if (commit.count === null) return;
    const place = `${commit.epoch}/${commit.count}`;
    const other = this.#counts.get(place);
    const what = `lost update: ${other} and ${commit.id} both wrote count ${commit.count}`;
    if (other !== undefined) this.#twice.push({ epoch: commit.epoch, what });
    this.#counts.set(place, commit.id);
  }

  refused(commit: Refused): void {
    if (!commit.isCertain) this.unansweredCount += 1;
    this.#refused.push(commit);
  }

  retried(): void {
    this.retries += 1;
  }

  rewound(): void {
    this.rewinds += 1;
  }

  failed(error: unknown): void {
    const name = isSandlotError(error) ? error.code : error instanceof Error ? error.name : String(error);
    if (name !== "store_unavailable" && name !== "AbortError" && name !== "TimeoutError")
      this.#violated(`a commit failed oddly: ${error instanceof Error ? error.stack : String(error)}`);
    this.#failures.set(name, (this.#failures.get(name) ?? 0) + 1);
  }

  step(name: string, from: number, timeoutMs: number): void {
    this.steps += 1;
    const to = performance.now();
    if (to - from > timeoutMs) this.#slow.push({ name, from, to, timeoutMs });
    else this.worstStepMs = Math.max(this.worstStepMs, to - from);
  }

  /**
   * Compares with the rows, over a link that no fault touches. The outcome of every unanswered commit is fixed at the
   * first look after its `notAfter`, and must be the same at every later one.
   */
  async check(rows: RowServer): Promise<void> {
    this.#checkSlow();
    await this.#checkRefused(rows);
    const epoch = await this.#checkAcknowledged(rows);
    const over = this.#twice.filter((one) => one.epoch !== epoch);
    this.lostInRewinds += over.length;
    for (const { what } of this.#twice.filter((one) => one.epoch === epoch)) this.#violated(what);
    this.#twice = [];
  }

  /** Judged later than it ends: a standstill is known only when it is over. */
  #checkSlow(): void {
    for (const { name, from, to, timeoutMs } of this.#slow.splice(0)) {
      const ms = to - from - this.#standstills.between(from, to);
      this.worstStepMs = Math.max(this.worstStepMs, ms);
      if (ms > timeoutMs + SLACK_MS)
        this.#violated(`a step of ${name} took ${Math.round(ms)} ms, ${timeoutMs} ms were allowed`);
    }
  }

  /** Returns the present epoch. */
  async #checkAcknowledged(rows: RowServer): Promise<Epoch> {
    const commits = [...this.#last.values()];
    const present = await readAll(
      rows,
      commits.map(({ row }) => row),
    );
    for (const { row, id, epoch } of commits) {
      const found = present.bodies.get(row) ?? null;
      // A later commit may be there whose answer is under way.
      if (epoch !== present.epoch || this.#orderOf(found) >= this.#orderOf(id)) continue;
      this.#violated(`${row} has ${found} and has lost ${id}, which was acknowledged in this epoch`);
    }
    return present.epoch;
  }

  #orderOf(id: string | null): number {
    return id === null ? -1 : (this.#order.get(id) ?? -1);
  }

  readonly #settled = new Map<string, boolean>();

  async #checkRefused(rows: RowServer): Promise<void> {
    const { now } = await rows.read([], AbortSignal.timeout(READ_MS));
    const over = this.#refused.filter(({ notAfter }) => notAfter < now);
    const present = await readAll(
      rows,
      over.map(({ row }) => row),
    );
    for (const { id, row, epoch, isCertain } of over) {
      if (epoch !== present.epoch) continue;
      const isThere = present.bodies.get(row) === id;
      const before = isCertain ? false : this.#settled.get(id);
      if (isThere && before === false) this.#violated(`${row} has ${id}, which took effect after it was refused`);
      if (before === undefined) this.#settled.set(id, isThere);
    }
  }

  close(): void {
    this.#standstills.close();
  }

  summary(): string {
    const failures = [...this.#failures].map(([name, count]) => `${name} ${count}`).join(", ") || "none";
    const applied = [...this.#settled.values()].filter(Boolean).length;
    return (
      `rows: ${this.steps} steps, ${this.acknowledgedCount} commits acknowledged, ${this.unansweredCount} unanswered ` +
      `(${applied} of them took effect in time), ${this.retries} retries, worst step ${Math.round(this.worstStepMs)} ms, ` +
      `${this.rewinds} rewinds noticed (${this.lostInRewinds} updates lost before that); failures: ${failures}`
    );
  }
}

async function readAll(
  rows: RowServer,
  keys: readonly RowKey[],
): Promise<{ readonly epoch: Epoch; readonly bodies: ReadonlyMap<RowKey, string | null> }> {
  const bodies = new Map<RowKey, string | null>();
  const distinct = [...new Set(keys)];
  let answer: ReadAnswer = await rows.read([], AbortSignal.timeout(READ_MS));
  for (let from = 0; from < distinct.length; from += READ_MAX) {
    answer = await rows.read(distinct.slice(from, from + READ_MAX), AbortSignal.timeout(READ_MS));
    for (const { key, body } of answer.rows)
      bodies.set(key, body === null ? null : (JSON.parse(body) as { id: string }).id);
  }
  return { epoch: answer.epoch, bodies };
}
