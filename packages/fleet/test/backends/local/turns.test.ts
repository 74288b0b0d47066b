/** Starts wait for one another: no more at once than allowed, in order, and a start that gives up leaves no gap. */

import { describe, expect, it } from "vitest";
import { ConcurrencyLimit } from "../../../src/world/concurrency-limit.ts";

const never = new AbortController().signal;

describe("turns", () => {
  it("are taken by no more than there are, in the order of coming", async () => {
    const turns = new ConcurrencyLimit(2);
    const order: number[] = [];
    let [now, most] = [0, 0];
    const work = (number: number) => async () => {
      order.push(number);
      now += 1;
      most = Math.max(most, now);
      await new Promise((resolve) => setImmediate(resolve));
      now -= 1;
    };
    await Promise.all([1, 2, 3, 4, 5].map((number) => turns.run(never, work(number))));
    expect([order, most, now]).toEqual([[1, 2, 3, 4, 5], 2, 0]);
  });

  it("go on to the next when work fails or a waiter gives up", async () => {
    const turns = new ConcurrencyLimit(1);
    let fail = (_: Error) => {};
    const first = turns.run(never, () => new Promise((_, reject) => (fail = reject)));
    const leaving = new AbortController();
    const second = turns.run(leaving.signal, async () => "second");
    const third = turns.run(never, async () => "third");
    leaving.abort(new Error("given up"));
    await expect(second).rejects.toThrow("given up");
    fail(new Error("failed"));
    await expect(first).rejects.toThrow("failed");
    expect(await third).toBe("third");
    expect(await turns.run(never, async () => "fourth")).toBe("fourth");
  });
});
