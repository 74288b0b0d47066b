/** The exception for a thread whose home was lost ends when it has settled. */

import { expect, it } from "vitest";
import { Bench } from "./check-harness.ts";

const OWNER = "ada/t1";

function stage() {
  const { truth } = new Bench({}, 2);
  const { acknowledged } = truth.thread(OWNER);
  acknowledged.set("before", 1);
  return { truth, acknowledged };
}

it("leaves behind what was acknowledged before a thread settled on another engine, and nothing later", () => {
  const { truth, acknowledged } = stage();
  truth.lostHomes.lost(OWNER, "e1");
  expect(truth.lostHomes.unsettled(OWNER)).toBe("e1");
  expect(truth.leaveBehind(OWNER, "e2")).toBe(1);
  expect([truth.lostHomes.unsettled(OWNER), truth.lostHomes.wasLeft(OWNER, "e1")]).toEqual([null, true]);
  acknowledged.set("after", 2);
  expect(truth.leaveBehind(OWNER, "e2")).toBe(0);
  expect([...acknowledged.keys()]).toEqual(["after"]);
});

it("leaves nothing behind where the thread settles on its former engine, or never lost its home", () => {
  const { truth, acknowledged } = stage();
  expect(truth.leaveBehind(OWNER, "e2")).toBe(0);
  truth.lostHomes.lost(OWNER, "e1");
  expect(truth.leaveBehind(OWNER, "e1")).toBe(0);
  expect([truth.lostHomes.unsettled(OWNER), truth.lostHomes.wasLeft(OWNER, "e1")]).toEqual([null, false]);
  expect([...acknowledged.keys()]).toEqual(["before"]);
});
