/**
 * Whether a server may hold the store: it is the master, is new enough, writes to its disk, and never drops a row.
 *
 * `INFO` says most of it, and every user of the store may read it. `CONFIG GET` says the rest. Hosted servers often forbid
 * it; then `unverified` names what could not be checked, and the promise is the weaker one.
 */

import { unavailable, wordOf } from "./trouble.ts";

/** Functions of the scripts, and `CONFIG GET` of several settings, need it. */
const MAJOR_MIN = 7;
const CONFIGS = ["appendfsync", "min-replicas-to-write"];

export interface ServerFacts {
  readonly version: string;
  readonly isMaster: boolean;
  /** Of a replica. */
  readonly masterAddress: string | null;
  readonly isCluster: boolean;
  readonly replicas: number;
  readonly evictionPolicy: string;
  readonly isAppendOnly: boolean;
  /** `null` where `CONFIG GET` is forbidden. */
  readonly appendFsync: string | null;
  readonly minReplicasToWrite: number | null;
  readonly usedBytes: number;
  /** 0: no limit. */
  readonly maxBytes: number;
  /** Settings that could not be read. */
  readonly unverified: readonly string[];
}

type Send = (args: readonly string[]) => Promise<unknown>;

export async function readFacts(send: Send): Promise<ServerFacts> {
  const [info, config] = await Promise.all([send(["INFO"]), readConfig(send)]);
  const facts = parseInfo(String(info));
  const [appendFsync = null, minReplicas = null] = CONFIGS.map((name) => config?.get(name) ?? null);
  return {
    version: facts.get("valkey_version") ?? facts.get("redis_version") ?? "0",
    isMaster: facts.get("role") === "master",
    masterAddress: facts.has("master_host") ? `${facts.get("master_host")}:${facts.get("master_port")}` : null,
    isCluster: facts.get("cluster_enabled") === "1",
    replicas: numberOf(facts.get("connected_slaves")),
    evictionPolicy: facts.get("maxmemory_policy") ?? "unknown",
    isAppendOnly: facts.get("aof_enabled") === "1",
    appendFsync,
    minReplicasToWrite: minReplicas === null ? null : numberOf(minReplicas),
    usedBytes: numberOf(facts.get("used_memory")),
    maxBytes: numberOf(facts.get("maxmemory")),
    unverified: config === null ? CONFIGS : [],
  };
}

/** `null` where this user may not ask. */
async function readConfig(send: Send): Promise<ReadonlyMap<string, string> | null> {
  try {
    const answer = await send(["CONFIG", "GET", ...CONFIGS]);
    return new Map(entriesOf(answer));
  } catch (error) {
    // Hosted servers have renamed or removed the command.
    if (wordOf(error) === "NOPERM" || /unknown (?:command|subcommand)/i.test(String(error))) return null;
    throw error;
  }
}

/** A map of the protocol, or the flat list of its older version. */
function entriesOf(answer: unknown): [string, string][] {
  if (Array.isArray(answer)) {
    return answer.flatMap((name, index) => (index % 2 === 0 ? [[String(name), String(answer[index + 1])]] : []));
  }
  return Object.entries(answer ?? {}).map(([name, value]) => [name, String(value)]);
}

function parseInfo(text: string): ReadonlyMap<string, string> {
  const lines = text.split(/\r?\n/).filter((line) => line.includes(":"));
  return new Map(lines.map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1)]));
}

function numberOf(text: string | undefined): number {
  return Number(text ?? 0) || 0;
}

export interface Danger {
  readonly setting: string;
  readonly problem: string;
  /** The command, or the change of the configuration, that mends it. */
  readonly fix: string;
}

export interface Wanted {
  readonly isCluster: boolean;
  readonly replicasMin: number;
}

/** Everything that would lose or hide rows. Such a server is refused. */
export function dangersOf(facts: ServerFacts, { isCluster, replicasMin }: Wanted): readonly Danger[] {
  const dangers: Danger[] = [];
  const add = (setting: string, problem: string, fix: string) => dangers.push({ setting, problem, fix });
  const set = (name: string, value: string) => `redis-cli CONFIG SET ${name} ${value} && redis-cli CONFIG REWRITE`;
  const { version, masterAddress, evictionPolicy } = facts;
  if (Number.parseInt(version, 10) < MAJOR_MIN)
    add("version", `is ${version}, but the store needs ${MAJOR_MIN} or newer`, "install Redis 7 or newer, or Valkey");
  if (!facts.isMaster)
    add(
      "replicaof",
      `makes it a replica of ${masterAddress ?? "another server"}`,
      `set store.host and store.port to its master${masterAddress === null ? "" : `, ${masterAddress}`}, or set store.sentinel`,
    );
  if (facts.isCluster && !isCluster)
    add("cluster-enabled", "makes it a node of a cluster", "set store.cluster.nodes instead of its address");
  if (evictionPolicy !== "noeviction")
    add(
      "maxmemory-policy",
      `is ${evictionPolicy}, which drops rows when memory is full`,
      set("maxmemory-policy", "noeviction"),
    );
  if (!facts.isAppendOnly) add("appendonly", "is no, so a restart loses the store", set("appendonly", "yes"));
  if (facts.appendFsync === "no")
    add("appendfsync", "is no, so a crash loses up to half a minute", set("appendfsync", "everysec"));
  if (facts.minReplicasToWrite !== null && facts.minReplicasToWrite < replicasMin)
    add(
      "min-replicas-to-write",
      `is ${facts.minReplicasToWrite}, so a master that a failover has replaced would go on taking commits`,
      set("min-replicas-to-write", String(replicasMin)),
    );
  return dangers;
}

/** Throws `store_unavailable` with all dangers. */
export function refuseDangers(place: string, facts: ServerFacts, wanted: Wanted): void {
  const dangers = dangersOf(facts, wanted);
  if (dangers.length === 0) return;
  const listed = dangers.map(({ setting, problem, fix }) => `${setting} ${problem} (${fix})`).join("; ");
  throw unavailable("open", `redis at ${place} is refused: ${listed}`);
}

/**
 * Nothing acknowledged can be lost if every commit is on the disk before its answer and no replica can become the
 * master.
 */
export function promiseOf(facts: ServerFacts, isSingle: boolean): "linearizable" | "may-rewind" {
  return isSingle && facts.replicas === 0 && facts.appendFsync === "always" ? "linearizable" : "may-rewind";
}
