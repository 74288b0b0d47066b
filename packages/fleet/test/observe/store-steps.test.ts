/** The steps of a store on the network: their metrics at the gateway, and their spans. */

import { context, trace } from "@opentelemetry/api";
import { SandlotError } from "@sandlot/contract";
import { afterAll, expect, test } from "vitest";
import { type StepReport, StoreSteps } from "../../src/observe/store-steps.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import { openStage } from "../gateway/support/stage.ts";
import { lostAnswer, newRows } from "../store/row-fixture.ts";
import { openMemory } from "../store/stores.ts";
import { collect } from "./span-collector.ts";

const world = systemWorld();

afterAll(() => {
  trace.disable();
  context.disable();
});

test("a report has the step's time, its round trips, conflicts and retries, and its error", async () => {
  const { open } = newRows();
  const [first, second] = [open(), open()];
  const reports: StepReport[] = [];
  const stop = new StoreSteps(first.store, world).on((report) => reports.push(report));
  await first.store.entries.list("");
  await second.store.entries.list("");
  await first.store.entries.put("keys/a", "1", null);
  reports.length = 0;

  // Another writer is first, and an answer is lost.
  let commits = 0;
  first.server.onCommit = async (commit, proceed) => {
    commits += 1;
    if (commits === 1) await second.store.probe();
    if (commits === 2) throw lostAnswer();
    return proceed(commit);
  };
  await second.store.probe();
  await first.store.probe();
  first.server.onCommit = null;
  const probe = reports.find(({ operation }) => operation === "probe");
  expect(probe).toMatchObject({ conflicts: 1, retries: 1, errorCode: null });
  expect(probe?.calls).toBeGreaterThanOrEqual(3);
  expect(probe?.durationMs).toBeGreaterThan(0);
  expect(first.store.counts).toMatchObject({ conflicts: 1, retries: 1 });

  first.server.onCommit = async () => {
    throw new SandlotError("store_corrupt", { path: "row x", problem: "damaged" });
  };
  await expect(first.store.probe()).rejects.toThrow();
  expect(reports.at(-1)).toMatchObject({ operation: "probe", errorCode: "store_corrupt" });
  first.server.onCommit = null;
  stop();
  reports.length = 0;
  await first.store.probe();
  expect(reports).toEqual([]);
  for (const { store } of [first, second]) await store.close();
});

test("the gateway counts them by step; a store in this process has none", async () => {
  const { store } = newRows().open();
  const stage = await openStage({ store, more: { storeSteps: new StoreSteps(store, world) } });
  try {
    const alice = await stage.user("alice");
    await alice.ask(200, "POST", "/v1/threads/t/exec", { json: { command: "true" } });
    const text = await (await stage.operator.call("GET", "/metrics")).text();
    const valueIn = (series: string) => Number(new RegExp(`^sandlot_${series} (\\S+)$`, "m").exec(text)?.[1] ?? "NaN");
    expect(valueIn('store_step_duration_seconds_count\\{step="take"\\}')).toBeGreaterThanOrEqual(1);
    expect(valueIn('store_step_duration_seconds_count\\{step="publish"\\}')).toBe(1);
    expect(valueIn('store_calls_total\\{step="publish"\\}')).toBeGreaterThanOrEqual(1);
    expect(valueIn('store_conflicts_total\\{step="publish"\\}')).toBe(0);
    expect(valueIn('store_retries_total\\{step="publish"\\}')).toBe(0);
    expect(text).not.toMatch(/^sandlot_store_step_failures_total\{/m);
  } finally {
    await stage.done();
  }
  const memory = await openMemory();
  const reports: StepReport[] = [];
  new StoreSteps(memory.store, world).on((report) => reports.push(report));
  await memory.store.probe();
  expect(reports).toEqual([]);
});

test("a step is a span inside the acquire that waits for it, and no span of its own", async () => {
  const { store } = newRows().open();
  const seen = collect();
  const stage = await openStage({ store, more: { storeSteps: new StoreSteps(store, world) } });
  try {
    const alice = await stage.user("alice");
    // Beats and housekeeping.
    await expect.poll(() => store.counts.calls).toBeGreaterThan(3);
    expect(seen.filter(({ name, parent }) => name === "sandlot.store" && parent === null)).toEqual([]);
    seen.length = 0;
    await alice.ask(200, "POST", "/v1/threads/t/exec", { json: { command: "true" } });
    const steps = seen.filter(({ name }) => name === "sandlot.store");
    expect(steps.map(({ attributes }) => attributes["sandlot.store.step"])).toEqual(
      expect.arrayContaining(["take", "publish"]),
    );
    expect(steps.every(({ ended, failed, parent }) => ended && !failed && parent !== null)).toBe(true);
    const publish = steps.find(({ attributes }) => attributes["sandlot.store.step"] === "publish");
    expect(publish).toMatchObject({
      parent: "sandlot.acquire",
      attributes: { "sandlot.store.type": "memory-rows", "sandlot.store.conflicts": 0, "sandlot.store.retries": 0 },
    });
    expect(publish?.attributes["sandlot.store.calls"]).toBeGreaterThanOrEqual(1);
  } finally {
    await stage.done();
  }
});
