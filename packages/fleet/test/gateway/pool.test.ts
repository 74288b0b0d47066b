/** The pool of a gateway: its report for operators, its metrics, and the blank that `sandlot serve` keeps by default. */

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { PoolReply } from "@sandlot/contract";
import { afterAll, expect, test } from "vitest";
import { openFleetAndHost } from "../../src/open-fleet.ts";
import { runHere } from "../cli/run-here.ts";
import { openStage } from "./support/stage.ts";

const root = mkdtempSync(join(tmpdir(), "slp-"));
afterAll(() => rmSync(root, { recursive: true, force: true }));

test("operators see targets, blanks, hits and misses; users do not", async () => {
  const stage = await openStage({ fleet: { pool: { default: 1 } } });
  try {
    const alice = await stage.user("alice");
    const report = () => stage.operator.ask<PoolReply>(200, "GET", "/v1/pool");
    await expect.poll(async () => (await report()).blueprints[0]?.ready).toBe(1);
    const lease = await alice.ask<{ leaseId: string }>(201, "POST", "/v1/threads/t/leases", {
      json: { ttlMs: 60_000 },
    });
    await alice.ask(204, "DELETE", `/v1/leases/${lease.leaseId}`);
    expect(await report()).toMatchObject({ hits: 1, misses: {} });
    await alice.ask(403, "GET", "/v1/pool");
    const metrics = await (await stage.operator.call("GET", "/metrics")).text();
    for (const line of [
      "sandlot_pool_hits_total 1",
      'sandlot_pool_misses_total{reason="none-ready"} 0',
      "sandlot_pool_hit_ratio 1",
      'sandlot_pool_target{blueprint="default"} 1',
    ])
      expect(metrics).toContain(`${line}\n`);
  } finally {
    await stage.done();
  }
});

test("a fleet of `serve` keeps a blank without being told, a library's does not", async () => {
  const config = { home: join(root, "kept"), backend: "memory", store: { type: "memory" } } as const;
  const { fleet } = await openFleetAndHost(config, { keepsBlank: true });
  const blanks = async () => (await fleet.list()).filter(({ state }) => state === "blank").length;
  await expect.poll(blanks).toBe(1);
  expect((await fleet.pool()).summary).toContain("Blanks kept ready: 1 of default.");
  await fleet.close({ destroy: true });
  const { fleet: plain } = await openFleetAndHost({ ...config, home: join(root, "plain") });
  expect((await plain.pool()).blueprints).toEqual([]);
  await plain.close({ destroy: true });
});

test("`explain pool` says what a gateway of this configuration would keep, and why", async () => {
  const environment = { SANDLOT_HOME: join(root, "asked"), SANDLOT_BACKEND: "memory", HOME: root };
  const { stdout } = await runHere(["explain", "pool"], environment);
  expect(stdout).toContain("would keep blanks ready: 1 of default. `sandlot serve` keeps one");
  const file = join(root, "none.yaml");
  writeFileSync(file, "pool: {}\n");
  const none = await runHere(["explain", "pool", "-c", file, "--json"], environment);
  expect(JSON.parse(none.stdout)).toMatchObject({
    summary: expect.stringContaining("would keep no blank ready. The configuration says so, in `pool`."),
  });
});
