/**
 * Where the master is: a fixed address, the one that a Sentinel names, or the node of a cluster that has our slot.
 *
 * The store is on one hash slot, so it always talks to one server. This file finds it, and plain connections do the rest:
 * a pool of a library would move commands between servers by itself.
 */

import type { World } from "../../world/world.ts";
import { type Connection, connect, type Dial } from "./connection.ts";
import { readSecrets } from "./secrets.ts";
import { type Endpoint, type RedisSettings, showEndpoint, type Topology } from "./settings.ts";
import { unavailable } from "./trouble.ts";

/** One node that hangs must not use up the time for asking the others. */
const NODE_TIMEOUT_MS = 1_000;

/** How to connect to the present master. */
export async function locateMaster(
  settings: RedisSettings,
  key: string,
  world: World,
  signal: AbortSignal,
): Promise<Dial> {
  const { topology, user, database, timeoutMs } = settings;
  const dial = { user, secrets: await readSecrets(settings, "server"), database, timeoutMs };
  if (topology.kind === "standalone") return { ...dial, endpoint: topology.endpoint };
  if (topology.kind === "sentinel") return { ...dial, endpoint: await askSentinels(settings, topology, world, signal) };
  const endpoint = await askNodes(topology.nodes, dial, world, signal, (node, asked) =>
    ownerOf(key, node, asked, signal),
  );
  return { ...dial, endpoint };
}

type Sentinels = Extract<Topology, { kind: "sentinel" }>;

async function askSentinels(
  settings: RedisSettings,
  { nodes, master, user }: Sentinels,
  world: World,
  signal: AbortSignal,
): Promise<Endpoint> {
  const secrets = await readSecrets(settings, "sentinel");
  const dial = { user, secrets, database: 0, timeoutMs: settings.timeoutMs };
  return askNodes(nodes, dial, world, signal, async (node) => {
    const answer = await node.send(["SENTINEL", "GET-MASTER-ADDR-BY-NAME", master], signal);
    if (answer === null) throw new Error(`it knows no master ${master}: check store.sentinel.master`);
    const [host, port] = Array.isArray(answer) ? answer : [];
    return { host: String(host), port: portOf(port) };
  });
}

/** The first node that can answer decides. Rejects with what each of them said. */
async function askNodes(
  nodes: readonly Endpoint[],
  dial: Omit<Dial, "endpoint">,
  world: World,
  signal: AbortSignal,
  ask: (node: Connection, asked: Endpoint) => Promise<Endpoint>,
): Promise<Endpoint> {
  const timeoutMs = Math.min(dial.timeoutMs, NODE_TIMEOUT_MS);
  const problems: string[] = [];
  for (const endpoint of nodes) {
    signal.throwIfAborted();
    let node: Connection | undefined;
    try {
      node = await connect({ ...dial, endpoint, timeoutMs }, world, signal);
      return await ask(node, endpoint);
    } catch (error) {
      problems.push(`${showEndpoint(endpoint)}: ${error instanceof Error ? error.message : String(error)}`);
    } finally {
      node?.destroy();
    }
  }
  throw unavailable("connect", `no node named the master: ${problems.join("; ")}`);
}

/** The master of the slot of `key`, from `CLUSTER SLOTS`: start, end, master, replicas. */
async function ownerOf(key: string, node: Connection, asked: Endpoint, signal: AbortSignal): Promise<Endpoint> {
  const slot = Number(await node.send(["CLUSTER", "KEYSLOT", key], signal));
  const ranges = await node.send(["CLUSTER", "SLOTS"], signal);
  for (const range of Array.isArray(ranges) ? ranges : []) {
    const [start, end, master] = Array.isArray(range) ? range : [];
    if (!(Number(start) <= slot && slot <= Number(end)) || !Array.isArray(master)) continue;
    const [host, port] = master;
    // An empty name means the host that was asked.
    const name = host === null || host === "" ? ("host" in asked ? asked.host : "127.0.0.1") : String(host);
    return { host: name, port: portOf(port) };
  }
  throw new Error(`no node has slot ${slot}, where the store's keys belong`);
}

function portOf(port: unknown): number {
  const number = Number(port);
  if (Number.isInteger(number) && number > 0 && number < 65_536) return number;
  throw new Error(`it named the port ${String(port)}`);
}
