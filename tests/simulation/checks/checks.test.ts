/**
 * Every check can fail. Each fault plants one wrong state and names the check that must notice it. An invariant without
 * a fault fails the last test.
 */

import { SandlotError } from "@sandlot/contract";
import { describe, expect, it } from "vitest";
import type { Fleet } from "../../../packages/fleet/src/fleet.ts";
import type { Commit } from "../../../packages/fleet/src/store/rows/row-server.ts";
import { Trace } from "../schedule/trace.ts";
import { Simulation } from "../simulation.ts";
import { SimRows } from "../store/sim-rows.ts";
import { Callers } from "../workload/callers.ts";
import { DEEDS } from "./check-cases.ts";
import { Bench, THREAD, USER } from "./check-harness.ts";
import { FACT_DEEDS } from "./fact-check-cases.ts";
import { INVARIANTS, type Invariant } from "./invariants.ts";
import { REACH_DEEDS } from "./reach-check-cases.ts";

/** Checks of how callers are treated, against a misbehaving fleet. */
const FLEETS: Partial<Record<Invariant, (simulation: Simulation) => Promise<void>>> = {
  "nothing-thrown": async (simulation) => simulation.threw(new Error("planted")),
  "run-ends": async (simulation) => {
    simulation.scheduler.events = Number.MAX_SAFE_INTEGER;
    simulation.checkSpin();
  },
  "remote-renewal-is-true": async (simulation) => {
    const { instance, held, callers } = await staged(simulation, {
      remoteLeases: {
        renew: (leaseId: string) => Promise.reject(new SandlotError("lease_not_found", { leaseId })),
        release: () => Promise.resolve(false),
      },
    });
    const truth = { leaseId: held.lease.id, ttlMs: 60_000, since: 0, heardAt: simulation.scheduler.now };
    simulation.truth.remotes.set(held.lease.id, { ...truth, releaseAsked: false, ended: false, goneAt: null });
    callers.remote.renew(instance, held);
    await simulation.scheduler.run(simulation.scheduler.now + 10);
  },
  "get-shows-only-held": async (simulation) => {
    const { instance, callers } = await staged(simulation, { get: () => undefined, list: () => Promise.resolve([]) });
    callers.look(instance);
  },
  "hot-path-without-io": async (simulation) => {
    const { instance, callers } = await staged(simulation, {
      acquire: () => Promise.reject(new SandlotError("acquire_timeout", { stage: "", timeoutMs: 1 })),
    });
    instance.beatConfirmedSentAt = simulation.scheduler.now;
    instance.sightBrokenAt = Number.NEGATIVE_INFINITY;
    instance.host.steppedAt = -1;
    const wish = {
      thread: { user: USER, thread: THREAD },
      user: USER,
      timeoutMs: null,
      ttlMs: null,
      abortAfterMs: null,
    };
    callers.acquire(instance, wish);
    await simulation.scheduler.run(simulation.scheduler.now + 10);
  },
};

/** A real instance with a real lease; a misbehaving fleet then replaces its fleet. */
async function staged(simulation: Simulation, fleet: Partial<Record<keyof Fleet, unknown>>) {
  const { scheduler, truth } = simulation;
  simulation.faults.healed = true;
  const instance = simulation.start(simulation.hosts[0]!);
  const callers = new Callers(simulation);
  await scheduler.run(2_000);
  const wish = { thread: { user: USER, thread: THREAD }, user: USER, timeoutMs: null, ttlMs: null, abortAfterMs: null };
  callers.acquire(instance, wish);
  await scheduler.run(4_000);
  const [held] = truth.leases;
  expect(held).toBeDefined();
  expect(simulation.findings.violations).toEqual([]);
  instance.fleet = fleet as unknown as Fleet;
  return { instance, callers, held: held! };
}

/** A database that has lost a commit of which `one` had heard, and a later commit that does not name it. */
function rewound({ tables, store, findings, truth, one }: Bench) {
  const trace = new Trace(() => truth.now, false);
  const parts = { tables, audit: store, findings, truth, trace, newEpoch: () => "epoch", mayRewind: true };
  const rows = new SimRows(parts);
  const now = rows.rows.now();
  const commit = (id: string, key: string): Commit => ({
    ...{ id, epoch: rows.rows.epoch, seen: [], seenAt: now, notAfter: now + 1_000, topics: [], isDurable: false },
    ...{ reads: new Map([[key, 0]]), writes: new Map([[key, "1"]]) },
  });
  const step = { by: one, method: "reserve", args: [], sentAt: 0, skewMs: 0, turn: 0 };
  const lost = commit("lost", "generation");
  expect(rows.commit(step, lost, 0).kind).toBe("committed");
  rows.acknowledged(one, lost);
  expect(rows.rewind(10)).toBe(true);
  return { rows, commit: commit("later", "count/all") };
}

describe("every check can fail", () => {
  for (const [invariant, deed] of Object.entries({ ...DEEDS, ...FACT_DEEDS })) {
    it(invariant, () => {
      const bench = new Bench();
      deed(bench);
      expect([...bench.violated]).toContain(invariant);
    });
  }

  for (const [invariant, deed] of Object.entries(REACH_DEEDS)) {
    it(invariant, () => {
      const bench = new Bench({}, 2);
      deed(bench);
      expect([...bench.violated]).toContain(invariant);
    });
  }

  for (const [invariant, misbehave] of Object.entries(FLEETS)) {
    it(invariant, async () => {
      const simulation = new Simulation(7, { keepTrace: false });
      await misbehave(simulation);
      expect(simulation.findings.violations.map((violation) => violation.invariant)).toContain(invariant);
    });
  }

  it("rewind-is-noticed", () => {
    const bench = new Bench({}, 2);
    const { rows, commit } = rewound(bench);
    const { one, truth } = bench;
    rows.commit({ by: one, method: "beat", args: [], sentAt: truth.now, skewMs: 0, turn: 0 }, commit, truth.now + 1);
    expect([...bench.violated]).toContain("rewind-is-noticed");
  });

  it("has an entry for each", () => {
    const tested = new Set([
      ...Object.keys(DEEDS),
      ...Object.keys(FACT_DEEDS),
      ...Object.keys(REACH_DEEDS),
      ...Object.keys(FLEETS),
      "rewind-is-noticed",
    ]);
    expect(Object.keys(INVARIANTS).filter((invariant) => !tested.has(invariant))).toEqual([]);
  });
});
