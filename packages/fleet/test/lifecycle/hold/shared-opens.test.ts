/** Shared opens: one open, many callers, and nothing left when they have all gone. */

import { describe, expect, test } from "vitest";
import { SharedOpens } from "../../../src/lifecycle/hold/shared-opens.ts";
import type { Slot } from "../../../src/lifecycle/hold/slot.ts";
import { VirtualTime } from "../../support/virtual-time.ts";

const slotNamed = (name: string) => ({ name }) as unknown as Slot;
const nameOf = (slot: Slot) => (slot as unknown as { name: string }).name;
const turn = () => new Promise((resolve) => setImmediate(resolve));

function scene() {
  const unclaimed: string[] = [];
  const time = new VirtualTime();
  const flights = new SharedOpens(time.newWorld(), (slot) => unclaimed.push(nameOf(slot)));
  const starts: { signal: AbortSignal; land: (name: string) => void; crash: (error: unknown) => void }[] = [];
  const start = (signal: AbortSignal) =>
    new Promise<Slot>((resolve, reject) => {
      starts.push({ signal, land: (name) => resolve(slotNamed(name)), crash: reject });
    });
  const join = (key: string, signal: AbortSignal, take: (slot: Slot) => string = nameOf, timeoutMs = 60_000) =>
    flights.join(key, { signal, leftMs: () => timeoutMs, late: () => `late after ${timeoutMs}` }, start, take);
  return { flights, join, starts, unclaimed, time };
}

const never = () => new AbortController().signal;

describe("flights", () => {
  test("of one key are one start; of two keys two", async () => {
    const { join, starts } = scene();
    const calls = [join("a", never()), join("a", never()), join("b", never())];
    expect(starts).toHaveLength(2);
    starts[0]!.land("x");
    starts[1]!.land("y");
    expect(await Promise.all(calls)).toEqual(["x", "x", "y"]);
  });

  test("take what landed in the turn in which it lands, before anybody is told that it is unclaimed", async () => {
    const { join, starts, unclaimed } = scene();
    const order: string[] = [];
    const take = (slot: Slot) => {
      order.push(`take, unclaimed ${unclaimed.length}`);
      return nameOf(slot);
    };
    const calls = [join("a", never(), take), join("a", never(), take)];
    starts[0]!.land("x");
    await Promise.all(calls);
    expect(order).toEqual(["take, unclaimed 0", "take, unclaimed 0"]);
    // The listener decides whether it was really left unused.
    expect(unclaimed.length).toBeLessThanOrEqual(1);
  });

  test("are aborted when the last caller has given up, with the last one's reason", async () => {
    const { join, starts } = scene();
    const [first, second] = [new AbortController(), new AbortController()];
    const calls = [join("a", first.signal), join("a", second.signal)];
    const settled = Promise.allSettled(calls);
    first.abort("one");
    expect(starts[0]!.signal.aborted).toBe(false);
    second.abort("two");
    expect(starts[0]!.signal.aborted).toBe(true);
    expect(starts[0]!.signal.reason).toBe("two");
    expect((await settled).map((result) => result.status === "rejected" && result.reason)).toEqual(["one", "two"]);
  });

  test("that land although everybody has gone are unclaimed, once", async () => {
    const { join, starts, unclaimed } = scene();
    const controller = new AbortController();
    const call = join("a", controller.signal);
    controller.abort("gone");
    await expect(call).rejects.toBe("gone");
    starts[0]!.land("x");
    await turn();
    expect(unclaimed).toEqual(["x"]);
  });

  test("being given up are not joined: whoever comes next starts another", async () => {
    const { join, starts, unclaimed } = scene();
    const controller = new AbortController();
    const call = join("a", controller.signal);
    controller.abort("gone");
    await expect(call).rejects.toBe("gone");
    const next = join("a", never());
    expect(starts).toHaveLength(2);
    starts[0]!.land("old");
    starts[1]!.land("new");
    expect(await next).toBe("new");
    await turn();
    expect(unclaimed).toContain("old");
  });

  test("that fail tell every caller, and the next one starts anew", async () => {
    const { join, starts } = scene();
    const calls = Promise.allSettled([join("a", never()), join("a", never())]);
    starts[0]!.crash("broken");
    expect(await calls).toMatchObject([
      { status: "rejected", reason: "broken" },
      { status: "rejected", reason: "broken" },
    ]);
    void join("a", never());
    expect(starts).toHaveLength(2);
  });

  test("of a caller that was gone before it came are not started", async () => {
    const { join, starts } = scene();
    await expect(join("a", AbortSignal.abort("early"))).rejects.toBe("early");
    expect(starts).toHaveLength(0);
  });

  test("whose taking throws reject that caller only", async () => {
    const { join, starts } = scene();
    const bad = join("a", never(), () => {
      throw new Error("not mine");
    });
    const good = join("a", never());
    const settled = Promise.allSettled([bad, good]);
    starts[0]!.land("x");
    expect(await settled).toMatchObject([{ status: "rejected" }, { status: "fulfilled", value: "x" }]);
  });

  test("are given up by each caller at its own deadline, and aborted at the last one", async () => {
    const { join, starts, time } = scene();
    const settled = Promise.allSettled([100, 300].map((ms) => join("a", never(), nameOf, ms)));
    await time.advance(299);
    expect(starts[0]!.signal.aborted).toBe(false);
    await time.advance(1);
    expect(starts[0]!.signal.reason).toBe("late after 300");
    expect(await settled).toMatchObject([{ reason: "late after 100" }, { reason: "late after 300" }]);
  });

  test("are all given up by abort, which waits for their cleaning up", async () => {
    const { flights, join, starts } = scene();
    const call = join("a", never());
    const settled = Promise.allSettled([call]);
    let closed = false;
    const closing = flights.abort("closing").then(() => {
      closed = true;
    });
    await turn();
    expect(starts[0]!.signal.reason).toBe("closing");
    expect(closed).toBe(false);
    starts[0]!.crash("closing");
    await closing;
    expect(await settled).toMatchObject([{ status: "rejected", reason: "closing" }]);
  });
});
