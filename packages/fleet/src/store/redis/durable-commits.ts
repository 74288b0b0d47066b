/**
 * Commits that wait for replicas, in batches: `WAIT` blocks its connection until the replicas have everything before it,
 * so one `WAIT` serves all commits that were sent before.
 *
 *   batch 1   commit commit commit WAIT ────────▶ answers of batch 1
 *   batch 2                        (gathering)    commit commit WAIT ──▶ …
 *
 * Invariants
 * - An answer `committed` is given only after a `WAIT` behind its commit, on its connection, counted enough replicas.
 * - A commit whose caller stops waiting before it was sent is never sent.
 */

import { abortable } from "../../world/waiting.ts";
import type { Connection } from "./connection.ts";
import { unavailable } from "./trouble.ts";

interface Waiting {
  readonly args: readonly string[];
  readonly signal: AbortSignal;
  readonly resolve: (answer: unknown) => void;
  readonly reject: (error: unknown) => void;
}

export class DurableCommits {
  readonly connection: Connection;
  readonly #replicasMin: number;
  readonly #waitMs: number;
  #gathering: Waiting[] = [];
  #isWaiting = false;

  /** A quarter of the timeout is for the replicas: a try of the store takes a third, and must hear what came of it. */
  constructor(connection: Connection, replicasMin: number, timeoutMs: number) {
    this.connection = connection;
    this.#replicasMin = replicasMin;
    this.#waitMs = Math.max(1, Math.floor(timeoutMs / 4));
  }

  /** As `Connection.send`, and rejects with `store_unavailable` if too few replicas confirm a commit in time. */
  send(args: readonly string[], signal: AbortSignal): Promise<unknown> {
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    this.#gathering.push({ args, signal, resolve, reject });
    if (!this.#isWaiting) void this.#sendBatches();
    return abortable(promise, signal);
  }

  async #sendBatches(): Promise<void> {
    this.#isWaiting = true;
    while (this.#gathering.length > 0) {
      const batch = this.#gathering.filter(({ signal }) => !signal.aborted);
      this.#gathering = [];
      if (batch.length > 0) await this.#sendBatch(batch);
    }
    this.#isWaiting = false;
  }

  /** Never rejects: each member gets its own answer or error. */
  async #sendBatch(batch: readonly Waiting[]): Promise<void> {
    const { connection } = this;
    const answers = batch.map(({ args, signal }) => connection.send(args, signal));
    const wait = ["WAIT", String(this.#replicasMin), String(this.#waitMs)];
    // The connection gives up a server that does not answer, so this ends.
    const waited = connection.send(wait, new AbortController().signal);
    const [replicas, ...results] = await Promise.allSettled([waited, ...answers]);
    for (const [index, { resolve, reject }] of batch.entries()) {
      const result = results[index];
      if (result === undefined || result.status === "rejected") reject(result?.reason);
      else if (!isCommitted(result.value)) resolve(result.value);
      else if (replicas.status === "rejected") reject(replicas.reason);
      else if (Number(replicas.value) >= this.#replicasMin) resolve(result.value);
      else reject(this.#unconfirmed(Number(replicas.value)));
    }
  }

  #unconfirmed(count: number): Error {
    const confirmed = `${count} of ${this.#replicasMin} replicas confirmed it in ${this.#waitMs} ms`;
    return unavailable("commit", `the master has the commit, but ${confirmed}, so a failover could lose it`);
  }
}

function isCommitted(answer: unknown): boolean {
  return Array.isArray(answer) && answer[0] === "committed";
}
