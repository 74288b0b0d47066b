/**
 * What gateways cost with thousands of pods: two gateways, on the cluster of `tests/cluster` with nodes of kwok and a
 * stub in place of the daemons. A tenth of the pods first, then all of them; each time memory, processor time and
 * requests per second at rest and under creates, and a consistent list.
 *
 *   SANDLOT_TEST_CLUSTER=… npm run scale -- --pods 5000 [--rest-seconds 60] [--per-second 20]
 *
 * Limits: a gateway's memory, and growth from a tenth to all of them. Figures of time depend on the machine.
 */

import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { RedisProcess } from "../../packages/fleet/test/engines/redis/redis-process.ts";
import { Cluster } from "../chaos/kubernetes/cluster.ts";
import { FakeNodes } from "./fake-nodes.ts";
import { type Created, Gateway } from "./gateway.ts";

const MIB = 1024 * 1024;
const MEMORY_MAX_BYTES = 250 * MIB;
const GROWTH_MAX = 1.5;
const SHARE = 10;
const GATEWAYS = 2;

const { values } = parseArgs({
  options: {
    pods: { type: "string", default: "5000" },
    "rest-seconds": { type: "string", default: "60" },
    "per-second": { type: "string", default: "20" },
    "burst-seconds": { type: "string", default: "20" },
  },
});

interface Audited {
  readonly findings: number;
  readonly listed: number;
  readonly ms: number;
  readonly processorMs: number;
}

interface Figures {
  readonly pods: number;
  /** Of the gateway that has more. */
  readonly residentBytes: number;
  readonly restProcessorMs: number;
  readonly listProcessorMs: number;
  readonly listMs: number;
}

const problems: string[] = [];
process.exitCode = await main();

async function main(): Promise<number> {
  const pods = Number(values.pods);
  if (!Number.isInteger(pods) || pods < SHARE) {
    console.error("--pods takes a whole number, at least 10");
    return 2;
  }
  const cluster = await Cluster.open(process.env.SANDLOT_TEST_CLUSTER);
  if (typeof cluster === "string") {
    console.log(`not possible: ${cluster}`);
    return process.env.CI === "true" ? 1 : 0;
  }
  const place = mkdtempSync("/tmp/sl-scale-");
  const store = await RedisProcess.start({ config: { appendfsync: "everysec" } });
  const nodes = new FakeNodes(cluster);
  const gateways: Gateway[] = [];
  try {
    await nodes.start(Math.ceil(pods * 1.1) + Number(values["per-second"]) * Number(values["burst-seconds"]) * 2);
    const config = configOf(cluster, nodes, store, pods);
    for (let count = 0; count < GATEWAYS; count += 1) {
      const home = join(place, `home-${count}`);
      mkdirSync(home, { mode: 0o700 });
      gateways.push(await Gateway.start(config, home, new URL(cluster.api.server).host));
    }
    await nodes.answer(config.fleetId);
    const few = await measured(gateways, 0, Math.floor(pods / SHARE));
    const all = await measured(gateways, few.pods, pods);
    judge(few, all);
    await under(gateways);
    console.log(`the stub was connected to ${nodes.answeredCount} times`);
  } catch (error) {
    problems.push(`the run ended: ${error instanceof Error ? error.stack : String(error)}`);
  } finally {
    await Promise.all(gateways.map((gateway) => gateway.end()));
    await store.dispose();
    await nodes.stop();
    await removeAll(cluster);
    await cluster.close();
    rmSync(place, { recursive: true, force: true });
  }
  console.log(problems.length === 0 ? "every limit holds" : `MISSED: ${problems.join("; ")}`);
  return problems.length === 0 ? 0 : 1;
}

function configOf(cluster: Cluster, nodes: FakeNodes, store: RedisProcess, pods: number) {
  return {
    ...{ fleetId: "scale", backend: "kubernetes", limits: { max: pods * 2 } },
    store: { type: "redis", url: `redis://127.0.0.1:${store.port}/0`, timeoutMs: 10_000 },
    kubernetes: {
      ...{ kubeconfig: cluster.kubeconfig, namespace: cluster.namespace, connect: "pod-ip", networkPolicy: "external" },
      // No program runs on a fake node, so no trial would end.
      ...{ image: "fake", requestCpuCount: 0.001, requestMemoryBytes: MIB, userNamespaces: "off" as const },
    },
    blueprints: { default: { pod: nodes.pod } },
    ...{ idleTimeoutMs: 0, sessionLifetimeMs: 60_000, pool: {} },
  };
}

/** Fills up to `count` pods, and measures the gateways with them. */
async function measured(gateways: readonly Gateway[], present: number, count: number): Promise<Figures> {
  const each = Math.ceil((count - present) / gateways.length);
  const filled = await Promise.all(
    gateways.map((gateway, index) => {
      const prefix = `fill-${present}-${index}-`;
      return gateway.create({ prefix, count: each, perSecond: 1_000, atOnce: 16 });
    }),
  );
  for (const [index, created] of filled.entries()) {
    console.log(
      `gateway ${index} made ${created.done} pods in ${created.seconds.toFixed(0)} s${told(created.refusals)}`,
    );
    if (created.done < each) problems.push(`gateway ${index} could not make ${each - created.done} pods`);
  }
  const restSeconds = Number(values["rest-seconds"]);
  const rest = await during(gateways, restSeconds * 1_000, () => sleep(restSeconds * 1_000));
  const audited = await Promise.all(gateways.map((gateway) => audit(gateway)));
  const total = each * gateways.length + present;
  for (const [index, { findings, listed, ms, processorMs }] of audited.entries()) {
    const wall = `${ms.toFixed(0)} ms, ${processorMs.toFixed(0)} ms of a processor`;
    console.log(`gateway ${index} lists ${listed} sandboxes, ${findings} findings against the cluster: ${wall}`);
    if (listed !== total || findings > 0)
      problems.push(`gateway ${index} lists ${listed} of ${total}, ${findings} findings`);
  }
  return {
    pods: total,
    ...{ residentBytes: rest.residentBytes, restProcessorMs: rest.processorMs },
    listProcessorMs: Math.max(...audited.map(({ processorMs }) => processorMs)),
    listMs: Math.max(...audited.map(({ ms }) => ms)),
  };
}

async function audit(gateway: Gateway): Promise<Audited> {
  const before = await gateway.cost();
  const startedAt = performance.now();
  const findings = await gateway.audit();
  const ms = performance.now() - startedAt;
  const { processorMs } = await gateway.cost();
  return { findings, listed: await gateway.listed(), ms, processorMs: processorMs - before.processorMs };
}

/** So many creates a second at all gateways together. */
async function under(gateways: readonly Gateway[]): Promise<void> {
  const [perSecond, seconds] = [Number(values["per-second"]), Number(values["burst-seconds"])];
  const count = Math.ceil((perSecond * seconds) / gateways.length);
  const order = { count, perSecond: perSecond / gateways.length, atOnce: 200 } as const;
  let created: readonly Created[] = [];
  await during(gateways, seconds * 1_000, async () => {
    created = await Promise.all(gateways.map((one, index) => one.create({ ...order, prefix: `burst-${index}-` })));
  });
  for (const [index, { done, seconds: took, refusals, p50Ms, p99Ms }] of created.entries()) {
    console.log(
      `gateway ${index}: ${(done / took).toFixed(1)} creates a second, p50 ${p50Ms} ms, p99 ${p99Ms} ms${told(refusals)}`,
    );
    if (done < count) problems.push(`gateway ${index} failed ${count - done} of ${count} creates`);
  }
}

/** What it costs while `act` runs. Prints each gateway's, and returns the larger. */
async function during(gateways: readonly Gateway[], expectedMs: number, act: () => Promise<void>) {
  const before = await Promise.all(gateways.map((gateway) => gateway.cost()));
  const startedAt = performance.now();
  await act();
  const ms = performance.now() - startedAt;
  const after = await Promise.all(gateways.map((gateway) => gateway.cost()));
  let largest = { residentBytes: 0, processorMs: 0 };
  for (const [index, now] of after.entries()) {
    const then = before[index] ?? now;
    const processorMs = ((now.processorMs - then.processorMs) / ms) * expectedMs;
    const rates = Object.entries(now.requests).flatMap(([name, count]) => {
      const rate = ((count - (then.requests[name] ?? 0)) / ms) * 1_000;
      return rate === 0 ? [] : [`${name} ${rate.toFixed(2)}`];
    });
    const memory = `${(now.residentBytes / MIB).toFixed(0)} MB resident, ${(now.heapBytes / MIB).toFixed(0)} MB heap`;
    const share = `${((processorMs / expectedMs) * 100).toFixed(1)} % of a processor`;
    console.log(
      `gateway ${index} over ${(ms / 1_000).toFixed(0)} s: ${memory}, ${share}; requests a second: ${rates.join(", ") || "none"}`,
    );
    if (now.residentBytes > MEMORY_MAX_BYTES)
      problems.push(`gateway ${index} has ${(now.residentBytes / MIB).toFixed(0)} MB`);
    largest = {
      residentBytes: Math.max(largest.residentBytes, now.residentBytes),
      processorMs: Math.max(largest.processorMs, processorMs),
    };
  }
  return largest;
}

function judge(few: Figures, all: Figures): void {
  const linear = all.pods / few.pods;
  for (const [name, key] of [
    ["processor at rest", "restProcessorMs"],
    ["processor of a consistent list", "listProcessorMs"],
    ["time of a consistent list", "listMs"],
    ["memory", "residentBytes"],
  ] as const) {
    const growth = all[key] / few[key] / linear;
    console.log(`${name}: ${growth.toFixed(2)} of linear from ${few.pods} to ${all.pods} pods`);
    if (growth > GROWTH_MAX) problems.push(`${name} grows by ${growth.toFixed(2)} of linear`);
  }
}

/** Pods and their finalizers: nothing runs on a fake node. */
async function removeAll({ api }: Cluster): Promise<void> {
  const never = new AbortController().signal;
  const { items } = await api.list("pods", {}, never);
  await Promise.all(
    items.map(async ({ metadata: { name, uid, finalizers } }) => {
      await api.remove("pods", name, { uid, gracePeriodSeconds: 0 }, never);
      if (finalizers.length > 0) await api.patch("pods", name, [{ op: "remove", path: "/metadata/finalizers" }], never);
    }),
  );
}

function told(refusals: Readonly<Record<string, number>>): string {
  const all = Object.entries(refusals).map(([code, count]) => `${code} ${count}`);
  return all.length === 0 ? "" : `; refused and retried: ${all.join(", ")}`;
}
