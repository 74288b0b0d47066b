/** The servers of the suite `stores`: a store on each, and its baseline, the bare driver on the same server. */

import { createClient } from "@redis/client";
import pg from "pg";
import { openPostgresRowServer } from "../../../packages/fleet/src/store/postgres/postgres-row-server.ts";
import { openRedisRowServer } from "../../../packages/fleet/src/store/redis/redis-row-server.ts";
import type { RowServer } from "../../../packages/fleet/src/store/rows/row-server.ts";
import { systemWorld } from "../../../packages/fleet/src/world/system-world.ts";
import { startPostgres } from "../../../packages/fleet/test/engines/postgres/postgres-server.ts";
import { RedisProcess } from "../../../packages/fleet/test/engines/redis/redis-process.ts";

/** As many connections as callers, on both sides. */
export const CLIENTS = 16;
const HOST = "127.0.0.1";

export interface BenchServer extends AsyncDisposable {
  readonly name: "postgres" | "redis";
  /** What the baseline does twice. */
  readonly unit: string;
  /** Rows for one store. Stores with different names share nothing. `port`: of a proxy to the server. */
  openRows(name: string, port?: number): Promise<RowServer>;
  readonly port: number;
  /** Writes `body` into the row `id`, by the bare driver. */
  openBare(): Promise<Bare>;
}

export interface Bare {
  write(client: number, id: string, body: string): Promise<void>;
  close(): Promise<void>;
}

export const BENCH_SERVERS: readonly (() => Promise<BenchServer>)[] = [postgres, redis];

async function postgres(): Promise<BenchServer> {
  const server = await startPostgres({ settings: { max_connections: "200" } });
  const { port } = server;
  return {
    ...{ name: "postgres", unit: "single-row transaction", port },
    openRows: (schema, proxied = port) =>
      openPostgresRowServer(server.settings({ host: HOST, port: proxied, schema, poolMax: CLIENTS }), systemWorld()),
    async openBare() {
      const clients = await Promise.all(Array.from({ length: CLIENTS }, () => connected(port)));
      await clients[0]?.query("CREATE TABLE IF NOT EXISTS bare (id text PRIMARY KEY, body text)");
      return {
        async write(client, id, body) {
          const text = "INSERT INTO bare VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET body = excluded.body";
          await clients[client % CLIENTS]?.query({ name: "write", text, values: [id, body] });
        },
        async close() {
          await Promise.all(clients.map((client) => client.end()));
        },
      };
    },
    [Symbol.asyncDispose]: () => server.dispose(),
  };
}

async function connected(port: number): Promise<pg.Client> {
  const client = new pg.Client({ host: HOST, port, user: "app", database: "app", password: "" });
  await client.connect();
  return client;
}

async function redis(): Promise<BenchServer> {
  const server = await RedisProcess.start();
  const { port } = server;
  return {
    ...{ name: "redis", unit: "EVALSHA", port },
    openRows: (prefix, proxied = port) => {
      const topology = { kind: "standalone", endpoint: { host: HOST, port: proxied } } as const;
      return openRedisRowServer({ settings: server.settings({ prefix, topology }), world: systemWorld() });
    },
    async openBare() {
      const client = createClient({ socket: { host: HOST, port } });
      await client.connect();
      const sha = await client.scriptLoad("return redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])");
      return {
        async write(_, id, body) {
          await client.evalSha(sha, { keys: ["bare"], arguments: [id, body] });
        },
        async close() {
          client.destroy();
        },
      };
    },
    [Symbol.asyncDispose]: () => server.dispose(),
  };
}
