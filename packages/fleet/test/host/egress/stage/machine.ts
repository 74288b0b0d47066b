/**
 * The machine that runs the proxies of a stage, in its own network namespace, tied to the outside by a cable:
 *
 *   this namespace (proxies, OWN) ── veth ── another namespace (outside.ts, OUTSIDE)
 *
 * The test controls it over IPC. Everything here ends with the connection to the test.
 */

import { execFile, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { Egress } from "../../../../src/host/egress/process/connection.ts";
import { startEgress } from "../../../../src/host/egress/process/start-egress.ts";
import type { EgressStats } from "../../../../src/host/egress/proxy/egress-proxy.ts";
import { EgressProxy } from "../../../../src/host/egress/proxy/egress-proxy.ts";
import type { Resolver } from "../../../../src/host/egress/rules/resolver.ts";
import { systemWorld } from "../../../../src/world/system-world.ts";
import { OUTSIDE, OWN, PORTS } from "./addresses.ts";
import type { OutsideSettings } from "./outside.ts";
import type { MachineNotice, MachineOrder, ProxyOrder, StartedProxy } from "./stage.ts";

const execute = promisify(execFile);
const world = systemWorld();
const proxies = new Map<number, EgressProxy | Egress>();
const lookups: string[] = [];

process.on("message", (order: MachineOrder) => void carryOut(order));
process.once("disconnect", () => process.exit(0));

async function carryOut(order: MachineOrder): Promise<void> {
  try {
    tell({ type: "done", call: order.call, result: await perform(order) });
  } catch (error) {
    tell({ type: "failed", call: order.call, problem: error instanceof Error ? error.message : String(error) });
  }
}

async function perform(order: MachineOrder): Promise<unknown> {
  if (order.type === "begin") return begin(order.outside);
  if (order.type === "lookups") return lookups;
  if (order.type === "run") return (await execute(order.command[0]!, order.command.slice(1))).stdout;
  if (order.type === "proxy") return startProxy(order);
  const proxy = proxies.get(order.proxy);
  if (order.type === "stats") return (await proxy?.stats()) as EgressStats;
  proxies.delete(order.proxy);
  return proxy instanceof EgressProxy ? proxy.close() : proxy?.stop();
}

async function begin(outside: OutsideSettings): Promise<void> {
  const file = fileURLToPath(new URL("./outside.ts", import.meta.url));
  const child = spawn("unshare", ["--net", "--kill-child", process.execPath, ...process.execArgv, file], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  // `unshare` without `--fork` becomes the program itself: its namespace is the child's.
  child.stdin.end(JSON.stringify(outside));
  await once(child.stdout, "data");
  process.once("exit", () => child.kill("SIGKILL"));
  connectTo(child.pid!);
  useNameServer(outside.directory);
  await once(createServer((_, response) => response.end("own")).listen(PORTS.http, "::"), "listening");
}

/** In our own mount namespace: the machine's name server is the outside's. */
function useNameServer(directory: string): void {
  const path = join(directory, "resolv.conf");
  writeFileSync(path, `nameserver ${OUTSIDE.public}\n`);
  execFileSync("mount", ["--bind", path, "/etc/resolv.conf"]);
}

function connectTo(outside: number): void {
  ip("link set lo up");
  ip("link add cable type veth peer name cable-end");
  ip(`link set cable-end netns ${outside}`);
  ip(`address add ${OWN.v4}/32 dev cable`);
  ip(`address add ${OWN.v6}/128 dev cable nodad`);
  ip("link set cable up");
  ip("route add default dev cable");
  ip("-6 route add default dev cable");
  const there = ["-t", String(outside), "-n", "ip"];
  const inOutside = (args: string): void => void execFileSync("nsenter", [...there, ...args.split(" ")]);
  inOutside("link set lo up");
  for (const address of Object.values(OUTSIDE)) {
    inOutside(
      `address add ${address}/${address.includes(":") ? "128 nodad" : "32"} dev cable-end`.replace(
        /(\d) nodad dev (.*)/,
        "$1 dev $2 nodad",
      ),
    );
  }
  inOutside("link set cable-end up");
  inOutside("route add default dev cable-end");
  inOutside("-6 route add default dev cable-end");
}

async function startProxy(order: ProxyOrder): Promise<StartedProxy> {
  const { proxy: id, policy, limits, upstreamCa, authority } = order;
  const onRefused = (refusal: import("../../../../src/host/egress/rules/decide.ts").Refusal): void =>
    tell({ type: "refused", proxy: id, refusal });
  if ("directory" in order.at) {
    const { at } = order;
    const hosts = Object.fromEntries(Object.entries(order.answers).map(([name, answers]) => [name, answers[0]!]));
    const started = await startEgress({
      ...at,
      policy,
      limits,
      upstreamCa,
      hosts,
      world,
      onRefused,
    });
    proxies.set(id, started);
    return { pid: started.identity.pid, enter: started.enter };
  }
  const proxy = new EgressProxy({
    policy,
    limits,
    upstreamCa,
    authority,
    world,
    onRefused,
    resolver: scripted(order.answers),
  });
  await proxy.listen(order.at.socketPath);
  proxies.set(id, proxy);
  return { pid: process.pid, enter: null };
}

/** Each look-up takes the next response; the last one stays. An empty one never arrives. */
function scripted(answers: ProxyOrder["answers"]): Resolver {
  const left = new Map(Object.entries(answers).map(([name, list]) => [name, [...list]]));
  return (name) => {
    lookups.push(name);
    const list = left.get(name);
    const found = list !== undefined && list.length > 1 ? list.shift() : list?.[0];
    if (found === undefined) return Promise.reject(Object.assign(new Error("no such name"), { code: "ENOTFOUND" }));
    return found.length === 0 ? new Promise(() => {}) : Promise.resolve(found);
  };
}

function ip(args: string): void {
  execFileSync("ip", args.split(" "));
}

function tell(notice: MachineNotice): void {
  process.send?.(notice);
}
