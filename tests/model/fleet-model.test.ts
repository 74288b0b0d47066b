/**
 * One fleet against a much smaller model: a thread has a sandbox or not, it is alive or not, and a number of leases is
 * out. fast-check draws the commands, and the order in which the store and the engine respond.
 */

import { isSandlotError } from "@sandlot/contract";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Fleet, Lease } from "../../packages/fleet/src/fleet.ts";
import { drained, openModelFleet } from "./model-fleet.ts";
import type { TinyEngine } from "./tiny-engine.ts";

interface ThreadModel {
  /** Leases that are out. */
  leases: number;
  /** Whether there is a sandbox: leased, or parked. */
  exists: boolean;
  /** It crashed or was destroyed under its leases. */
  lost: "crashed" | "destroyed" | null;
}

type Model = { readonly threads: Record<string, ThreadModel>; readonly autoRestart: boolean };
type Real = { readonly fleet: Fleet; readonly engine: TinyEngine; readonly leases: Record<string, Lease[]> };
type Command = fc.AsyncCommand<Model, Real, true>;

const THREADS = ["t1", "t2"] as const;

/** Open leases of a destroyed or crashed sandbox do not count for the next one. */
function freshLeases({ leases, lost }: ThreadModel): number {
  return lost === null ? leases : 0;
}

class Acquire implements Command {
  readonly thread: string;
  readonly times: number;
  constructor(thread: string, times: number) {
    this.thread = thread;
    this.times = times;
  }
  async check(): Promise<boolean> {
    return true;
  }
  async run(model: Model, { fleet, engine, leases }: Real): Promise<void> {
    const thread = model.threads[this.thread]!;
    // A thread with lost leases is a separate case: its next sandbox exists beside them.
    const before = engine.created;
    const got = await Promise.all(Array.from({ length: this.times }, () => fleet.acquire({ thread: this.thread })));
    expect(new Set(got.map(({ generation }) => generation)).size).toBe(1);
    const alive = thread.exists && thread.lost === null;
    expect(engine.created - before).toBe(alive ? 0 : 1);
    if (thread.lost !== null) await releaseAll(leases, this.thread);
    leases[this.thread]!.push(...got);
    model.threads[this.thread] = { leases: freshLeases(thread) + this.times, exists: true, lost: null };
  }
  toString = () => `acquire(${this.thread} ×${this.times})`;
}

class Release implements Command {
  readonly thread: string;
  readonly twice: boolean;
  constructor(thread: string, twice: boolean) {
    this.thread = thread;
    this.twice = twice;
  }
  async check(model: Readonly<Model>): Promise<boolean> {
    return model.threads[this.thread]!.leases > 0;
  }
  async run(model: Model, { leases }: Real): Promise<void> {
    const lease = leases[this.thread]!.shift()!;
    await lease.release();
    if (this.twice) await lease.release();
    await expect(lease.sandbox.files.append("/journal", "x")).rejects.toThrow(/released/);
    model.threads[this.thread]!.leases -= 1;
    const thread = model.threads[this.thread]!;
    if (thread.leases === 0 && thread.lost !== null) thread.lost = null;
  }
  toString = () => `release(${this.thread}${this.twice ? " twice" : ""})`;
}

class Use implements Command {
  readonly thread: string;
  constructor(thread: string) {
    this.thread = thread;
  }
  async check(model: Readonly<Model>): Promise<boolean> {
    return model.threads[this.thread]!.leases > 0;
  }
  async run(model: Model, { leases }: Real): Promise<void> {
    const thread = model.threads[this.thread]!;
    const lease = leases[this.thread]![0]!;
    const before = lease.generation;
    const use = lease.sandbox.files.append("/journal", "x");
    if (thread.lost === null) {
      await use;
      expect(lease.generation).toBe(before);
    } else if (thread.lost === "destroyed" || !model.autoRestart) await expectCode(use, "sandbox_lost");
    else {
      // The first use after a crash makes the next generation; all leases of the lost one share it when used.
      await use;
      for (const other of leases[this.thread]!) await other.sandbox.files.append("/journal", "x");
      expect(lease.generation).toBeGreaterThan(before);
      Object.assign(thread, { lost: null, exists: true });
    }
  }
  toString = () => `use(${this.thread})`;
}

class Kill implements Command {
  readonly thread: string;
  constructor(thread: string) {
    this.thread = thread;
  }
  async check(model: Readonly<Model>): Promise<boolean> {
    return model.threads[this.thread]!.exists;
  }
  async run(model: Model, { engine, fleet }: Real): Promise<void> {
    engine.kill(this.thread);
    const thread = model.threads[this.thread]!;
    Object.assign(thread, { exists: false, lost: thread.leases > 0 ? (thread.lost ?? "crashed") : null });
    await comesToRest(fleet, this.thread, thread);
  }
  toString = () => `kill(${this.thread})`;
}

class Destroy implements Command {
  readonly thread: string;
  readonly force: boolean;
  constructor(thread: string, force: boolean) {
    this.thread = thread;
    this.force = force;
  }
  async check(): Promise<boolean> {
    return true;
  }
  async run(model: Model, { fleet }: Real): Promise<void> {
    const thread = model.threads[this.thread]!;
    const answer = fleet.destroy({ thread: this.thread }, { force: this.force, timeoutMs: 60_000 });
    const held = thread.exists && freshLeases(thread) > 0;
    if (held && !this.force) return expectCode(answer, "sandbox_in_use");
    expect(await answer).toBe(thread.exists ? "stopped" : "absent");
    const lost = thread.leases > 0 ? (thread.lost ?? "destroyed") : null;
    Object.assign(thread, { exists: false, lost });
  }
  toString = () => `destroy(${this.thread}${this.force ? ", force" : ""})`;
}

class Warm implements Command {
  readonly thread: string;
  constructor(thread: string) {
    this.thread = thread;
  }
  async check(model: Readonly<Model>): Promise<boolean> {
    return model.threads[this.thread]!.lost === null;
  }
  async run(model: Model, { fleet }: Real): Promise<void> {
    await fleet.warm({ thread: this.thread });
    model.threads[this.thread]!.exists = true;
    await comesToRest(fleet, this.thread, model.threads[this.thread]!);
  }
  toString = () => `warm(${this.thread})`;
}

/** A caller that gives up leaves neither a lease nor, where nothing was there, a sandbox. */
class Abort implements Command {
  readonly thread: string;
  constructor(thread: string) {
    this.thread = thread;
  }
  async check(model: Readonly<Model>): Promise<boolean> {
    return model.threads[this.thread]!.leases === 0;
  }
  async run(model: Model, { fleet, leases }: Real): Promise<void> {
    const controller = new AbortController();
    const acquiring = fleet.acquire({ thread: this.thread, signal: controller.signal });
    controller.abort(new Error("gave up"));
    await expect(acquiring).rejects.toThrow("gave up");
    expect(leases[this.thread]).toHaveLength(0);
    await comesToRest(fleet, this.thread, model.threads[this.thread]!);
  }
  toString = () => `abort(${this.thread})`;
}

class Look implements Command {
  async check(): Promise<boolean> {
    return true;
  }
  async run(model: Model, { fleet }: Real): Promise<void> {
    for (const [name, thread] of Object.entries(model.threads)) await comesToRest(fleet, name, thread);
  }
  toString = () => "list";
}

/** A release takes effect soon, not at once: waits until the thread matches the model. */
async function comesToRest(fleet: Fleet, name: string, thread: ThreadModel): Promise<void> {
  const expected = thread.exists ? [freshLeases(thread) > 0 ? "leased" : "parked"] : [];
  let states: string[] = [];
  for (let looks = 0; looks < 300; looks += 1) {
    states = (await fleet.list()).filter((entry) => entry.thread === name).map(({ state }) => state);
    if (states.join() === expected.join()) return;
  }
  expect(states, name).toEqual(expected);
}

async function releaseAll(leases: Real["leases"], thread: string): Promise<void> {
  await Promise.all(leases[thread]!.splice(0).map((lease) => lease.release()));
}

async function expectCode(promise: Promise<unknown>, code: "sandbox_in_use" | "sandbox_lost"): Promise<void> {
  const error = await promise.then(
    () => null,
    (reason: unknown) => reason,
  );
  expect(isSandlotError(error, code), `expected ${code}, got ${String(error)}`).toBe(true);
}

const thread = fc.constantFrom(...THREADS);
const commands = fc.commands<Model, Real, true>(
  [
    fc.tuple(thread, fc.integer({ min: 1, max: 3 })).map(([name, times]) => new Acquire(name, times)),
    fc.tuple(thread, fc.boolean()).map(([name, twice]) => new Release(name, twice)),
    thread.map((name) => new Use(name)),
    thread.map((name) => new Kill(name)),
    fc.tuple(thread, fc.boolean()).map(([name, force]) => new Destroy(name, force)),
    thread.map((name) => new Warm(name)),
    thread.map((name) => new Abort(name)),
    fc.constant(new Look()),
  ] as fc.Arbitrary<Command>[],
  { maxCommands: 25 },
);

describe("a fleet behaves as a very small model of it", () => {
  for (const autoRestart of [true, false]) {
    it(`with autoRestart ${autoRestart ? "on" : "off"}`, { timeout: 60_000 }, async () => {
      await fc.assert(
        fc.asyncProperty(fc.scheduler(), commands, async (scheduler, drawn) => {
          const { fleet, engine, close } = await openModelFleet(scheduler, autoRestart);
          const threads = Object.fromEntries(THREADS.map((name) => [name, { leases: 0, exists: false, lost: null }]));
          const leases = Object.fromEntries(THREADS.map((name) => [name, [] as Lease[]]));
          try {
            const setup = () => ({ model: { threads, autoRestart }, real: { fleet, engine, leases } });
            await drained(scheduler, fc.asyncModelRun(setup, drawn));
          } finally {
            await close();
          }
        }),
        { numRuns: 500, interruptAfterTimeLimit: 8_000, markInterruptAsFailure: false },
      );
    });
  }
});
