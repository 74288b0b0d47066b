/** Limits of one length share a timer, and end their callers' waits all the same. */

import { expect, it } from "vitest";
import { TimeLimits } from "../../src/store/rows/time-limits.ts";
import type { Timer, World } from "../../src/world/world.ts";

/** A world whose clock is moved by hand. */
function stage() {
  const timers = new Set<{ at: number; fire: () => void }>();
  let now = 0;
  const timer = (ms: number, fire: () => void): Timer => {
    const one = { at: now + ms, fire };
    timers.add(one);
    return { cancel: () => timers.delete(one) };
  };
  const pass = (ms: number) => {
    now += ms;
    for (const one of [...timers].filter(({ at }) => at <= now)) {
      timers.delete(one);
      one.fire();
    }
  };
  const world = { timer, monotonicMs: () => now } as Pick<World, "timer" | "monotonicMs"> as World;
  return { limits: new TimeLimits(world, 100), other: new TimeLimits(world, 30), timers, pass };
}

const hang = () => new Promise<never>(() => {});
const late = (name: string) => () => new Error(`${name} is late`);

it("each ends at its own time, by one timer, and none is left", async () => {
  const { limits, timers, pass } = stage();
  const first = limits.within(null, late("first"), hang);
  pass(60);
  const second = limits.within(null, late("second"), hang);
  expect(timers.size).toBe(1);
  pass(40);
  await expect(first).rejects.toThrow("first is late");
  expect(timers.size).toBe(1);
  pass(59);
  expect(await Promise.race([second.catch(() => "over"), Promise.resolve("waits")])).toBe("waits");
  pass(1);
  await expect(second).rejects.toThrow("second is late");
  expect(timers.size).toBe(0);
});

it("work that ends in time leaves no timer, and its value", async () => {
  const { limits, timers } = stage();
  expect(await limits.within(null, late("work"), async () => 7)).toBe(7);
  await expect(limits.within(null, late("work"), () => Promise.reject(new Error("failed")))).rejects.toThrow("failed");
  expect(timers.size).toBe(0);
});

it("a limit around another ends it, with its signal", async () => {
  const { limits, other, pass, timers } = stage();
  const signals: AbortSignal[] = [];
  const outer = limits.within(null, late("outer"), async (limit) => {
    for (;;)
      await other
        .within(limit, late("inner"), ({ signal }) => {
          signals.push(signal);
          return hang();
        })
        .catch(() => undefined)
        .finally(() => limit.throwIfEnded());
  });
  for (const ms of [30, 30, 30, 10]) {
    pass(ms);
    for (let turn = 0; turn < 20; turn += 1) await Promise.resolve();
  }
  await expect(outer).rejects.toThrow("outer is late");
  expect(signals.map(({ aborted, reason }) => aborted && reason.message)).toEqual([
    ...["inner is late", "inner is late", "inner is late", "outer is late"],
  ]);
  expect(timers.size).toBe(0);
});

it("all that is under way can be ended", async () => {
  const { limits, timers } = stage();
  const both = [limits.within(null, late("one"), hang), limits.within(null, late("other"), hang)];
  limits.endAll(new Error("closed"));
  for (const one of both) await expect(one).rejects.toThrow("closed");
  expect(timers.size).toBe(0);
});
