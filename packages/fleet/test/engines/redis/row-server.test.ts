/** The Redis row server keeps the contract of row servers, with a real server. */

import { existsSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openRedisRowServer } from "../../../src/store/redis/redis-row-server.ts";
import { keysOf, SCRIPTS } from "../../../src/store/redis/scripts.ts";
import type { RowServer } from "../../../src/store/rows/row-server.ts";
import { describeRowServer, type RowServerHarness } from "../../../src/testing/row-server-suite.ts";
import { systemWorld } from "../../../src/world/system-world.ts";
import { RedisProcess, reasonToSkip } from "./redis-process.ts";
import { TcpProxy } from "./tcp-proxy.ts";

const world = systemWorld();

/** Debian 12 has no Valkey: the suite runs on it where it is installed. */
const hasValkey = (process.env.PATH ?? "").split(":").some((folder) => existsSync(join(folder, "valkey-server")));
const PROGRAMS = ["redis-server", ...(hasValkey ? ["valkey-server" as const] : [])] as const;
for (const program of PROGRAMS) describeOn(program);

function describeOn(program: "redis-server" | "valkey-server"): void {
  const reason = reasonToSkip(program);
  if (reason !== null) {
    describe(program, () => it("runs", (context) => context.skip(reason)));
    return;
  }
  let redis: RedisProcess;
  beforeAll(async () => {
    redis = await RedisProcess.start({ program });
  });
  afterAll(async () => redis.dispose());

  describeRowServer({
    name: program,
    tools: { describe, it, expect },
    // Each case is another fleet on one server.
    open: () => harness(redis, `fleet-${world.randomHex(4)}`),
  });
}

async function harness(redis: RedisProcess, prefix: string): Promise<RowServerHarness> {
  const proxy = await TcpProxy.to(redis.port);
  const opened: RowServer[] = [];
  const open = async (endpoint: { host: string; port: number }) => {
    const settings = redis.settings({ prefix, topology: { kind: "standalone", endpoint } });
    const server = await openRedisRowServer({ settings, world });
    opened.push(server);
    return server;
  };
  return {
    server: await open(proxy.endpoint),
    second: () => open({ host: "127.0.0.1", port: redis.port }),
    async cut() {
      proxy.cut();
    },
    async interrupt() {
      proxy.refuse();
      return async () => proxy.restore();
    },
    async age(ms) {
      redis.skipTime(ms);
      const { all } = keysOf(prefix);
      await redis.command("EVALSHA", SCRIPTS.relieve.hash, String(all.length), ...all, "unused", "500");
    },
    async dispose() {
      await Promise.all(opened.map((server) => server.close()));
      await proxy.close();
    },
  };
}
