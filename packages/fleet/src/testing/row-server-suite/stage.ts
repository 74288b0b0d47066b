/** The test stage of a row server: an empty database, two clients, and helpers that fail when an answer is wrong. */

import { type Epoch, isSandlotError } from "@sandlot/contract";
import type { Commit, CommitAnswer, Page, Row, RowKey, RowServer } from "../../store/rows/row-server.ts";
import { systemWorld } from "../../world/system-world.ts";
import { sleep } from "../../world/waiting.ts";
import type { SuiteTools } from "../store-suite/stage.ts";

export interface RowServerHarness {
  readonly server: RowServer;
  /** Another client of the same database, as in another process. The harness closes it. */
  second(): Promise<RowServer>;
  /** Cuts every connection of `server`, and lets it connect again at once. */
  cut(): Promise<void>;
  /** Makes the database unreachable for `server` until the returned function was called. */
  interrupt(): Promise<() => Promise<void>>;
  /**
   * Makes the database look as if `ms` had passed since all that it remembers was written: ids of commits, deletion
   * markers, what cursors need. Then it forgets what is old enough.
   */
  age(ms: number): Promise<void>;
  dispose(): Promise<void>;
}

export interface RowServerCase {
  readonly name: string;
  run(stage: RowStage): Promise<void>;
}

/** Far beyond every answer of a healthy server. It finds hangs. */
const PATIENCE_MS = 30_000;
/** How long a commit of the suite may travel. */
const TRAVEL_MS = 20_000;
/** Small, so that a suite's scan has several pages. */
const PAGE_ROWS = 7;

export class RowStage {
  readonly server: RowServer;
  readonly expect: SuiteTools["expect"];
  readonly harness: RowServerHarness;
  readonly #world = systemWorld();
  epoch: Epoch;

  static async begin(harness: RowServerHarness, expect: SuiteTools["expect"]): Promise<RowStage> {
    const { epoch } = await harness.server.read([], AbortSignal.timeout(PATIENCE_MS));
    return new RowStage(harness, expect, epoch);
  }

  private constructor(harness: RowServerHarness, expect: SuiteTools["expect"], epoch: Epoch) {
    this.harness = harness;
    this.server = harness.server;
    this.expect = expect;
    this.epoch = epoch;
  }

  newId(): string {
    return this.#world.randomHex(16);
  }

  newEpoch(): Epoch {
    return this.#world.randomHex(16) as Epoch;
  }

  patience(ms = PATIENCE_MS): AbortSignal {
    return AbortSignal.timeout(ms);
  }

  async now(server = this.server): Promise<number> {
    return (await server.read([], this.patience())).now;
  }

  /** A commit with every field; `more` replaces some. Written rows that `reads` does not name count as absent. */
  async commitOf(writes: Readonly<Record<RowKey, string | null>>, more: Partial<Commit> = {}): Promise<Commit> {
    const reads = new Map<RowKey, number>(more.reads ?? []);
    for (const key of Object.keys(writes)) if (!reads.has(key)) reads.set(key, 0);
    const now = await this.now();
    return {
      id: this.newId(),
      epoch: this.epoch,
      seen: [],
      seenAt: now,
      notAfter: now + TRAVEL_MS,
      writes: new Map(Object.entries(writes)),
      topics: [],
      isDurable: false,
      ...more,
      reads,
    };
  }

  commit(commit: Commit, server = this.server): Promise<CommitAnswer> {
    return server.commit(commit, this.patience());
  }

  /** Writes rows that must be unchanged since they were read here. Returns the number of the write. */
  async write(writes: Readonly<Record<RowKey, string | null>>, server = this.server): Promise<number> {
    const reads = new Map((await this.rows(Object.keys(writes), server)).map(({ key, seq }) => [key, seq]));
    return this.seqOf(await this.commit(await this.commitOf(writes, { reads }), server));
  }

  seqOf(answer: CommitAnswer): number {
    this.expect(answer.kind).toBe("committed");
    if (answer.kind !== "committed") throw new Error(`the commit was answered with ${answer.kind}`);
    return answer.seq;
  }

  /** The rows of a conflict, by key. */
  conflictOf(answer: CommitAnswer): Readonly<Record<RowKey, Row>> {
    this.expect(answer.kind).toBe("conflict");
    if (answer.kind !== "conflict") throw new Error(`the commit was answered with ${answer.kind}`);
    return Object.fromEntries(answer.rows.map((row) => [row.key, row]));
  }

  async rows(keys: readonly RowKey[], server = this.server): Promise<readonly Row[]> {
    return (await server.read(keys, this.patience())).rows;
  }

  async row(key: RowKey, server = this.server): Promise<Row> {
    const [row] = await this.rows([key], server);
    if (row === undefined) throw new Error(`reading ${key} gave no row`);
    return row;
  }

  async bodies(keys: readonly RowKey[]): Promise<readonly (string | null)[]> {
    return (await this.rows(keys)).map(({ body }) => body);
  }

  newMirror(server = this.server): Mirror {
    return new Mirror(server, () => this.patience());
  }

  sleep(ms: number): Promise<void> {
    return sleep(this.#world, ms);
  }

  /**
   * Makes a call that must not be answered: it ends with `store_unavailable`, or with the reason of its signal. Fails for a
   * call that hangs.
   */
  async failureOf(call: () => Promise<unknown>): Promise<void> {
    const begunAt = this.#world.monotonicMs();
    const error = await call().then(
      (answer) => new Error(`it was answered: ${JSON.stringify(answer)}`),
      (reason: unknown) => reason,
    );
    const isExpected =
      isSandlotError(error, "store_unavailable") ||
      (error instanceof DOMException && (error.name === "TimeoutError" || error.name === "AbortError"));
    this.expect(isExpected ? "refused" : String(error)).toBe("refused");
    this.expect(this.#world.monotonicMs() - begunAt).toBeLessThanOrEqual(PATIENCE_MS);
  }

  /** Waits until `isTrue`, and fails after a while. */
  async until(what: string, isTrue: () => boolean | Promise<boolean>, ms = PATIENCE_MS / 2): Promise<void> {
    const begunAt = this.#world.monotonicMs();
    while (!(await isTrue())) {
      if (this.#world.monotonicMs() - begunAt > ms) this.expect(`not within ${ms} ms`).toBe(what);
      await this.sleep(10);
    }
  }
}

/** A copy of all rows, kept by scans alone. */
export class Mirror {
  readonly rows = new Map<RowKey, string>();
  readonly #server: RowServer;
  readonly #patience: () => AbortSignal;
  #cursor: string | null = null;
  /** Pages so far. */
  pages = 0;

  constructor(server: RowServer, patience: () => AbortSignal) {
    this.#server = server;
    this.#patience = patience;
  }

  /** Scans until there is no further page. */
  async follow(limit = PAGE_ROWS): Promise<void> {
    for (let page = await this.#page(limit); page.more; page = await this.#page(limit));
  }

  async #page(limit: number): Promise<Page> {
    const page = await this.#server.scan(this.#cursor, limit, this.#patience());
    if (page === null) {
      if (this.#cursor === null) throw new Error("a scan from the beginning was answered with null");
      this.#cursor = null;
      this.rows.clear();
      return this.#page(limit);
    }
    if (page.rows.length > limit) throw new Error(`a page has ${page.rows.length} rows, ${limit} were requested`);
    for (const { key, body } of page.rows) {
      if (body === null) this.rows.delete(key);
      else this.rows.set(key, body);
    }
    this.#cursor = page.cursor;
    this.pages += 1;
    return page;
  }
}
