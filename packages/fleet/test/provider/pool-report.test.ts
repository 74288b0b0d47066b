/** What the pool says of itself: which blanks are kept and why, hits, and the reasons of misses. */

import type { FleetEvent } from "@sandlot/contract";
import { describe, expect, test } from "vitest";
import { choosePool } from "../../src/config/default-pool.ts";
import { newStage } from "../support/stage.ts";

const limits = { mode: "hard", max: 50, maxPerUser: 0, maxPerEngine: 0, queueMax: 1, onFull: "wait" } as const;
const late = { name: "local", capabilities: new Set(["late-binding"] as const) };

describe("without the key `pool`", () => {
  test("one blank of the default blueprint is kept where the backend can bind it later", () => {
    expect(choosePool(undefined, { limits }, late).pool).toEqual({ default: 1 });
  });

  test("none is kept elsewhere, and the reason is the backend's", () => {
    const cannot = {
      name: "local",
      capabilities: new Set<never>(),
      lateBindingProblem: "they are on different mounts",
    };
    const { pool, because } = choosePool(undefined, { limits }, cannot);
    expect(pool).toEqual({});
    expect(because).toContain("they are on different mounts");
  });

  test.for([{ max: 1 }, { maxPerEngine: 1 }])("none is kept where %o leaves room for one sandbox", (less) => {
    const { pool, because } = choosePool(undefined, { limits: { ...limits, ...less } }, late);
    expect(pool).toEqual({});
    expect(because).toContain("limits");
  });
});

test.for([{}, { default: 0 }, { default: 3, science: 1 }])("`pool: %o` is what it says", (configured) => {
  expect(choosePool(configured, { limits }, late).pool).toBe(configured);
});

describe("a report", () => {
  test("counts blanks, hits and misses, and an event says why a sandbox was made", async () => {
    const bare = { network: { mode: "none" } } as const;
    const blueprints = { default: bare, other: { ...bare, environment: { A: "1" } } };
    const stage = newStage({ pool: { default: 1 }, blueprints });
    const { fleet } = await stage.open();
    const missed: FleetEvent[] = [];
    fleet.events.on((event) => event.type === "sandbox-created" && !event.blank && missed.push(event));
    await stage.settle();
    expect(await fleet.pool()).toMatchObject({
      summary: expect.stringContaining("1 of default"),
      blueprints: [{ blueprint: "default", target: 1, ready: 1, coming: 0, memoryBytes: null }],
      hits: 0,
      misses: {},
    });
    const first = await stage.until(fleet.acquire({ thread: "t1" }));
    const [second, third] = await stage.until(
      Promise.all([fleet.acquire({ thread: "t2" }), fleet.acquire({ thread: "t3", blueprint: "other" })]),
    );
    expect(await fleet.pool()).toMatchObject({ hits: 1, misses: { "none-ready": 1, "not-kept": 1 } });
    expect(missed).toMatchObject([
      { thread: "t2", miss: "none-ready", sandboxId: second.sandbox.id },
      { thread: "t3", miss: "not-kept", sandboxId: third.sandbox.id },
    ]);
    for (const lease of [first, second, third]) await stage.until(lease.release());
  });

  test("of a pool without blanks says that none is kept", async () => {
    const stage = newStage();
    const { fleet } = await stage.open();
    const report = await fleet.pool();
    expect(report.blueprints).toEqual([]);
    expect(report.summary).toMatch(/^No blank is kept ready\./);
  });
});
