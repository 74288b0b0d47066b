/** The store on Redis behaves as every other store: the one suite, and the differential test, with a real server. */

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openRedisRowServer } from "../../../src/store/redis/redis-row-server.ts";
import type { RowServer } from "../../../src/store/rows/row-server.ts";
import { RowStore } from "../../../src/store/rows/row-store.ts";
import { describeStore, type StoreHarness } from "../../../src/testing/store-suite.ts";
import { systemWorld } from "../../../src/world/system-world.ts";
import type { World } from "../../../src/world/world.ts";
import { expectSameAnswers } from "../../store/differential.ts";
import { beginNewEpoch } from "../../store/stores.ts";
import { RedisProcess, reasonToSkip } from "./redis-process.ts";

const DIFFERENTIAL_RUNS = 40;
const reason = reasonToSkip();

if (reason !== null) it("the store on Redis", (context) => context.skip(reason));
else {
  let redis: RedisProcess;
  beforeAll(async () => {
    // What is on the disk does not matter here.
    redis = await RedisProcess.start({ config: { appendfsync: "everysec" } });
  });
  afterAll(() => redis.dispose());

  describeStore({ name: "redis", tools: { describe, it, expect }, open: () => openStore(redis, systemWorld()) });

  describe("memory and redis", () => {
    it("give the same answers to every sequence of steps", () =>
      expectSameAnswers((world) => openStore(redis, world, (server) => onClockOf(world, server)), DIFFERENTIAL_RUNS));
  });

  /** The server's clock shows the time of the test's world. */
  function onClockOf(world: World, server: RowServer): RowServer {
    return new Proxy(server, {
      get(target, name) {
        const member: unknown = Reflect.get(target, name, target);
        if (typeof member !== "function") return member;
        return (...args: unknown[]) => {
          redis.stopTime(world.wallMs());
          return Reflect.apply(member, target, args);
        };
      },
    });
  }
}

async function openStore(
  redis: RedisProcess,
  world: World,
  change: (server: RowServer) => RowServer = (server) => server,
): Promise<StoreHarness> {
  const prefix = `fleet-${world.randomHex(4)}`;
  const opened: RowStore[] = [];
  const open = async () => {
    const server = await openRedisRowServer({ settings: redis.settings({ prefix }), world: systemWorld() });
    const store = new RowStore({ server: change(server), world });
    opened.push(store);
    return store;
  };
  return {
    store: await open(),
    second: open,
    // As FLUSHALL, for this fleet only.
    async empty() {
      const names = ["rows", "index", "kept-rows", "kept-index"];
      await redis.command("DEL", ...names.map((name) => `{${prefix}}:${name}`));
    },
    async beginEpoch() {
      const server = await openRedisRowServer({ settings: redis.settings({ prefix }), world: systemWorld() });
      await beginNewEpoch(server, world);
      await server.close();
    },
    async dispose() {
      await Promise.all(opened.map((store) => store.close()));
    },
  };
}
