/** The section `store` of a configuration with the type `redis`: what it becomes, and what is wrong with it. */

import { describe, expect, it } from "vitest";
import { problemsFrom } from "../../src/config/problems.ts";
import { resolveSettings } from "../../src/config/resolve-settings.ts";
import { REDIS_STORE } from "../../src/store/redis/entry.ts";
import type { RedisSettings } from "../../src/store/redis/settings.ts";

const resolve = (store: object, more: object = {}) =>
  resolveSettings({ home: "/tmp/nowhere", store: { type: "redis", ...store }, ...more }, {}).store as RedisSettings;
const problems = (store: object, more: object = {}) =>
  problemsFrom(() => resolve(store, more)).map(({ path, problem }) => `${path} ${problem}`);

describe("the settings of a Redis store", () => {
  it("all have defaults", () => {
    expect(resolve({})).toEqual({
      type: "redis",
      topology: { kind: "standalone", endpoint: { host: "127.0.0.1", port: 6379 } },
      database: 0,
      user: null,
      passwordFile: null,
      tls: null,
      prefix: "sandlot",
      replicasMin: 0,
      timeoutMs: 5_000,
    });
  });

  it("come from keys, or from a URL", () => {
    const full = { mode: "verify-full", caFile: null, certFile: null, keyFile: null };
    expect(resolve({ url: "rediss://us%65r@redis.example:6380/3" })).toMatchObject({
      topology: { kind: "standalone", endpoint: { host: "redis.example", port: 6380 } },
      database: 3,
      user: "user",
      tls: full,
    });
    expect(resolve({ url: "redis://[::1]" }).topology).toEqual({
      kind: "standalone",
      endpoint: { host: "::1", port: 6379 },
    });
    expect(resolve({ url: "unix:///run/redis/redis.sock" }).topology).toEqual({
      kind: "standalone",
      endpoint: { path: "/run/redis/redis.sock" },
    });
    expect(resolve({ host: "/run/redis.sock" }).topology).toEqual({
      kind: "standalone",
      endpoint: { path: "/run/redis.sock" },
    });
    expect(resolve({ host: "a", port: 7, database: "2", user: "u", tls: {} })).toMatchObject({
      topology: { endpoint: { host: "a", port: 7 } },
      database: 2,
      user: "u",
      tls: full,
    });
    expect(resolve({ tls: { mode: "disable" } }).tls).toBe(null);
  });

  it("name Sentinels or a cluster instead of a server, and then wait for a replica", () => {
    const sentinel = { master: "mymaster", nodes: ["s1:26379", "[::1]:26380"], passwordFile: "/run/secret" };
    expect(resolve({ sentinel })).toMatchObject({
      topology: {
        kind: "sentinel",
        master: "mymaster",
        nodes: [
          { host: "s1", port: 26_379 },
          { host: "::1", port: 26_380 },
        ],
        user: null,
        passwordFile: "/run/secret",
      },
      replicasMin: 1,
    });
    expect(resolve({ cluster: { nodes: ["c1:6379"] }, replicasMin: 0 })).toMatchObject({
      topology: { kind: "cluster", nodes: [{ host: "c1", port: 6379 }] },
      replicasMin: 0,
    });
  });

  it("are described without secrets", () => {
    const show = (store: object) => REDIS_STORE.describe(resolve(store));
    expect(show({ url: "redis://me@h:1/0", passwordFile: "/run/secret", prefix: "one" })).toBe(
      "redis at h:1, prefix one",
    );
    expect(show({ sentinel: { master: "m", nodes: ["a:1", "b:2"] } })).toBe(
      "redis at m, known to Sentinel at a:1, b:2, prefix sandlot",
    );
    expect(show({ cluster: { nodes: ["a:1"] } })).toBe("redis at the cluster of a:1, prefix sandlot");
  });

  it("refuse a password in a URL without showing it", () => {
    const [problem, ...others] = problems({ url: "redis://user:s3cret@host/0" });
    expect(problem).toMatch(
      /^store.url has a password, which logs and process lists would show; .*SANDLOT_REDIS_PASSWORD/,
    );
    expect(problem).not.toContain("s3cret");
    expect(others).toEqual([]);
  });

  it("refuse what cannot be meant", () => {
    expect(problems({ url: "http://host" })).toEqual([
      "store.url must be a URL such as redis://user@host:6379/0, rediss://host or unix:///run/redis.sock",
    ]);
    expect(problems({ url: "redis://host/name" })).toEqual([
      "store.url must end with the number of a database, such as /0",
    ]);
    expect(problems({ url: "redis://host?db=1" })).toEqual(["store.url must end after the path; it has parameters"]);
    expect(problems({ url: "redis://host", port: 1 })).toEqual([
      "store.port is in store.url already; give one of them",
    ]);
    expect(problems({ database: "name" })).toEqual([
      "store.database must be a number with the store type redis (it is name)",
    ]);
    const nodes = ["a:1"];
    expect(problems({ sentinel: { master: "m", nodes }, cluster: { nodes } })).toEqual([
      "store.cluster cannot be used together with store.sentinel: a cluster has its own failover",
    ]);
    expect(problems({ host: "h", cluster: { nodes } })).toEqual([
      "store.host names one server, but store.cluster finds it; remove one",
    ]);
    expect(problems({ cluster: { nodes }, database: 1 })).toEqual(["store.database must be 0: a cluster has no other"]);
    expect(problems({ sentinel: { master: "m", nodes: ["a:0"] } })).toEqual([
      "store.sentinel.nodes[0] must end with a port, 1 to 65535",
    ]);
    expect(problems({ tls: { certFile: "/a" } })).toEqual([
      "store.tls.keyFile must be set too: a certificate needs its key",
    ]);
    expect(problems({ url: "rediss://host", tls: { mode: "disable" } })).toEqual([
      "store.tls.mode is disable, but store.url asks for TLS with rediss://",
    ]);
    expect(problems({ url: "unix:///run/x", tls: {} })).toEqual([
      "store.tls means nothing for a socket on this machine; remove it",
    ]);
    for (const prefix of ["{a}", "", "a b", "-a", "a".repeat(65)]) expect(problems({ prefix })).toHaveLength(1);
    expect(problems({ path: "/x.db" })[0]).toContain("store.path means nothing with the store type redis");
  });

  it("refuse paths that depend on the directory", () => {
    const files = { caFile: "ca.pem", certFile: "c.pem", keyFile: "k.pem" };
    const sentinel = { master: "m", nodes: ["a:1"], passwordFile: "s" };
    expect(problems({ passwordFile: "p", tls: files, sentinel }).map((text) => text.split(" ")[0])).toEqual([
      "store.passwordFile",
      "store.sentinel.passwordFile",
      "store.tls.caFile",
      "store.tls.certFile",
      "store.tls.keyFile",
    ]);
  });

  it("leave a session time for a slow call", () => {
    expect(problems({ timeoutMs: "8s" })).toEqual([
      "store.timeoutMs is 8000, but must be less than half of sessionLifetimeMs (15000), so that one slow call does not end a session",
    ]);
    expect(resolve({ timeoutMs: 7_499 }).timeoutMs).toBe(7_499);
    expect(problems({ timeoutMs: 7_500 })).toHaveLength(1);
    const short = { sessionLifetimeMs: 3_000, housekeepingIntervalMs: 500 };
    expect(resolve({}, short).timeoutMs).toBeLessThan(1_500);
  });
});
