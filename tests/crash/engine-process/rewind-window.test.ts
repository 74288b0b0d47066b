/** The exception of a store that may rewind is as narrow as its promise. */

import { expect, test } from "vitest";
import { RewindWindow, type Suspect } from "./rewind-window.ts";

const LIFETIME_MS = 4_000;

function stage() {
  const violations: string[] = [];
  const excused: string[] = [];
  const state = { now: 0, epoch: "one" };
  const window = new RewindWindow({
    now: () => state.now,
    epoch: async () => state.epoch,
    recorded: async () => ["known"],
    sessionLifetimeMs: LIFETIME_MS,
    violated: (what) => violations.push(what),
    excused: (kind) => excused.push(kind),
  });
  const suspect = (what: string, more: Partial<Suspect> = {}) =>
    window.suspect({ kind: "two sandboxes", what, at: state.now, begunAt: state.now, ...more });
  return { window, violations, excused, state, suspect };
}

test("without a failover nothing is excepted", () => {
  const { suspect, violations } = stage();
  suspect("double");
  expect(violations).toEqual(["double"]);
});

test("a failover that began no epoch has lost nothing, so nothing is excepted", async () => {
  const { window, suspect, violations, excused } = stage();
  await window.open();
  suspect("double");
  expect(violations).toEqual([]);
  await window.close();
  expect({ violations, excused }).toEqual({ violations: ["double"], excused: [] });
});

test("two sandboxes are excepted before the new epoch, and later if both began before it", async () => {
  const { window, suspect, violations, excused, state } = stage();
  await window.open();
  state.now = 100;
  suspect("early");
  Object.assign(state, { now: 200, epoch: "two" });
  await looked();
  state.now = 300;
  suspect("begun early", { begunAt: 100 });
  suspect("begun late", { begunAt: 300 });
  await window.close();
  expect(violations).toEqual(["begun late"]);
  expect(excused).toEqual(["two sandboxes, in the window", "two sandboxes, begun in the window"]);
});

test("acts without a record are excepted until an instance must have asked the store", async () => {
  const { window, suspect, violations, excused, state } = stage();
  await window.open();
  Object.assign(state, { now: 200, epoch: "two" });
  await looked();
  state.now = 200 + LIFETIME_MS / 2;
  suspect("made", { kind: "made without a record", begunAt: null });
  state.now += 1;
  suspect("made late", { kind: "made without a record", begunAt: null });
  await window.close();
  expect(violations).toEqual(["made late"]);
  expect(excused).toEqual(["made without a record, before a beat"]);
});

test("after the failover nothing is excepted", async () => {
  const { window, suspect, violations, state } = stage();
  await window.open();
  state.epoch = "two";
  await window.close();
  suspect("double");
  expect(violations).toEqual(["double"]);
});

test("a failover that began an epoch is remembered with the records before it, one that began none is not", async () => {
  const { window, state } = stage();
  await window.open();
  await window.close();
  expect(window.losses).toEqual([]);
  state.now = 50;
  await window.open();
  Object.assign(state, { now: 200, epoch: "two" });
  await window.close();
  expect(window.losses).toEqual([{ openedAt: 50, recorded: new Set(["known"]), newEpochAt: 200 }]);
});

/** Longer than the pause between two looks at the epoch. */
function looked(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 120));
}
