/** The checks of `sandlot doctor` for the Redis store. They read, and write nothing. */

import { SandlotError } from "@sandlot/contract";
import type { Finding } from "../../backend/doctor/finding.ts";
import { systemWorld } from "../../world/system-world.ts";
import { within } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import { type Connection, connect } from "./connection.ts";
import { locateMaster } from "./locate-master.ts";
import { dangersOf, promiseOf, readFacts, type ServerFacts } from "./safety.ts";
import { keysOf } from "./scripts.ts";
import { type Endpoint, type RedisSettings, showEndpoint, showPlace } from "./settings.ts";
import { troubleOf } from "./trouble.ts";

/** Several, because the first ones wait for code to be loaded. */
const PINGS = 9;
/** A step of the store waits for one or two answers, and an acquire for up to two steps. */
const SLOW_MS = 20;
/** More than this between two beats makes an instance doubt itself. */
const CLOCK_OFF_MS = 1_000;
const MEMORY_SHARE_MAX = 0.8;

/** What one look at the server gave. */
interface Look {
  readonly endpoint: Endpoint;
  readonly facts: ServerFacts;
  /** The median of some round trips. */
  readonly latencyMs: number;
  /** How far the server's clock is ahead of ours. */
  readonly aheadMs: number;
}

export async function redisFindings(
  settings: RedisSettings,
  world: World = systemWorld(),
): Promise<readonly Finding[]> {
  const place = showPlace(settings);
  try {
    // Locating, connecting and asking: each has the timeout of a call.
    const look = await within(world, 3 * settings.timeoutMs, undefined, late, (signal) =>
      lookAt(settings, world, signal),
    );
    return [
      { name: "store", status: "ok", detail: `redis at ${showEndpoint(look.endpoint)} answers` },
      ...safetyFindings(settings, look.facts),
      latencyFinding(look),
      clockFinding(look),
      memoryFinding(look.facts),
      ...networkFindings(settings, look.endpoint),
    ];
  } catch (error) {
    const trouble = troubleOf("doctor", place, error);
    const { problem = trouble.message } = trouble.details as { readonly problem?: string };
    return [
      { name: "store", status: "fail", detail: problem, fix: `redis-cli ${cliOptions(settings)}PING must answer` },
    ];
  }
}

function late(): Error {
  return new Error("Connection timeout");
}

function cliOptions({ topology: { kind, ...rest } }: RedisSettings): string {
  const endpoint = kind === "standalone" && "endpoint" in rest ? rest.endpoint : undefined;
  if (endpoint === undefined) return "-h <node> ";
  return "path" in endpoint ? `-s ${endpoint.path} ` : `-h ${endpoint.host} -p ${endpoint.port} `;
}

async function lookAt(settings: RedisSettings, world: World, signal: AbortSignal): Promise<Look> {
  const [key = ""] = keysOf(settings.prefix).all;
  const dial = await locateMaster(settings, key, world, signal);
  let connection: Connection | undefined;
  try {
    connection = await connect(dial, world, signal);
    const asked = connection;
    const send = (args: readonly string[]) => asked.send(args, signal);
    const facts = await readFacts(send);
    const times: number[] = [];
    let aheadMs = 0;
    for (let n = 0; n < PINGS; n += 1) {
      const [sentAt, wallAt] = [world.monotonicMs(), world.wallMs()];
      const answer = await send(["TIME"]);
      const tookMs = world.monotonicMs() - sentAt;
      times.push(tookMs);
      const [seconds, micros] = Array.isArray(answer) ? answer.map(Number) : [];
      // The server answered somewhere in the middle of the round trip.
      aheadMs = (seconds ?? 0) * 1_000 + (micros ?? 0) / 1_000 - (wallAt + tookMs / 2);
    }
    const latencyMs = times.sort((one, other) => one - other)[Math.floor(PINGS / 2)] ?? 0;
    return { endpoint: dial.endpoint, facts, latencyMs, aheadMs };
  } catch (error) {
    throw error instanceof SandlotError ? error : troubleOf("doctor", showEndpoint(dial.endpoint), error);
  } finally {
    connection?.destroy();
  }
}

/** Each setting that the store would refuse is a failure; the others say what they promise. */
function safetyFindings(settings: RedisSettings, facts: ServerFacts): readonly Finding[] {
  const { replicasMin, topology } = settings;
  const dangers = dangersOf(facts, { isCluster: topology.kind === "cluster", replicasMin });
  const named = (setting: string, name: string, good: Finding): Finding => {
    const danger = dangers.find((one) => one.setting === setting);
    return danger === undefined ? good : failed(name, `${setting} ${danger.problem}`, danger.fix);
  };
  const isSingle = topology.kind === "standalone" && replicasMin === 0;
  const promise = promiseOf(facts, isSingle) === "linearizable" ? "no commit is lost" : "a failover may lose commits";
  const findings = [
    named("version", "store version", ok("store version", facts.version)),
    named("maxmemory-policy", "store eviction", ok("store eviction", `maxmemory-policy ${facts.evictionPolicy}`)),
    named("appendonly", "store persistence", persistence(facts, promise)),
    named("min-replicas-to-write", "store replicas", replication(facts, replicasMin)),
  ];
  const shown = ["version", "maxmemory-policy", "appendonly", "min-replicas-to-write"];
  const others = dangers.filter(({ setting }) => !shown.includes(setting));
  return [...findings, ...others.map(({ setting, problem, fix }) => failed("store", `${setting} ${problem}`, fix))];
}

function persistence({ appendFsync, unverified }: ServerFacts, promise: string): Finding {
  if (unverified.length === 0)
    return ok("store persistence", `appendonly yes, appendfsync ${appendFsync ?? "unknown"}: ${promise}`);
  const detail = `appendonly yes; ${unverified.join(" and ")} could not be read, because CONFIG GET is forbidden`;
  const fix = "check them at the server's provider, or allow it: redis-cli ACL SETUSER <user> +config|get";
  return { name: "store persistence", status: "warn", detail, fix };
}

function replication({ replicas, minReplicasToWrite }: ServerFacts, replicasMin: number): Finding {
  const detail = `${replicas} connected; commits wait for ${replicasMin}`;
  if (replicas < replicasMin)
    return failed("store replicas", detail, "start the missing replicas, or lower store.replicasMin");
  if (replicas > 0 && replicasMin === 0)
    return {
      name: "store replicas",
      status: "warn",
      detail: `${detail}, so one that becomes the master may miss many`,
      fix: "set store.replicasMin to 1, and redis-cli CONFIG SET min-replicas-to-write 1",
    };
  return ok(
    "store replicas",
    minReplicasToWrite === null ? detail : `${detail}; min-replicas-to-write ${minReplicasToWrite}`,
  );
}

function latencyFinding({ latencyMs }: Look): Finding {
  const detail = `${latencyMs.toFixed(1)} ms for a round trip`;
  if (latencyMs <= SLOW_MS) return ok("store latency", detail);
  const fix = "run gateway and server in one region, and look for slow commands: redis-cli SLOWLOG GET";
  return { name: "store latency", status: "warn", detail, fix };
}

function clockFinding({ aheadMs }: Look): Finding {
  const detail = `the server's clock is ${Math.abs(Math.round(aheadMs))} ms ${aheadMs < 0 ? "behind" : "ahead"}`;
  if (Math.abs(aheadMs) <= CLOCK_OFF_MS) return ok("store clock", detail);
  return { name: "store clock", status: "warn", detail, fix: "set both clocks by NTP: timedatectl set-ntp true" };
}

function memoryFinding({ usedBytes, maxBytes }: ServerFacts): Finding {
  const used = `${(usedBytes / 1_048_576).toFixed(1)} MiB used`;
  if (maxBytes === 0) return ok("store memory", `${used}, no limit (maxmemory 0)`);
  const detail = `${used} of ${(maxBytes / 1_048_576).toFixed(1)} MiB (maxmemory)`;
  if (usedBytes <= maxBytes * MEMORY_SHARE_MAX) return ok("store memory", detail);
  const fix =
    "raise it before it is full, because a full server takes no commits: redis-cli CONFIG SET maxmemory <bytes>";
  return { name: "store memory", status: "warn", detail, fix };
}

/** Beyond this machine the password and every token would be readable on the way. */
function networkFindings({ tls }: RedisSettings, endpoint: Endpoint): readonly Finding[] {
  const isLocal = "path" in endpoint || endpoint.host === "localhost" || /^(?:127\.|::1$)/.test(endpoint.host);
  if (isLocal || (tls !== null && tls.mode !== "require")) return [];
  const detail = tls === null ? "the connection is not encrypted" : "tls.mode require trusts every server";
  return [{ name: "store network", status: "warn", detail, fix: "set store.tls.caFile, and use TLS at the server" }];
}

function ok(name: string, detail: string): Finding {
  return { name, status: "ok", detail };
}

function failed(name: string, detail: string, fix: string): Finding {
  return { name, status: "fail", detail, fix };
}
