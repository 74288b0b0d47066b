/** A Redis server whose disk is really full, with both ways of writing its append-only file. */

import { expect, it } from "vitest";
import { openRedisRowServer } from "../../../src/store/redis/redis-row-server.ts";
import { RowStore } from "../../../src/store/rows/row-store.ts";
import { systemWorld } from "../../../src/world/system-world.ts";
import { missingMounts } from "../../support/small-disk.ts";
import { useFullDisk } from "../full-disk.ts";
import { reasonToSkip } from "./redis-process.ts";
import { openServer, stageOn, startRedis } from "./stage.ts";

const missing = reasonToSkip() ?? missingMounts();
const test =
  missing === null ? it : (name: string, _: () => Promise<void>) => it(name, (context) => context.skip(missing));

const world = systemWorld();
const DISK_BYTES = 8 * 1_048_576;

test("appendfsync everysec: a fleet refuses what is new, keeps what is held, loses nothing and heals by itself", async () => {
  const redis = await startRedis({ diskBytes: DISK_BYTES, config: { appendfsync: "everysec" } });
  await useFullDisk({
    disk: redis.disk,
    problem: /cannot save to its disk: MISCONF/,
    async openStore(using, timeoutMs) {
      const server = await openRedisRowServer({ settings: redis.settings({ timeoutMs }), world });
      return new RowStore({ server, world: using, timeoutMs });
    },
  });
});

test("appendfsync always: the server ends, and goes on with every acknowledged commit when it is started again", async () => {
  const redis = await startRedis({ diskBytes: DISK_BYTES });
  const stage = await stageOn(await openServer(redis.settings()));
  const acknowledged: string[] = [];
  const write = async () => {
    const key = `record/${acknowledged.length}`;
    await stage.write({ [key]: "x".repeat(6_000) });
    acknowledged.push(key);
  };
  await write();
  redis.disk.fill();
  const fill = async () => {
    for (;;) await write();
  };
  await expect(fill()).rejects.toMatchObject({ code: "store_unavailable", retryable: true });
  await expect.poll(() => redis.isRunning).toBe(false);
  await expect(write()).rejects.toMatchObject({ code: "store_unavailable" });
  redis.disk.free();
  await redis.start();
  await stage.until("it is connected again", () =>
    write().then(
      () => true,
      () => false,
    ),
  );
  for (const key of acknowledged) expect((await stage.row(key)).body).toBe("x".repeat(6_000));
});
