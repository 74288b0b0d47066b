/** The Redis store in the registry. */

import { z } from "zod";
import type { StoreContext, StoreEntry } from "../entry.ts";
import { NETWORK_KEYS } from "../network-keys.ts";
import { type GivenKeys, resolveRedis } from "./resolve-redis.ts";
import { type RedisSettings, showPlace } from "./settings.ts";

const filled = z.string().min(1, "must not be empty");
const nodes = z
  .array(z.string().regex(/^(?:\[[0-9A-Fa-f:.]+\]|[^\s:[\]]+):\d{1,5}$/, "must be host:port, such as redis-1:6379"))
  .min(1, "must name at least one node");

const { url, host, port, database, user, passwordFile, tls, timeoutMs } = NETWORK_KEYS;

export const REDIS_STORE = {
  name: "redis",
  isShared: true,
  about: "a Redis or Valkey server that several hosts share (version 7 or newer, with an append-only file)",
  keys: {
    url,
    host,
    port,
    database,
    user,
    passwordFile,
    tls,
    timeoutMs,
    prefix: z
      .string()
      .regex(/^[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,62}[A-Za-z0-9])?$/, "must be 1 to 64 letters, digits, dots or hyphens")
      .optional()
      .describe(
        "Redis: every key of the fleet begins with it, in braces. Two fleets on one server need two. Default: sandlot.",
      ),
    sentinel: z
      .strictObject({
        master: filled.describe("The name that the Sentinels give the master, such as mymaster."),
        nodes: nodes.describe("The Sentinels, as host:port."),
        user: filled.optional().describe("The account at the Sentinels."),
        passwordFile: filled
          .optional()
          .describe("The password at the Sentinels. Default: the variable SANDLOT_REDIS_SENTINEL_PASSWORD."),
      })
      .optional()
      .describe("Redis: ask these Sentinels for the master, instead of `host` and `port`."),
    cluster: z
      .strictObject({ nodes: nodes.describe("Some nodes of the cluster, as host:port; the others are found.") })
      .optional()
      .describe("Redis: use a cluster, instead of `host` and `port`. All keys of the fleet are on one of its nodes."),
    replicasMin: z
      .int()
      .min(0, "must not be negative; 0 waits for none")
      .max(16, "must be at most 16")
      .optional()
      .describe(
        "Redis: how many replicas must have a commit that something outside the store depends on. Default: 1 with `sentinel` or `cluster`, otherwise 0.",
      ),
  },
  resolve: (given: GivenKeys, context: StoreContext) => resolveRedis(given, context),
  describe: (settings) => `redis at ${showPlace(settings)}, prefix ${settings.prefix}`,
  async open(settings, world) {
    const { openRedisRowServer } = await import("./redis-row-server.ts");
    const { RowStore } = await import("../rows/row-store.ts");
    return new RowStore({
      server: await openRedisRowServer({ settings, world }),
      world,
      timeoutMs: settings.timeoutMs,
    });
  },
  // Opening it writes an epoch and nothing else.
  exists: () => true,
  async doctor(settings) {
    const { redisFindings } = await import("./doctor.ts");
    return redisFindings(settings);
  },
} as const satisfies StoreEntry<GivenKeys, RedisSettings>;
