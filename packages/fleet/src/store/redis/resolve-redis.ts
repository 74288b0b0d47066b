/** From the keys of a configuration to the settings of the Redis store. Reports every mistake with its key. */

import type { StoreContext } from "../entry.ts";
import { resolveTimeout, type TlsMode } from "../network-keys.ts";
import type { Endpoint, RedisSettings, RedisTls, Topology } from "./settings.ts";

type Given<T> = { readonly [Key in keyof T]?: T[Key] | undefined };

export type GivenKeys = Given<{
  url: string;
  host: string;
  port: number;
  database: string | number;
  user: string;
  passwordFile: string;
  tls: GivenTls;
  timeoutMs: number;
  prefix: string;
  sentinel: Given<{ user: string; passwordFile: string }> & {
    readonly master: string;
    readonly nodes: readonly string[];
  };
  cluster: { readonly nodes: readonly string[] };
  replicasMin: number;
}>;

type GivenTls = Given<{ mode: TlsMode; caFile: string; certFile: string; keyFile: string }>;

const DEFAULT_HOST = "127.0.0.1";
const DEFAULT_PORT = 6_379;
const DEFAULT_PREFIX = "sandlot";

/** What a URL says. */
interface Parsed {
  readonly endpoint: Endpoint;
  readonly database: number | null;
  readonly user: string | null;
  readonly isTls: boolean;
}

export function resolveRedis(given: GivenKeys, context: StoreContext): RedisSettings {
  const parsed = given.url === undefined ? null : parseUrl(given.url, given, context);
  const topology = resolveTopology(given, parsed, context);
  for (const [key, path] of Object.entries(filesOf(given))) {
    const wrong = path === undefined ? undefined : context.checkPath(path);
    if (wrong !== undefined) context.tell(key, wrong);
  }
  const database = resolveDatabase(given.database ?? parsed?.database ?? 0, topology, context);
  return {
    type: "redis",
    topology,
    database,
    user: given.user ?? parsed?.user ?? null,
    passwordFile: given.passwordFile ?? null,
    tls: resolveTls(given.tls, parsed?.isTls ?? false, topology, context),
    prefix: given.prefix ?? DEFAULT_PREFIX,
    replicasMin: given.replicasMin ?? (topology.kind === "standalone" ? 0 : 1),
    timeoutMs: resolveTimeout(given.timeoutMs, context),
  };
}

function filesOf({ passwordFile, sentinel, tls }: GivenKeys): Record<string, string | undefined> {
  return {
    passwordFile,
    "sentinel.passwordFile": sentinel?.passwordFile,
    "tls.caFile": tls?.caFile,
    "tls.certFile": tls?.certFile,
    "tls.keyFile": tls?.keyFile,
  };
}

/** The problem never contains the URL: it may hold a password. */
function parseUrl(text: string, given: GivenKeys, { tell }: StoreContext): Parsed | null {
  for (const key of ["host", "port", "database", "user"] as const)
    if (given[key] !== undefined) tell(key, { problem: "is in store.url already; give one of them" });
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url === null || !["redis:", "rediss:", "unix:"].includes(url.protocol)) {
    tell("url", { problem: "must be a URL such as redis://user@host:6379/0, rediss://host or unix:///run/redis.sock" });
    return null;
  }
  if (url.password !== "")
    tell("url", {
      problem:
        "has a password, which logs and process lists would show; put it in a file and name that in store.passwordFile, " +
        "or set SANDLOT_REDIS_PASSWORD",
    });
  if (url.search !== "" || url.hash !== "") tell("url", { problem: "must end after the path; it has parameters" });
  const isSocket = url.protocol === "unix:";
  const path = decoded(url.pathname);
  const number = /^\/?(\d*)$/.exec(path)?.[1];
  if (!isSocket && number === undefined) tell("url", { problem: "must end with the number of a database, such as /0" });
  const host = decoded(url.hostname).replace(/^\[(.*)\]$/, "$1") || DEFAULT_HOST;
  return {
    endpoint: isSocket ? { path } : { host, port: url.port === "" ? DEFAULT_PORT : Number(url.port) },
    database: isSocket || !number ? null : Number(number),
    user: url.username === "" ? null : decoded(url.username),
    isTls: url.protocol === "rediss:",
  };
}

function resolveTopology(given: GivenKeys, parsed: Parsed | null, { tell }: StoreContext): Topology {
  const { sentinel, cluster, host, port } = given;
  const single = (["url", "host", "port"] as const).find((key) => given[key] !== undefined);
  if (sentinel !== undefined && cluster !== undefined)
    tell("cluster", { problem: "cannot be used together with store.sentinel: a cluster has its own failover" });
  if (single !== undefined && (sentinel ?? cluster) !== undefined)
    tell(single, { problem: `names one server, but store.${sentinel ? "sentinel" : "cluster"} finds it; remove one` });
  if (sentinel !== undefined) {
    const { master, nodes, user = null, passwordFile = null } = sentinel;
    return { kind: "sentinel", master, nodes: endpointsOf("sentinel", nodes, tell), user, passwordFile };
  }
  if (cluster !== undefined) return { kind: "cluster", nodes: endpointsOf("cluster", cluster.nodes, tell) };
  if (parsed !== null) return { kind: "standalone", endpoint: parsed.endpoint };
  if (host?.startsWith("/") === true) return { kind: "standalone", endpoint: { path: host } };
  return { kind: "standalone", endpoint: { host: host ?? DEFAULT_HOST, port: port ?? DEFAULT_PORT } };
}

function endpointsOf(key: string, nodes: readonly string[], tell: StoreContext["tell"]): readonly Endpoint[] {
  return nodes.map((node, index) => {
    const at = node.lastIndexOf(":");
    const port = Number(node.slice(at + 1));
    if (!(port > 0 && port < 65_536)) tell(`${key}.nodes[${index}]`, { problem: "must end with a port, 1 to 65535" });
    return { host: node.slice(0, at).replace(/^\[(.*)\]$/, "$1"), port };
  });
}

function resolveDatabase(given: string | number, topology: Topology, { tell }: StoreContext): number {
  const number = typeof given === "number" ? given : /^\d{1,9}$/.test(given) ? Number(given) : null;
  if (number === null) tell("database", { problem: `must be a number with the store type redis (it is ${given})` });
  if (number !== null && number !== 0 && topology.kind === "cluster")
    tell("database", { problem: "must be 0: a cluster has no other" });
  return number ?? 0;
}

function resolveTls(
  given: GivenTls | undefined,
  isTls: boolean,
  topology: Topology,
  { tell }: StoreContext,
): RedisTls | null {
  const { mode = "verify-full", caFile = null, certFile = null, keyFile = null } = given ?? {};
  if ((certFile === null) !== (keyFile === null))
    tell(`tls.${certFile === null ? "certFile" : "keyFile"}`, {
      problem: "must be set too: a certificate needs its key",
    });
  if (isTls && mode === "disable")
    tell("tls.mode", { problem: "is disable, but store.url asks for TLS with rediss://" });
  if (mode === "disable" || (given === undefined && !isTls)) return null;
  if (topology.kind === "standalone" && "path" in topology.endpoint)
    tell("tls", { problem: "means nothing for a socket on this machine; remove it" });
  return { mode, caFile, certFile, keyFile };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
