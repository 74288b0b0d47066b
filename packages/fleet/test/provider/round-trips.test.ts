/**
 * How many sequential store responses an acquire waits for, on each of its paths. With a store across a network each of
 * them is a round trip.
 */

import { describe, expect, test } from "vitest";
import type { Store } from "../../src/store/store.ts";
import { newStageOn, newStageOnRows, STORE_KINDS, type StoreKind } from "../support/stage.ts";

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

describe.each<StoreKind>([...STORE_KINDS, "rows"])("an acquire waits for the store, on %s,", (kind) => {
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

/** On a network each of these is a round trip. Beats and housekeeping are left out by looking at a quiet moment. */
describe("a store of rows calls its server", () => {
  async function callsOf(calls: string[], work: () => Promise<unknown>): Promise<readonly string[]> {
    calls.length = 0;
    await work();
    return [...calls];
  }

  test("not at all for an acquire of what is held", async () => {
    const { stage, calls } = newStageOnRows();
    const { fleet } = await stage.open();
    await using _held = await stage.until(fleet.acquire({ thread: "t" }));
    expect(await callsOf(calls, async () => (await fleet.acquire({ thread: "t" })).release())).toEqual([]);
  });

  test("once for what is parked, also by another instance", async () => {
    const { stage, calls } = newStageOnRows();
    const { fleet } = await stage.open();
    await (await stage.until(fleet.acquire({ thread: "t" }))).release();
    await stage.settle();
    const lease = await stage.until(fleet.acquire({ thread: "t" }));
    await lease.release();
    await stage.settle();
    expect(await callsOf(calls, () => stage.until(fleet.acquire({ thread: "t" })))).toEqual(["commit"]);
  });

  test("twice for what is made", async () => {
    const { stage, calls } = newStageOnRows();
    const { fleet } = await stage.open();
    await stage.settle();
    expect(await callsOf(calls, () => stage.until(fleet.acquire({ thread: "t" })))).toEqual(["commit", "commit"]);
  });

  test("twice for a blank that is bound, and once more for the confirmation that is not awaited", async () => {
    const { stage, calls } = newStageOnRows({ pool: { default: 1 } });
    const instance = await stage.open();
    await stage.settle();
    const confirming = instance.store.hang("confirmBound", { deaf: true });
    const made = await callsOf(calls, () => stage.until(instance.fleet.acquire({ thread: "t" })));
    expect(made).toEqual(["commit", "commit"]);
    confirming.open();
  });

  test("twice for a stop", async () => {
    const { stage, calls } = newStageOnRows();
    const instance = await stage.open();
    await (await stage.until(instance.fleet.acquire({ thread: "t" }))).release();
    await stage.settle();
    const steps = await callsOf(calls, async () => {
      const record = await stage.recordOf("t");
      calls.length = 0;
      if (record?.state !== "ready") throw new Error("not parked");
      const { sandboxId, generation, revision, createdAt } = record;
      const actor = instance.fleet.instanceId;
      const request = { sandboxId, generation, actor, reason: "destroyed", purge: false } as const;
      const stopped = await instance.store.proxy.stop({ ...request, mode: { kind: "unheld", revision, createdAt } });
      if (stopped.kind !== "stopping") throw new Error(stopped.kind);
      await instance.store.proxy.remove({ sandboxId, revision: stopped.record.revision, actor });
    });
    expect(steps).toEqual(["commit", "commit"]);
  });
});
