/** Servers that could lose or hide rows are refused, with the setting and the command that mends it. */

import { isSandlotError } from "@sandlot/contract";
import { describe, expect, it } from "vitest";
import { dangersOf, readFacts, type ServerFacts } from "../../../src/store/redis/safety.ts";
import { reasonToSkip } from "./redis-process.ts";
import { openServer, refusalOf, startRedis } from "./stage.ts";

const SAFE: ServerFacts = {
  version: "7.0.15",
  isMaster: true,
  masterAddress: null,
  isCluster: false,
  replicas: 0,
  evictionPolicy: "noeviction",
  isAppendOnly: true,
  appendFsync: "always",
  minReplicasToWrite: 0,
  usedBytes: 1,
  maxBytes: 0,
  unverified: [],
};

describe.skipIf(reasonToSkip() !== null)("redis that is refused", () => {
  const cases = [
    {
      config: { "maxmemory-policy": "allkeys-lru" },
      texts: ["maxmemory-policy is allkeys-lru", "redis-cli CONFIG SET maxmemory-policy noeviction"],
    },
    { config: { appendonly: "no" }, texts: ["appendonly is no", "redis-cli CONFIG SET appendonly yes"] },
    { config: { appendfsync: "no" }, texts: ["appendfsync is no", "redis-cli CONFIG SET appendfsync everysec"] },
    {
      config: { appendonly: "no", "maxmemory-policy": "volatile-ttl" },
      texts: ["maxmemory-policy is volatile-ttl", "appendonly is no"],
    },
  ];
  for (const { config, texts } of cases) {
    it(`is refused with ${Object.entries(config).flat().join(" ")}, and its fix makes it usable`, async () => {
      const redis = await startRedis({ config });
      const error = await refusalOf(redis.settings());
      expect(isSandlotError(error, "store_unavailable")).toBe(true);
      for (const text of texts) expect(error.message).toContain(text);
      // Refused means untouched.
      expect(await redis.command("DBSIZE")).toBe(0);
      for (const [, name = "", value = ""] of error.message.matchAll(/redis-cli CONFIG SET (\S+) (\S+)/g))
        await redis.command("CONFIG", "SET", name, value);
      await openServer(redis.settings());
    });
  }

  it("is refused as a replica, and the error names the master", async () => {
    const master = await startRedis();
    const replica = await startRedis({ config: { replicaof: `127.0.0.1 ${master.port}` } });
    const { message } = await refusalOf(replica.settings());
    expect(message).toContain(`replicaof makes it a replica of 127.0.0.1:${master.port}`);
    expect(message).toContain("set store.host and store.port to its master");
  });

  it("is refused as a master that a failover could replace in silence", async () => {
    const redis = await startRedis();
    const { message } = await refusalOf(redis.settings({ replicasMin: 1 }));
    expect(message).toContain("min-replicas-to-write is 0");
    expect(message).toContain("redis-cli CONFIG SET min-replicas-to-write 1");
  });

  it("is refused as a node of a cluster, unless a cluster is configured", async () => {
    const redis = await startRedis({ config: { "cluster-enabled": "yes" } });
    expect((await refusalOf(redis.settings())).message).toContain("set store.cluster.nodes");
  });

  it("is refused below version 7", () => {
    const wanted = { isCluster: false, replicasMin: 0 };
    expect(dangersOf(SAFE, wanted)).toEqual([]);
    const [danger] = dangersOf({ ...SAFE, version: "6.2.14" }, wanted);
    expect(danger).toMatchObject({ setting: "version", problem: "is 6.2.14, but the store needs 7 or newer" });
  });

  it("is refused when another program uses its keys", async () => {
    const redis = await startRedis();
    await redis.command("SET", "{sandlot}:kept-index", "of another program");
    const error = await refusalOf(redis.settings());
    expect(error.message).toContain("store.prefix");
    expect(isSandlotError(error, "store_corrupt")).toBe(true);
  });

  it("is refused when a newer version has written it", async () => {
    const redis = await startRedis();
    const server = await openServer(redis.settings());
    await server.close();
    await redis.command("HSET", "{sandlot}:rows", "!reader", "2");
    const error = await refusalOf(redis.settings());
    expect(isSandlotError(error, "store_corrupt")).toBe(true);
    expect(error.message).toContain("install a newer Sandlot");
  });

  it("says that nothing listens, and where", async () => {
    const redis = await startRedis();
    await redis.kill();
    const error = await refusalOf(redis.settings({ timeoutMs: 500 }));
    expect(error.message).toContain(`127.0.0.1:${redis.port} cannot be reached (ECONNREFUSED)`);
  });
});

describe("what a server says of itself", () => {
  const info =
    "redis_version:7.2.4\r\nvalkey_version:8.0.1\r\nrole:master\r\naof_enabled:1\r\nmaxmemory_policy:noeviction\r\n";

  it("names what could not be verified where CONFIG is forbidden", async () => {
    for (const problem of ["NOPERM this user has no permissions", "ERR unknown command 'CONFIG'"]) {
      const facts = await readFacts(async ([command]) => {
        if (command === "INFO") return info;
        throw new Error(problem);
      });
      expect(facts).toMatchObject({ version: "8.0.1", appendFsync: null, minReplicasToWrite: null });
      expect(facts.unverified).toEqual(["appendfsync", "min-replicas-to-write"]);
    }
  });

  it("does not take another failure of CONFIG for a prohibition", async () => {
    const facts = readFacts(async ([command]) => {
      if (command === "INFO") return info;
      throw new Error("LOADING Redis is loading the dataset in memory");
    });
    await expect(facts).rejects.toThrow("LOADING");
  });
});
