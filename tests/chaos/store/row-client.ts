/**
 * A client that commits to a row server over a harmed link and knows the outcome of every commit.
 *
 *   acknowledged   answered `committed`
 *   refused        answered otherwise, or not by its deadline and `notAfter`: it must not take effect any more
 *
 * Each commit writes one row of its own and raises the row that all clients share, so that a lost update shows.
 *
 * Invariants of the test
 * - One commit at a time, so the last acknowledged id vouches for all before it (`seen`).
 * - A row whose commit had no answer is never written again. So an effect that comes late stays visible.
 * - What was acknowledged in one epoch is forgotten when another begins.
 */

import type { Epoch } from "@sandlot/contract";
import { isSandlotError } from "@sandlot/contract";
import type { Commit, CommitAnswer, RowKey, RowServer } from "../../../packages/fleet/src/store/rows/row-server.ts";
import type { Random } from "../../simulation/schedule/random.ts";
import type { RowFacts } from "./row-facts.ts";

/** The row that all clients write. */
export const SHARED_ROW = "count/all";
/** Rows of a client that are in use at a time. */
const ROWS = 8;
/** How often the shared row is part of a commit. */
const SHARED_SHARE = 0.3;
const DURABLE_SHARE = 0.5;
const AGAIN_MAX_MS = 20;
const REST_MAX_MS = 40;

export interface RowClientParts {
  readonly name: string;
  /** Over the harmed link. */
  readonly rows: RowServer;
  readonly facts: RowFacts;
  readonly random: Random;
  /** How long a step may take. */
  readonly timeoutMs: number;
  readonly newId: () => string;
}

interface Known {
  readonly seq: number;
  readonly body: string | null;
}

export class RowClient {
  readonly #parts: RowClientParts;
  #epoch: Epoch;
  /** The server's clock minus ours, from its last answer. */
  #offsetMs: number;
  #seen: { readonly id: string; readonly at: number } | null = null;
  readonly #known = new Map<RowKey, Known>();
  #slots: RowKey[] = [];
  #slotCount = 0;
  #isEnding = false;
  /** Commits that the server has answered in an epoch that it stands by. */
  answeredCount = 0;

  private constructor(parts: RowClientParts, epoch: Epoch, now: number) {
    this.#parts = parts;
    this.#epoch = epoch;
    this.#offsetMs = now - performance.now();
    while (this.#slots.length < ROWS) this.#slots.push(this.#newSlot());
  }

  static async open(parts: RowClientParts): Promise<RowClient> {
    const { epoch, now } = await parts.rows.read([], AbortSignal.timeout(parts.timeoutMs));
    return new RowClient(parts, epoch, now);
  }

  /** Works until `finish`. Never rejects: what goes wrong is a fact. */
  async run(): Promise<void> {
    while (!this.#isEnding) {
      await this.#step();
      await sleep(this.#parts.random.between(0, REST_MAX_MS));
    }
  }

  finish(): void {
    this.#isEnding = true;
  }

  async #step(): Promise<void> {
    const { facts, random, timeoutMs, newId, name } = this.#parts;
    const startedAt = performance.now();
    const signal = AbortSignal.timeout(timeoutMs);
    const own = random.pick(this.#slots);
    const isShared = random.chance(SHARED_SHARE);
    const isDurable = random.chance(DURABLE_SHARE);
    const notAfter = startedAt + this.#offsetMs + timeoutMs;
    const epoch = this.#epoch;
    let outcome: "acknowledged" | "refused" | "unknown" = "refused";
    let id = newId();
    let count = 0;
    try {
      for (;;) {
        count = isShared ? countIn(this.#known.get(SHARED_ROW)) + 1 : 0;
        const commit = this.#commit({ id, own, count, notAfter, isDurable });
        outcome = "unknown";
        facts.began(id);
        const answer = await this.#answer(commit, signal);
        outcome = answer.kind === "committed" ? "acknowledged" : "refused";
        if (answer.kind !== "rewound") this.answeredCount += 1;
        this.#offsetMs = answer.now - performance.now();
        if (answer.kind === "committed") this.#learn(commit, answer.seq);
        if (answer.kind !== "conflict") await this.#follow(answer, signal);
        if (answer.kind !== "conflict" || signal.aborted) break;
        for (const row of answer.rows) this.#known.set(row.key, row);
        facts.refused({ epoch, id, row: own, notAfter, isCertain: true });
        // A step that runs again is another commit.
        id = newId();
      }
    } catch (error) {
      facts.failed(error);
    }
    facts.step(name, startedAt, timeoutMs);
    if (outcome === "acknowledged") {
      this.#seen = { id, at: performance.now() + this.#offsetMs };
      facts.acknowledged({ epoch, id, row: own, count: isShared ? count : null });
    } else {
      facts.refused({ epoch, id, row: own, notAfter, isCertain: outcome === "refused" });
      if (outcome === "unknown") this.#retire(own);
    }
  }

  #commit(of: { id: string; own: RowKey; count: number; notAfter: number; isDurable: boolean }): Commit {
    const { id, own, count, notAfter, isDurable } = of;
    const writes = new Map<RowKey, string | null>([[own, JSON.stringify({ id })]]);
    if (count > 0) writes.set(SHARED_ROW, JSON.stringify({ id, count }));
    return {
      ...{ id, notAfter, writes, isDurable, epoch: this.#epoch },
      seen: this.#seen === null ? [] : [this.#seen.id],
      seenAt: this.#seen?.at ?? 0,
      reads: new Map([...writes.keys()].map((key) => [key, this.#known.get(key)?.seq ?? 0])),
      topics: [],
    };
  }

  /** The answer, after as many tries with the same id as there is time for. */
  async #answer(commit: Commit, signal: AbortSignal): Promise<CommitAnswer> {
    const { rows, facts, random } = this.#parts;
    for (;;) {
      try {
        return await rows.commit(commit, signal);
      } catch (error) {
        if (!isSandlotError(error) || error.code !== "store_unavailable" || signal.aborted) throw error;
        facts.retried();
        await sleep(random.between(1, AGAIN_MAX_MS));
        signal.throwIfAborted();
      }
    }
  }

  #learn({ writes }: Commit, seq: number): void {
    for (const [key, body] of writes) this.#known.set(key, { seq, body });
  }

  /** After a loss the first client that notices begins an epoch; the others find it. */
  async #follow(answer: Exclude<CommitAnswer, { kind: "conflict" }>, signal: AbortSignal): Promise<void> {
    const { rows, newId, facts } = this.#parts;
    if (answer.kind === "rewound") {
      facts.rewound();
      this.#enter(await rows.beginEpoch(this.#epoch, newId() as Epoch, signal));
    } else if (answer.kind === "new-epoch") this.#enter(answer.epoch);
  }

  #enter(epoch: Epoch): void {
    if (epoch === this.#epoch) return;
    this.#epoch = epoch;
    this.#seen = null;
    this.#known.clear();
  }

  #retire(slot: RowKey): void {
    this.#known.delete(slot);
    // Its outcome, if it took effect, is in a row that this client does not know now.
    this.#known.delete(SHARED_ROW);
    this.#slots = [...this.#slots.filter((one) => one !== slot), this.#newSlot()];
  }

  #newSlot(): RowKey {
    this.#slotCount += 1;
    return `record/${this.#parts.name}-${this.#slotCount}`;
  }
}

function countIn(known: Known | undefined): number {
  if (known === undefined || known.body === null) return 0;
  return (JSON.parse(known.body) as { count: number }).count;
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
