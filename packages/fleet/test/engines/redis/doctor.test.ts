/** What `sandlot doctor` says of a Redis store. */

import { describe, expect, it } from "vitest";
import type { Finding } from "../../../src/backend/doctor/finding.ts";
import { redisFindings } from "../../../src/store/redis/doctor.ts";
import { reasonToSkip } from "./redis-process.ts";
import { startRedis } from "./stage.ts";

const statuses = (findings: readonly Finding[]) =>
  Object.fromEntries(findings.map(({ name, status }) => [name, status]));
const named = (findings: readonly Finding[], name: string) => findings.find((finding) => finding.name === name);

describe.skipIf(reasonToSkip() !== null)("sandlot doctor on redis", () => {
  it("finds a safe server in order, and changes nothing", async () => {
    const redis = await startRedis();
    const findings = await redisFindings(redis.settings());
    expect(statuses(findings)).toEqual({
      store: "ok",
      "store version": "ok",
      "store eviction": "ok",
      "store persistence": "ok",
      "store replicas": "ok",
      "store latency": expect.any(String),
      "store clock": "ok",
      "store memory": "ok",
    });
    expect(named(findings, "store")?.detail).toBe(`redis at 127.0.0.1:${redis.port} answers`);
    expect(named(findings, "store persistence")?.detail).toContain("appendfsync always: no commit is lost");
    expect(await redis.command("DBSIZE")).toBe(0);
  });

  it("names each danger with its fix", async () => {
    const redis = await startRedis({
      config: { appendonly: "no", "maxmemory-policy": "allkeys-lfu", maxmemory: "1100000" },
    });
    redis.skipTime(-5_000);
    const findings = await redisFindings(redis.settings({ replicasMin: 1 }));
    expect(statuses(findings)).toMatchObject({
      store: "ok",
      "store eviction": "fail",
      "store persistence": "fail",
      "store replicas": "fail",
      "store clock": "warn",
      "store memory": "warn",
    });
    expect(named(findings, "store eviction")?.fix).toContain("redis-cli CONFIG SET maxmemory-policy noeviction");
    expect(named(findings, "store persistence")?.fix).toContain("redis-cli CONFIG SET appendonly yes");
    expect(named(findings, "store replicas")?.fix).toContain("redis-cli CONFIG SET min-replicas-to-write 1");
    expect(named(findings, "store clock")?.detail).toMatch(/^the server's clock is (49|50)\d\d ms behind$/);
    for (const { status, fix } of findings) if (status !== "ok") expect(fix).toBeTruthy();
  });

  it("warns of replicas that commits do not wait for", async () => {
    const master = await startRedis();
    await startRedis({ config: { replicaof: `127.0.0.1 ${master.port}` } });
    const replicas = async () => named(await redisFindings(master.settings()), "store replicas");
    await expect.poll(replicas).toMatchObject({ status: "warn", fix: expect.stringContaining("store.replicasMin") });
    expect(named(await redisFindings(master.settings()), "store persistence")?.detail).toContain("may lose commits");
  });

  it("says that nothing answers, and how to check it", async () => {
    const redis = await startRedis();
    await redis.kill();
    expect(await redisFindings(redis.settings())).toEqual([
      {
        name: "store",
        status: "fail",
        detail: `redis at 127.0.0.1:${redis.port} cannot be reached (ECONNREFUSED)`,
        fix: `redis-cli -h 127.0.0.1 -p ${redis.port} PING must answer`,
      },
    ]);
  });

  it("ends when a server hangs", async () => {
    const redis = await startRedis();
    redis.signal("SIGSTOP");
    const findings = await redisFindings(redis.settings({ timeoutMs: 300 }));
    redis.signal("SIGCONT");
    expect(statuses(findings)).toEqual({ store: "fail" });
  });
});
