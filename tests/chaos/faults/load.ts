/**
 * Callers at work during an engine fault: each acquires its thread, runs a command, releases, and sometimes ends the
 * sandbox so that there is always one being created. Every call must settle.
 */

import { setTimeout as sleep } from "node:timers/promises";
import type { Environment } from "../stage/environment.ts";

const EXEC_MS = 30_000;
const REST_MS = 20;
const PATIENCE_MS = 90_000;
const TURNS_PER_SANDBOX = 4;

export class Load {
  readonly #environment: Environment;
  readonly #threads: readonly string[];
  readonly #workers: readonly Promise<void>[];
  /** When each thread's last successful turn began. */
  readonly #served = new Map<string, number>();
  #isOver = false;

  constructor(environment: Environment, count: number) {
    this.#environment = environment;
    this.#threads = Array.from({ length: count }, (_, index) => `load-${index}`);
    this.#workers = this.#threads.map((thread) => this.#work(thread));
  }

  /** Resolves when every caller was served by a turn that began after `since`, with the time that took. */
  async served(since: number): Promise<number> {
    const deadline = performance.now() + PATIENCE_MS;
    const isServed = (thread: string) => (this.#served.get(thread) ?? -1) >= since;
    while (!this.#threads.every(isServed)) {
      if (performance.now() > deadline) {
        const missing = this.#threads.filter((thread) => !isServed(thread));
        throw new Error(`not served within ${PATIENCE_MS} ms: ${missing.join(", ")}`);
      }
      await sleep(10);
    }
    return performance.now() - since;
  }

  async end(): Promise<void> {
    this.#isOver = true;
    await Promise.all(this.#workers);
    for (const thread of this.#threads) await this.#environment.end(thread);
  }

  async #work(thread: string): Promise<void> {
    for (let turn = 1; !this.#isOver; turn += 1) {
      await this.#turn(thread, turn);
      await sleep(REST_MS);
    }
  }

  async #turn(thread: string, turn: number): Promise<void> {
    const startedAt = performance.now();
    const lease = await this.#environment.acquire({ thread });
    if (lease === null) return;
    const running = lease.sandbox.exec(`echo ${thread} ${turn}`);
    const answer = await this.#environment.settles(`a command in ${thread}`, running, EXEC_MS);
    if (answer?.stdout === `${thread} ${turn}\n`) this.#served.set(thread, startedAt);
    else if (answer?.status === "completed")
      this.#environment.tally.violated(`${thread} answered ${JSON.stringify(answer.stdout)}`);
    await this.#environment.settles(`a use of ${thread}`, this.#environment.atUse(thread, lease), EXEC_MS);
    await lease.release();
    if (turn % TURNS_PER_SANDBOX === 0)
      await this.#environment.settles(`destroy of ${thread}`, this.#environment.fleet.destroy({ thread }), EXEC_MS);
  }
}
