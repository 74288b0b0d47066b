/** Shared stores on real servers: PostgreSQL and Redis. Every place on a server is a store of its own. */

import { afterAll, beforeAll, it } from "vitest";
import { openPostgresRowServer } from "../../src/store/postgres/postgres-row-server.ts";
import { openRedisRowServer } from "../../src/store/redis/redis-row-server.ts";
import { RowStore } from "../../src/store/rows/row-store.ts";
import type { Store } from "../../src/store/store.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import type { World } from "../../src/world/world.ts";
import { missingPostgres, type PostgresServer, startPostgres } from "./postgres/postgres-server.ts";
import { RedisProcess, reasonToSkip } from "./redis/redis-process.ts";

export interface SharedServer {
  readonly name: "postgres" | "redis";
  open(place: string, world: World, timeoutMs: number): Promise<Store>;
  /** Stops or continues every process of the server. */
  signal(signal: "SIGSTOP" | "SIGCONT"): void;
}

let made = 0;
export function newPlace(): string {
  made += 1;
  return `fleet_${made}`;
}

/** `what` names the tests where a server is missing. */
export function onEachServer(what: string, suites: (server: SharedServer) => void): void {
  onPostgres(what, suites);
  onRedis(what, suites);
}

function onPostgres(what: string, suites: (server: SharedServer) => void): void {
  const missing = missingPostgres();
  if (missing !== null) {
    it(`${what} on PostgreSQL`, (context) => context.skip(missing));
    return;
  }
  let server: PostgresServer;
  beforeAll(async () => {
    server = await startPostgres();
  });
  afterAll(() => server.dispose());
  suites({
    name: "postgres",
    async open(schema, world, timeoutMs) {
      const rows = await openPostgresRowServer(server.settings({ schema, timeoutMs }), systemWorld());
      return new RowStore({ server: rows, world, timeoutMs });
    },
    signal: (signal) => server.signal(signal),
  });
}

function onRedis(what: string, suites: (server: SharedServer) => void): void {
  const missing = reasonToSkip();
  if (missing !== null) {
    it(`${what} on Redis`, (context) => context.skip(missing));
    return;
  }
  let redis: RedisProcess;
  beforeAll(async () => {
    redis = await RedisProcess.start({ config: { appendfsync: "everysec" } });
  });
  afterAll(() => redis.dispose());
  suites({
    name: "redis",
    async open(prefix, world, timeoutMs) {
      const rows = await openRedisRowServer({ settings: redis.settings({ prefix }), world });
      return new RowStore({ server: rows, world, timeoutMs });
    },
    signal: (signal) => redis.signal(signal),
  });
}
