/**
 * Faults of the database server: it is killed and started again on the same data, or stopped for a while, sometimes for
 * longer than a session lives.
 *
 * Invariant: one fault at a time. A second one waits for the next cycle.
 */

import { setTimeout as sleep } from "node:timers/promises";
import type { Random } from "../../simulation/schedule/random.ts";
import type { StoreServer } from "../database/database.ts";
import type { Tally } from "./tally.ts";

const KILL_SHARE = 0.5;
const LONG_SHARE = 0.3;
const DOWN_MAX_MS = 800;

export class ServerFaults {
  readonly #server: StoreServer;
  readonly #onChanged: () => void;
  readonly #tally: Tally;
  readonly #random: Random;
  readonly #sessionLifetimeMs: number;
  #underWay: Promise<void> | null = null;
  readonly #hurry = new AbortController();

  constructor(parts: {
    server: StoreServer;
    tally: Tally;
    random: Random;
    sessionLifetimeMs: number;
    /** The server has other processes now. */
    onChanged: () => void;
  }) {
    this.#server = parts.server;
    this.#onChanged = parts.onChanged;
    this.#tally = parts.tally;
    this.#random = parts.random;
    this.#sessionLifetimeMs = parts.sessionLifetimeMs;
  }

  /** Returns as soon as the server is harmed. False: the last fault is not over. */
  async strike(): Promise<boolean> {
    if (this.#underWay !== null) {
      await sleep(10);
      return false;
    }
    const work = this.#random.chance(KILL_SHARE) ? this.#kill() : this.#stop();
    this.#underWay = work
      .catch((error: unknown) => this.#tally.violated(`the server did not come back: ${error}`))
      .finally(() => {
        this.#underWay = null;
      });
    return true;
  }

  /** Resolves when the server answers again. */
  async heal(): Promise<void> {
    this.#hurry.abort();
    await this.#underWay;
  }

  async #kill(): Promise<void> {
    this.#tally.serverFaults.killed += 1;
    await this.#server.kill();
    this.#onChanged();
    await this.#pause(this.#random.between(0, DOWN_MAX_MS));
    await this.#server.restart();
    this.#onChanged();
  }

  async #stop(): Promise<void> {
    const isLong = this.#random.chance(LONG_SHARE);
    this.#tally.serverFaults[isLong ? "stopped long" : "stopped"] += 1;
    this.#server.stop();
    await this.#pause(
      isLong ? this.#sessionLifetimeMs + this.#random.between(100, 1_200) : this.#random.between(20, 700),
    );
    this.#server.resume();
  }

  async #pause(ms: number): Promise<void> {
    await sleep(ms, undefined, { signal: this.#hurry.signal }).catch(() => {});
  }
}
