/** Shared entries, and what two gateways share, on real servers: PostgreSQL and Redis. */

import { SandlotClient } from "@sandlot/client";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { openPostgresRowServer } from "../../src/store/postgres/postgres-row-server.ts";
import { openRedisRowServer } from "../../src/store/redis/redis-row-server.ts";
import { RowStore } from "../../src/store/rows/row-store.ts";
import type { Store } from "../../src/store/store.ts";
import { describeEntries } from "../../src/testing/entry-suite.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import type { World } from "../../src/world/world.ts";
import { describeOwnership } from "../gateway/support/ownership-suite.ts";
import { describeSharing } from "../gateway/support/sharing-suite.ts";
import type { Caller } from "../gateway/support/stage.ts";
import { openTwoGateways, type TwoGateways } from "../gateway/support/two-gateways.ts";
import { missingPostgres, type PostgresServer, startPostgres } from "./postgres/postgres-server.ts";
import { RedisProcess, reasonToSkip } from "./redis/redis-process.ts";

type Open = (name: string, world: World, timeoutMs: number) => Promise<Store>;

/** A step gets two seconds, on a machine that runs other tests as well. */
const LIFETIME_MS = 6_000;

let made = 0;
const newName = () => {
  made += 1;
  return `fleet_${made}`;
};
const exec = (caller: Caller, thread: string, command = "true") =>
  caller.ask<{ stdout: string }>(200, "POST", `/v1/threads/${thread}/exec`, { json: { command } });

function suites(name: string, open: Open): void {
  describeEntries({
    name,
    tools: { describe, it, expect },
    open: async () => {
      const place = newName();
      const [one, other] = [await open(place, systemWorld(), 5_000), await open(place, systemWorld(), 5_000)];
      if (one.entries === null || other.entries === null) throw new Error("it has entries");
      const dispose = async () => {
        await one.close();
        await other.close();
      };
      return { first: one.entries, second: other.entries, dispose };
    },
  });

  const ofPair = () => {
    const place = newName();
    return (world: World, timeoutMs: number) => open(place, world, timeoutMs);
  };
  describeSharing(name, { openStore: ofPair, lifetimeMs: LIFETIME_MS });
  describeOwnership(name, { openStore: ofPair, lifetimeMs: LIFETIME_MS });

  describe(`two gateways on ${name}, with their client`, () => {
    let two: TwoGateways | null = null;
    afterEach(async () => {
      await two?.done();
      two = null;
    });
    const openTwo = async (engines: 1 | 2) => {
      two = await openTwoGateways({ engines, openStore: ofPair(), lifetimeMs: LIFETIME_MS });
      const key = await two.user("alice");
      return { ...two, key, atA: two.a.operator.as(key) };
    };

    it("show the steps of their store in their metrics, with the round trips of each", async () => {
      const { a, atA } = await openTwo(1);
      await exec(atA, "t1");
      const text = await (await a.operator.call("GET", "/metrics")).text();
      for (const name of ["store_step_duration_seconds_count", "store_calls_total"])
        expect(Number(new RegExp(`^sandlot_${name}\\{step="publish"\\} (\\d+)$`, "m").exec(text)?.[1])).toBeGreaterThan(
          0,
        );
    });

    it("send a client to the engine of its thread", async () => {
      const { a, b, atA, key } = await openTwo(2);
      await exec(atA, "t1", "echo from-a > /mnt/user-data/workspace/file");
      const client = new SandlotClient({ url: b.gateway.url, apiKey: key });
      await using lease = await client.acquire({ thread: "t1" });
      expect((await lease.sandbox.exec("cat /mnt/user-data/workspace/file")).stdout).toBe("from-a\n");
      expect((await b.fleet.list()).map(({ engine }) => engine)).toEqual([a.engine]);
    });
  });
}

const postgresMissing = missingPostgres();
if (postgresMissing !== null) it("two gateways on PostgreSQL", (context) => context.skip(postgresMissing));
else {
  let server: PostgresServer;
  beforeAll(async () => {
    server = await startPostgres();
  });
  afterAll(() => server.dispose());
  suites("postgres", async (schema, world, timeoutMs) => {
    const rows = await openPostgresRowServer(server.settings({ schema, timeoutMs }), systemWorld());
    return new RowStore({ server: rows, world, timeoutMs });
  });
}

const redisMissing = reasonToSkip();
if (redisMissing !== null) it("two gateways on Redis", (context) => context.skip(redisMissing));
else {
  let redis: RedisProcess;
  beforeAll(async () => {
    redis = await RedisProcess.start({ config: { appendfsync: "everysec" } });
  });
  afterAll(() => redis.dispose());
  suites("redis", async (prefix, world, timeoutMs) => {
    const rows = await openRedisRowServer({ settings: redis.settings({ prefix }), world });
    return new RowStore({ server: rows, world, timeoutMs });
  });
}
