/**
 * Rate limits across gateways: each gateway writes once a second how much its busy callers took, and charges its own
 * buckets for what the others wrote. Requests wait for none of this.
 *
 * Borrowing tokens from the store in batches was considered. It would hold the burst as well, but a caller's first
 * request at a gateway would wait for the store, and every active caller would cost a write.
 *
 * Error. N gateways admit for a caller in T seconds at most
 *
 *   rate × T × (1 + 0.01 × (N - 1))  +  N × burst  +  (N - 1) × rate × 3 s
 *
 * because a caller below `BUSY_SHARE` of its rate at a gateway is not reported, each gateway has a burst of its own, and
 * a report is charged up to three intervals late. What was admitted too early is repaid: it is charged, and the caller
 * is refused until its average is the limit again. While the store does not answer, each gateway limits by itself.
 *
 * Invariants
 * - At rest nothing is read or written: only gateways with busy callers take part.
 * - An entry lists at most `LISTED_MAX` callers, by the hash of their name.
 * - The entry of a gateway that is gone is removed by another one.
 */

import { hash } from "node:crypto";
import type { SandlotError } from "@sandlot/contract";
import { z } from "zod";
import type { SharedEntries } from "../../fleet.ts";
import { tryJson } from "../../world/try-json.ts";
import type { Timer, World } from "../../world/world.ts";
import { noRoom } from "../named-texts/named-texts.ts";
import type { Buckets } from "./rate-limits.ts";

const INTERVAL_MS = 1_000;
/** The share of its rate from which a caller is busy. A smaller one writes more callers, for a smaller error. */
const BUSY_SHARE = 0.01;
/** Intervals after which a caller that is not busy any more is no longer listed, and a peer's totals are too old. */
const KEPT_INTERVALS = 3;
/** Busy callers of one gateway, the busiest first; some 45 bytes each. */
const LISTED_MAX = 1_000;
/** Intervals without a change after which a peer is gone. */
const GONE_INTERVALS = 60;
const PREFIX = "rates/";

/** For each caller: tokens taken since it is listed, and in the last interval. */
const reportSchema = z.object({
  turn: z.int().min(0),
  callers: z.record(z.string(), z.tuple([z.number().min(0), z.number().min(0)])),
});
type Report = z.infer<typeof reportSchema>;

interface Listed {
  readonly buckets: Buckets;
  readonly name: string;
  total: number;
  last: number;
  quietIntervals: number;
}

interface Peer {
  turn: number;
  report: Report;
  /** This gateway's intervals since the report was read, and since it changed. */
  readIntervals: number;
  sameIntervals: number;
}

export interface RateExchangeParts {
  readonly world: World;
  readonly entries: SharedEntries;
  /** Another one for each gateway. */
  readonly instance: string;
  readonly buckets: Readonly<Record<string, Buckets>>;
  /** Called once for each time in which the store does not answer, or has no room for this gateway's entry. */
  readonly onProblem: (error: unknown) => void;
}

export class RateExchange {
  readonly #parts: RateExchangeParts;
  readonly #listed = new Map<string, Listed>();
  readonly #peers = new Map<string, Peer>();
  #timer: Timer | null = null;
  #closed = false;
  #failing = false;
  #turn = 0;
  /** The number of this gateway's entry; `null`: it has none. */
  #seq: number | null = null;

  constructor(parts: RateExchangeParts) {
    this.#parts = parts;
    for (const buckets of Object.values(parts.buckets)) buckets.tally();
    this.#later();
  }

  /** Reports no more, and removes this gateway's entry. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#timer?.cancel();
    // An entry that could not be removed is removed by another gateway.
    if (this.#seq !== null) await this.#parts.entries.delete(this.#own, this.#seq).catch(() => false);
  }

  get #own(): string {
    return `${PREFIX}${this.#parts.instance}`;
  }

  #later(): void {
    if (this.#closed) return;
    const go = () => void this.#exchange().finally(() => this.#later());
    this.#timer = this.#parts.world.timer(INTERVAL_MS, go, { background: true });
  }

  async #exchange(): Promise<void> {
    this.#gather();
    for (const peer of this.#peers.values()) peer.readIntervals += 1;
    if (this.#listed.size === 0 && this.#seq === null) return;
    try {
      const refusal = await this.#report();
      if (this.#listed.size > 0) await this.#charge();
      if (refusal !== null) throw refusal;
      this.#failing = false;
    } catch (error) {
      if (!this.#failing) this.#parts.onProblem(error);
      this.#failing = true;
    }
  }

  /** Adds what callers took since the last interval. */
  #gather(): void {
    for (const listed of this.#listed.values()) {
      listed.last = 0;
      listed.quietIntervals += 1;
    }
    for (const [letter, buckets] of Object.entries(this.#parts.buckets)) {
      const busy = Math.max(1, buckets.perSecond * (INTERVAL_MS / 1_000) * BUSY_SHARE);
      for (const [name, taken] of buckets.tally()) {
        const id = `${letter}${hash("sha256", name, "hex").slice(0, 16)}`;
        const known = this.#listed.get(id);
        if (known === undefined && taken < busy) continue;
        const listed = known ?? { buckets, name, total: 0, last: 0, quietIntervals: 0 };
        listed.total += taken;
        listed.last = taken;
        if (taken >= busy) listed.quietIntervals = 0;
        this.#listed.set(id, listed);
      }
    }
    for (const [id, { quietIntervals }] of this.#listed) if (quietIntervals > KEPT_INTERVALS) this.#listed.delete(id);
    if (this.#listed.size <= LISTED_MAX) return;
    const byUse = [...this.#listed].sort(([, one], [, other]) => other.last - one.last);
    for (const [id] of byUse.slice(LISTED_MAX)) this.#listed.delete(id);
  }

  /** Returns why the store refused the report; `null`: it did not. */
  async #report(): Promise<SandlotError | null> {
    const { entries } = this.#parts;
    if (this.#listed.size === 0 && this.#seq !== null) {
      await entries.delete(this.#own, this.#seq);
      this.#seq = null;
      return null;
    }
    this.#turn += 1;
    const callers = Object.fromEntries([...this.#listed].map(([id, { total, last }]) => [id, [total, last]]));
    const body = JSON.stringify({ turn: this.#turn, callers });
    const answer = await entries.put(this.#own, body, this.#seq);
    if (answer.kind === "full") return noRoom("entries", answer.max);
    if (answer.kind === "put") this.#seq = answer.seq;
    // A write whose answer was lost, or a peer that took this gateway for gone.
    else this.#seq = (await entries.get(this.#own))?.seq ?? null;
    return null;
  }

  async #charge(): Promise<void> {
    const { entries, world } = this.#parts;
    const present = new Set<string>();
    for (const { name, body, seq } of await entries.list(PREFIX)) {
      if (name === this.#own) continue;
      present.add(name);
      const report = reportSchema.safeParse(tryJson(body));
      if (!report.success) continue;
      const known = this.#peers.get(name);
      this.#chargeReport(known, report.data, world.monotonicMs());
      const sameIntervals = known?.turn === report.data.turn ? known.sameIntervals + 1 : 0;
      this.#peers.set(name, { turn: report.data.turn, report: report.data, readIntervals: 0, sameIntervals });
      if (sameIntervals >= GONE_INTERVALS) await entries.delete(name, seq);
    }
    for (const name of this.#peers.keys()) if (!present.has(name)) this.#peers.delete(name);
  }

  /**
   * What a peer took since it was read. Of a peer that was not read for long, only the last interval counts: what came
   * before has been refilled here.
   */
  #chargeReport(known: Peer | undefined, { turn, callers }: Report, now: number): void {
    if (known?.turn === turn) return;
    const isRecent = known !== undefined && known.readIntervals <= KEPT_INTERVALS;
    for (const [id, { buckets, name }] of this.#listed) {
      const [total, last] = callers[id] ?? [0, 0];
      const [before] = known?.report.callers[id] ?? [0];
      // A caller that was listed anew counts from nought.
      const since = total >= before ? total - before : total;
      const taken = isRecent ? since : last;
      if (taken > 0) buckets.charge(name, taken, now);
    }
  }
}
