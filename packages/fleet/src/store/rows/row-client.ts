/**
 * This process's calls to a row server: each with a deadline, a look at the server's clock, and retries.
 *
 * Invariants
 * - A commit whose answer was lost is sent again with the same id, until the step's deadline. So the caller learns
 *   whether it took effect, unless the server stays silent.
 * - Reading is tried a few times only: a server that is down is reported soon.
 * - `seen` names the acknowledged commits of this process for which no later one vouches.
 */

import { type Epoch, isSandlotError, SandlotError } from "@sandlot/contract";
import { sleep } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import type { StepCost } from "../step-observer.ts";
import { CommitFrontier } from "./commit-frontier.ts";
import { epochAfter } from "./epoch-order.ts";
import type { Commit, CommitAnswer, Cursor, Page, ReadAnswer, RowKey, RowServer } from "./row-server.ts";
import { ServerClock } from "./server-clock.ts";
import { type TimeLimit, TimeLimits } from "./time-limits.ts";

const READ_TRIES = 3;
const PAUSE_MIN_MS = 10;
const PAUSE_MAX_MS = 200;
const RETRY_AFTER_MS = 250;

/** The deadline of a step. */
export interface Deadline {
  readonly operation: string;
  readonly limit: TimeLimit;
  /** Why the last try failed: a step that ends by its deadline says so. */
  readonly trouble: { problem: string | null };
  /** Of this step alone. */
  readonly cost: StepCost;
}

/** An answer and when its request was sent, on the monotonic clock. */
export type Sent<T> = T & { readonly sentAt: number };

export class RowClient {
  readonly server: RowServer;
  readonly clock: ServerClock;
  readonly frontier = new CommitFrontier();
  /** Since the store was opened. */
  readonly counts: StepCost = { calls: 0, conflicts: 0, retries: 0 };
  readonly #world: World;
  readonly #attempts: TimeLimits;

  constructor(server: RowServer, world: World, stepMs: number) {
    this.server = server;
    this.#world = world;
    this.clock = new ServerClock(world);
    // A third of the step's time, so that a lost answer leaves time to ask again.
    this.#attempts = new TimeLimits(world, stepMs / 3);
  }

  /** Sends a commit until it is answered. */
  async commit(
    parts: Pick<Commit, "epoch" | "reads" | "writes" | "topics" | "isDurable">,
    deadline: Deadline,
  ): Promise<Sent<{ readonly answer: CommitAnswer; readonly commit: Commit }>> {
    const now = this.clock.now();
    const commit: Commit = {
      ...parts,
      ...this.frontier.seen(now),
      id: this.#world.randomHex(16),
      notAfter: now + Math.max(0, Math.floor(deadline.limit.at - this.#world.monotonicMs())),
    };
    for (let tries = 0; ; tries += 1) {
      try {
        const sentAt = this.#world.monotonicMs();
        const answer = await this.#call(deadline, (signal) => this.server.commit(commit, signal));
        this.clock.heard(answer.now, sentAt);
        if (answer.kind === "conflict") this.#count(deadline, "conflicts");
        return { answer, commit, sentAt };
      } catch (error) {
        await this.#pauseAfter(error, deadline, tries);
      }
    }
  }

  read(keys: readonly RowKey[], deadline: Deadline): Promise<Sent<ReadAnswer>> {
    return this.#retry(deadline, async (signal) => {
      const sentAt = this.#world.monotonicMs();
      const answer = await this.server.read(keys, signal);
      this.clock.heard(answer.now, sentAt);
      return { ...answer, sentAt };
    });
  }

  scan(since: Cursor | null, limit: number, deadline: Deadline): Promise<Sent<Page> | null> {
    return this.#retry(deadline, async (signal) => {
      const sentAt = this.#world.monotonicMs();
      const page = await this.server.scan(since, limit, signal);
      if (page === null) return null;
      this.clock.heard(page.now, sentAt);
      return { ...page, sentAt };
    });
  }

  /** `known` is over. The next epoch comes after `latest`, the last one that this process has seen. */
  beginEpoch(known: Epoch, latest: Epoch | null, deadline: Deadline): Promise<Epoch> {
    const next = epochAfter(latest ?? known, this.clock.now(), this.#world.randomHex(16));
    return this.#retry(deadline, (signal) => this.server.beginEpoch(known, next, signal));
  }

  /** Between two runs of a step that others keep overtaking. */
  backOff(conflicts: number, { limit }: Deadline): Promise<void> {
    return sleep(this.#world, this.#pauseMs(conflicts), limit.signal);
  }

  async #retry<T>(deadline: Deadline, call: (signal: AbortSignal) => Promise<T>): Promise<T> {
    for (let tries = 0; ; tries += 1) {
      try {
        return await this.#call(deadline, call);
      } catch (error) {
        if (tries + 1 >= READ_TRIES) throw error;
        await this.#pauseAfter(error, deadline, tries);
      }
    }
  }

  #call<T>(deadline: Deadline, call: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const { operation, limit } = deadline;
    this.#count(deadline, "calls");
    const late = () => unavailable(operation, `${this.server.kind} did not answer in time`);
    return this.#attempts.within(limit, late, (attempt) => call(attempt.signal));
  }

  /** Waits before the next try. Rejects when there is none: another error, or the end of the step's time. */
  async #pauseAfter(error: unknown, deadline: Deadline, tries: number): Promise<void> {
    const { limit, trouble } = deadline;
    limit.throwIfEnded();
    if (!isSandlotError(error, "store_unavailable")) throw error;
    trouble.problem = error.details.problem;
    this.#count(deadline, "retries");
    await sleep(this.#world, this.#pauseMs(tries), limit.signal);
  }

  #count({ cost }: Deadline, what: keyof StepCost): void {
    this.counts[what] += 1;
    cost[what] += 1;
  }

  #pauseMs(tries: number): number {
    return Math.min(PAUSE_MAX_MS, PAUSE_MIN_MS * 2 ** Math.min(tries, 10)) * (0.5 + this.#world.random() / 2);
  }
}

export function unavailable(operation: string, problem: string): SandlotError {
  return new SandlotError("store_unavailable", { operation, problem, retryAfterMs: RETRY_AFTER_MS });
}
