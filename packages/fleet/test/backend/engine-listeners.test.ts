import type { EngineRef, SandboxId } from "@sandlot/contract";
import { expect, it } from "vitest";
import type { EngineEvent } from "../../src/backend/backend.ts";
import { EngineListeners } from "../../src/backend/engine-listeners.ts";

const died: EngineEvent = { type: "died", ref: "ref" as EngineRef, sandboxId: "sandbox" as SandboxId };

it("a watch begins with the first listener and ends with the last", () => {
  const seen: string[] = [];
  const listeners = new EngineListeners({ begin: () => seen.push("begin"), end: () => seen.push("end") });
  const first = listeners.add(() => {});
  const second = listeners.add(() => {});
  first();
  first();
  expect(seen).toEqual(["begin"]);
  second();
  listeners.add(() => {});
  listeners.clear();
  expect(seen).toEqual(["begin", "end", "begin", "end"]);
});

it("a function that is added twice gets every event twice, and is withdrawn one by one", () => {
  const seen: EngineEvent[] = [];
  const listeners = new EngineListeners();
  const listener = (event: EngineEvent) => seen.push(event);
  const withdraw = listeners.add(listener);
  listeners.add(listener);
  listeners.tell(died);
  withdraw();
  listeners.tell(died);
  expect(seen).toHaveLength(3);
});

it("a listener that another one withdraws or adds while an event is told changes nothing for the others", () => {
  const seen: string[] = [];
  const listeners = new EngineListeners();
  let withdraw = () => {};
  listeners.add(() => {
    seen.push("first");
    withdraw();
    listeners.add(() => seen.push("late"));
  });
  withdraw = listeners.add(() => seen.push("second"));
  listeners.tell(died);
  expect(seen).toEqual(["first", "second"]);
});
