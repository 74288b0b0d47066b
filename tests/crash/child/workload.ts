/**
 * A child's random work with its fleet: sessions in a thread's sandbox, leases with a time to live, warm calls, aborted
 * callers, destroys, and crashes.
 *
 * Every call is reported when it starts and when it settles, and every write once it was acknowledged.
 */

import { setTimeout as sleep } from "node:timers/promises";
import type { AcquireRequest, DestroyOptions, Fleet, Lease } from "../../../packages/fleet/src/fleet.ts";
import type { Random } from "../../simulation/schedule/random.ts";
import type { CrashBackend } from "../backend-client/crash-backend.ts";
import { JOURNAL, lineOf } from "../backend-client/journal-sandbox.ts";
import { ownerOf, THREADS, type ThreadOf } from "../settings.ts";
import type { Report } from "./report.ts";

const ACQUIRE_MS = 2_500;
const DESTROY_MS = 1_500;
/** A use has no deadline of its own: it may restart the sandbox, which takes an acquire. */
const USE_MS = 4_000;

export class Workload {
  readonly #fleet: Fleet;
  readonly #backend: CrashBackend;
  readonly #random: Random;
  readonly #report: Report;
  readonly #name: string;
  /** The last write of this child in each thread that is never deleted: later reads must find it. */
  readonly #last = new Map<string, string>();
  #tokens = 0;
  #finishing = false;
  readonly #nudges = new Set<Promise<void>>();
  #workers: readonly Promise<void>[] = [];

  constructor(parts: { fleet: Fleet; backend: CrashBackend; random: Random; report: Report; name: string }) {
    this.#fleet = parts.fleet;
    this.#backend = parts.backend;
    this.#random = parts.random;
    this.#report = parts.report;
    this.#name = parts.name;
  }

  start(workers: number): void {
    this.#workers = Array.from({ length: workers }, () => this.#work());
  }

  /** Resolves when every call has settled and every lease was released. */
  async finish(): Promise<void> {
    this.#finishing = true;
    await Promise.all([...this.#workers, ...this.#nudges]);
  }

  /** A private sandbox, from nothing to its end: this child soon passes through creating, binding and stopping. */
  async nudge(): Promise<void> {
    if (this.#finishing) return;
    const nudge = this.#session({ user: this.#random.pick(THREADS).user, thread: "", purgeable: true }, {});
    this.#nudges.add(nudge);
    await nudge.finally(() => this.#nudges.delete(nudge));
  }

  /** After healing: every thread can be acquired, and has what was written in it. */
  async verify(): Promise<void> {
    for (const thread of THREADS) {
      const owner = ownerOf(thread);
      const lease = await this.#report.call("verify", owner, 5_000, () =>
        this.#fleet.acquire({ ...idOf(thread), timeoutMs: 5_000 }),
      );
      if (lease === null) this.#report.violation(`after healing, ${owner} cannot be acquired`);
      else await this.#write(lease, owner);
      await lease?.release();
    }
  }

  async #work(): Promise<void> {
    const random = this.#random;
    while (!this.#finishing) {
      const thread = random.pick(THREADS);
      const dice = random.between(1, 100);
      if (dice <= 50) await this.#session(thread, {});
      else if (dice <= 58) await this.#session(thread, { ttlMs: random.between(700, 1_500) });
      else if (dice <= 63) await this.#session({ user: thread.user, thread: "", purgeable: true }, {});
      else if (dice <= 71) await this.#warm(thread);
      else if (dice <= 79) await this.#giveUp(thread);
      else if (dice <= 88) await this.#destroy(thread, {});
      else if (dice <= 91) await this.#destroy(thread, { force: true });
      else if (dice <= 94)
        await this.#destroy(random.pick(THREADS.filter(({ purgeable }) => purgeable)), {
          purge: true,
          force: random.chance(0.5),
        });
      else if (dice <= 97) await this.#backend.engine.ask("crash", [ownerOf(thread)]);
      await sleep(random.between(0, 40));
    }
  }

  /** A conversation's turn: acquire, write and read a few times, release. */
  async #session(thread: ThreadOf, more: Pick<AcquireRequest, "ttlMs">): Promise<void> {
    const random = this.#random;
    const request = { ...idOf(thread), ...more, purpose: "turn", timeoutMs: ACQUIRE_MS };
    const lease = await this.#report.call("acquire", ownerOf(thread), ACQUIRE_MS, () => this.#fleet.acquire(request));
    if (lease === null) return;
    // The fleet chooses the name of a thread that the caller did not name.
    const owner = thread.thread === "" ? `${thread.user}/~` : ownerOf(thread);
    const sandboxId = lease.sandbox.id;
    this.#report.note({ note: "leased", owner, sandboxId });
    for (let turns = random.between(1, 3); turns > 0; turns -= 1) {
      await this.#write(lease, owner);
      await sleep(random.between(0, 30));
    }
    if (random.chance(0.1)) await sleep(random.between(300, 900));
    if (more.ttlMs !== undefined && random.chance(0.3)) return this.#abandon(lease);
    await this.#report.call("release", owner, USE_MS, () => lease.release());
    // A thread that cannot be requested again is not kept.
    if (thread.thread !== "") this.#report.note({ note: "released", owner, sandboxId });
  }

  async #write(lease: Lease, owner: string): Promise<void> {
    this.#tokens += 1;
    const token = `${this.#name}-${this.#tokens}`;
    const { sandbox } = lease;
    const wrote = await this.#report.call("write", owner, USE_MS, async () => {
      await sandbox.files.append(JOURNAL, lineOf({ owner, token }));
      return true;
    });
    if (wrote !== true) return;
    this.#report.note({ note: "ack", owner, token, generation: lease.generation });
    const isKept = THREADS.some((thread) => !thread.purgeable && ownerOf(thread) === owner);
    if (isKept) this.#last.set(owner, token);
    const expected = this.#last.get(owner) ?? token;
    const found = await this.#report.call("read", owner, USE_MS, async () => {
      const { matches } = await lease.sandbox.files.grep(JOURNAL, lineOf({ owner, token: expected }), {
        literal: true,
      });
      return matches.length > 0;
    });
    if (found === false && isKept) this.#report.violation(`${owner} has lost ${expected}, which was acknowledged`);
  }

  /** The remote caller has vanished: the lease expires. */
  async #abandon(lease: Lease): Promise<void> {
    if (this.#random.chance(0.5))
      await this.#report.call("renew", lease.id, USE_MS, () => this.#fleet.remoteLeases.renew(lease.id));
  }

  async #warm(thread: ThreadOf): Promise<void> {
    await this.#report.call("warm", ownerOf(thread), ACQUIRE_MS, () =>
      this.#fleet.warm({ ...idOf(thread), timeoutMs: ACQUIRE_MS }),
    );
  }

  async #giveUp(thread: ThreadOf): Promise<void> {
    const controller = new AbortController();
    const afterMs = this.#random.between(0, 40);
    const timer = setTimeout(() => controller.abort("aborted"), afterMs);
    const request = { ...idOf(thread), timeoutMs: ACQUIRE_MS, signal: controller.signal };
    const lease = await this.#report.call("abort", ownerOf(thread), afterMs + 500, () => this.#fleet.acquire(request));
    clearTimeout(timer);
    if (lease !== null) await this.#report.call("release", ownerOf(thread), USE_MS, () => lease.release());
  }

  async #destroy(thread: ThreadOf, options: DestroyOptions): Promise<void> {
    const owner = ownerOf(thread);
    const { engine } = this.#backend;
    const tickets: number[] = [];
    if (options.force === true) tickets.push(await engine.ask("announce", ["force", owner]));
    if (options.purge === true) tickets.push(await engine.ask("announce", ["purge", owner]));
    await this.#report.call("destroy", owner, DESTROY_MS, () =>
      this.#fleet.destroy(idOf(thread), { ...options, timeoutMs: DESTROY_MS }),
    );
    for (const ticket of tickets) await engine.ask("settled", [ticket]);
  }
}

function idOf({ user, thread }: ThreadOf): { user: string; thread: string } {
  // Without a thread it is a temporary sandbox.
  return thread === "" ? ({ user } as { user: string; thread: string }) : { user, thread };
}
