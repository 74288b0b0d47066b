/** Row servers on servers of the tests, closed after each test, and the suite's helpers on one of them. */

import { afterEach, expect } from "vitest";
import { openRedisRowServer, type RedisRowServer } from "../../../src/store/redis/redis-row-server.ts";
import type { RedisSettings } from "../../../src/store/redis/settings.ts";
import type { RowServer } from "../../../src/store/rows/row-server.ts";
import { RowStage } from "../../../src/testing/row-server-suite/stage.ts";
import { systemWorld } from "../../../src/world/system-world.ts";
import { RedisProcess, type RedisProcessOptions } from "./redis-process.ts";

const world = systemWorld();

const disposals: (() => Promise<void>)[] = [];

afterEach(async () => {
  // The last one first: clients before their servers.
  for (const dispose of disposals.splice(0).reverse()) await dispose();
});

export function disposeLater(dispose: () => Promise<void>): void {
  disposals.push(dispose);
}

export async function startRedis(options: RedisProcessOptions = {}): Promise<RedisProcess> {
  const redis = await RedisProcess.start(options);
  disposeLater(() => redis.dispose());
  return redis;
}

export async function openServer(settings: RedisSettings): Promise<RedisRowServer> {
  const server = await openRedisRowServer({ settings, world });
  disposeLater(() => server.close());
  return server;
}

/** The suite's helpers. Its faults are those of the test. */
export function stageOn(server: RowServer): Promise<RowStage> {
  const none = () => Promise.reject(new Error("this stage has no faults of its own"));
  return RowStage.begin({ server, second: none, cut: none, interrupt: none, age: none, dispose: none }, expect);
}

/** Opens a server that must be refused, and returns the error. */
export async function refusalOf(settings: RedisSettings): Promise<Error & { readonly details: unknown }> {
  const error = await openRedisRowServer({ settings, world }).then(
    async (server) => {
      await server.close();
      return null;
    },
    (reason: unknown) => reason,
  );
  if (!(error instanceof Error) || !("details" in error)) throw new Error(`it was not refused: ${String(error)}`);
  return error as Error & { readonly details: unknown };
}
