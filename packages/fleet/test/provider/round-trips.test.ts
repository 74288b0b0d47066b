/**
 * How many sequential store responses an acquire waits for, on each of its paths. With a store across a network each of
 * them is a round trip.
 */

import { describe, expect, test } from "vitest";
import type { Store } from "../../src/store/store.ts";
import { newStageOn, STORE_KINDS } from "../support/stage.ts";

type Opened = Awaited<ReturnType<ReturnType<typeof newStageOn>["open"]>>;

/** The store steps of an acquire, in their order. Each got its response before the next. */
async function stepsOf(instance: Opened, acquire: () => Promise<unknown>) {
  const asked: string[] = [];
  const stops = ACQUIRE_STEPS.map((name) =>
    instance.store.on(name, (async (proceed: () => Promise<unknown>) => {
      asked.push(name);
      return proceed();
    }) as never),
  );
  await acquire();
  for (const stop of stops) stop();
  return { asked };
}

/**
 * Everything except the heartbeats, which are sent all the time, and the confirmation of a bind, which is not awaited.
 */
const ACQUIRE_STEPS =
  "take hold unhold reserve publish bind get find list census meta sessions stop takeOver claimForRemoval".split(
    " ",
  ) as (keyof Store & ("take" | "list"))[];

describe.each(STORE_KINDS)("an acquire waits for the store, on %s,", (kind) => {
  test("not at all where the sandbox is held", async () => {
    const stage = newStageOn(kind);
    const instance = await stage.open();
    await using _held = await stage.until(instance.fleet.acquire({ thread: "t" }));
    const { asked } = await stepsOf(instance, async () => (await instance.fleet.acquire({ thread: "t" })).release());
    expect(asked).toEqual([]);
  });

  test("once where it is parked", async () => {
    const stage = newStageOn(kind);
    const instance = await stage.open();
    await (await stage.until(instance.fleet.acquire({ thread: "t" }))).release();
    await stage.settle();
    const { asked } = await stepsOf(instance, () => stage.until(instance.fleet.acquire({ thread: "t" })));
    expect(asked).toEqual(["take"]);
  });

  test("twice where a blank is bound, and not for the confirmation", async () => {
    const stage = newStageOn(kind, { pool: { default: 1 } });
    const instance = await stage.open();
    await stage.settle();
    const confirming = instance.store.hang("confirmBound", { deaf: true });
    const { asked } = await stepsOf(instance, () => stage.until(instance.fleet.acquire({ thread: "t" })));
    expect(asked).toEqual(["take", "bind"]);
    expect(instance.eventsOf("lease-acquired").map(({ path }) => path)).toEqual(["blank"]);
    expect(confirming.arrived).toBe(1);
    confirming.open();
  });

  test("twice where it is made", async () => {
    const stage = newStageOn(kind);
    const instance = await stage.open();
    const { asked } = await stepsOf(instance, () => stage.until(instance.fleet.acquire({ thread: "t" })));
    expect(asked).toEqual(["take", "publish"]);
  });

  test("three times where the thread must exist: its files are looked for between claim and create", async () => {
    const stage = newStageOn(kind);
    const instance = await stage.open();
    await (await stage.until(instance.fleet.acquire({ thread: "t" }))).release();
    expect(await stage.until(instance.fleet.destroy({ thread: "t" }))).toBe("stopped");
    const existing = () => stage.until(instance.fleet.acquire({ thread: "t", existing: true }));
    expect((await stepsOf(instance, existing)).asked).toEqual(["take", "reserve", "publish"]);
  });
});
