/**
 * The chart on a real cluster, from the first command to the last: installed in a namespace that enforces `restricted`, used
 * through two gateways, upgraded under load, tested by `helm test`, and removed with nothing left but the volume.
 */

import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import type { SandlotClient } from "@sandlot/client";
import { expect } from "vitest";
import { onCluster } from "./cluster-tools.ts";
import { CHART, HOST, type InstalledChart, installChart } from "./installed-chart.ts";

const MIB = 1024 * 1024;
const JOURNAL = "/mnt/user-data/workspace/journal";
const CLIENTS = 3;
const INSTALLED_MS = 600_000;

onCluster(
  "installed, used by two gateways, upgraded under load, tested, and removed",
  null,
  async () => {
    const web = createServer((_request, response) => response.end("from outside"));
    await new Promise<void>((resolve) => web.listen(0, HOST, resolve));
    const { port } = web.address() as AddressInfo;
    const chart = await installChart(
      {
        images: { gateway: "sandlot/gateway:1", sandbox: "localhost/sandlot-test:1", pullPolicy: "Never" },
        gateway: { replicas: 2, terminationGracePeriodSeconds: 60 },
        egress: { replicas: 1 },
        workspaces: { mode: "claim", size: "1Gi" },
        kubernetes: { memoryBytes: 512 * MIB, requestMemoryBytes: 32 * MIB, requestCpuCount: 0.01, tmpBytes: 64 * MIB },
        config: {
          pool: { default: 1 },
          blueprints: {
            default: {},
            net: { network: { mode: "allowlist", allow: [{ host: HOST, ports: [port], addresses: [HOST] }] } },
          },
        },
      },
      "redis",
    );
    try {
      await reachesWhatItMay(chart, port);
      await upgradedUnderLoad(chart);
      expect(await chart.helm("test", "sandlot", "--timeout", "120s")).toContain("Succeeded");
      await chart.uninstall();
      await nothingIsLeft(chart);
    } finally {
      web.close();
      await chart.dispose();
    }
  },
  INSTALLED_MS,
);

/** The way out is the egress proxy; what it refuses comes back as an event of the gateway. */
async function reachesWhatItMay({ client }: InstalledChart, port: number): Promise<void> {
  await using lease = await client.acquire({ thread: "net", blueprint: "net" });
  const get = (url: string) =>
    `/opt/sandlot/d -e 'const p=new URL(process.env.HTTP_PROXY);require("http").get({host:p.hostname,port:p.port,path:"${url}",headers:{host:new URL("${url}").host}},(r)=>{r.setEncoding("utf8");let t="";r.on("data",(d)=>t+=d);r.on("end",()=>console.log(r.statusCode,t.trim()))}).on("error",(e)=>console.log(e.code))'`;
  const seen: { type: string; host?: string }[] = [];
  const stop = new AbortController();
  const following = (async () => {
    for await (const event of client.events({ signal: stop.signal })) if (event !== null) seen.push(event);
  })().catch(() => {});
  expect((await lease.sandbox.exec(get(`http://${HOST}:${port}/`))).stdout.trim()).toBe("200 from outside");
  expect((await lease.sandbox.exec(get("http://refused.example/"))).stdout).toMatch(/^403 /);
  const direct = `/opt/sandlot/d -e 'const s=require("net").connect(${port},"${HOST}");setTimeout(()=>{console.log("cut");process.exit()},2000);s.on("connect",()=>{console.log("reached");process.exit()});s.on("error",()=>{console.log("cut");process.exit()})'`;
  expect((await lease.sandbox.exec(direct)).stdout.trim()).toBe("cut");
  await expect
    .poll(() => seen.filter(({ type }) => type === "egress-refused").map(({ host }) => host))
    .toContain("refused.example");
  stop.abort();
  await following;
}

/** Every client appends lines and counts what was acknowledged; a long command and its output go on through the roll. */
async function upgradedUnderLoad({ client, helm, kubectl, api }: InstalledChart): Promise<void> {
  const names = async () =>
    (await kubectl("get", "pods", "-l", "sandlot.dev/role=gateway", "-o", "name")).trim().split("\n");
  const before = await names();
  expect(before).toHaveLength(2);
  const ending = new AbortController();
  const writers = Array.from({ length: CLIENTS }, (_, index) => writer(client, `load-${index}`, ending.signal));
  const held = await client.acquire({ thread: "held", purpose: "a lease through the roll", ttlMs: 120_000 });
  const counting = held.sandbox.exec("for i in $(seq 1 300); do echo $i; sleep 0.1; done", { timeoutMs: 240_000 });
  await sleep(2_000);
  await helm(
    "upgrade",
    "sandlot",
    CHART,
    "--reuse-values",
    "--set-string",
    "gateway.podAnnotations.round=2",
    "--wait",
    "--timeout",
    "240s",
  );
  // Helm waits for the new ones; the old ones drain, and the load goes on until they have left.
  await expect
    .poll(async () => (await names()).filter((name) => before.includes(name)), { interval: 1_000, timeout: 120_000 })
    .toEqual([]);
  await sleep(2_000);
  ending.abort();
  expect((await counting).stdout).toBe(`${Array.from({ length: 300 }, (_, index) => index + 1).join("\n")}\n`);
  expect((await held.sandbox.exec("echo still here")).stdout).toBe("still here\n");
  await held.release();
  for (const { thread, acknowledged, problems } of await Promise.all(writers)) {
    expect(problems).toEqual([]);
    expect(acknowledged.length).toBeGreaterThan(5);
    await using lease = await client.acquire({ thread });
    const lines = (await lease.sandbox.files.readText(JOURNAL)).split("\n");
    const counts = acknowledged.map((line) => lines.filter((one) => one === line).length);
    expect(counts.filter((count) => count !== 1)).toEqual([]);
  }
  expect(api.namespace).toMatch(/^installed-/);
}

async function writer(client: SandlotClient, thread: string, ending: AbortSignal) {
  const acknowledged: string[] = [];
  const problems: string[] = [];
  for (let round = 0; !ending.aborted; round++) {
    const line = `${thread}-${round}`;
    try {
      await using lease = await client.acquire({ thread, ttlMs: 60_000 });
      const { exitCode } = await lease.sandbox.exec(`echo ${line} >> ${JOURNAL}`);
      if (exitCode === 0) acknowledged.push(line);
    } catch (error) {
      problems.push(`${line}: ${error}`);
    }
    await sleep(100);
  }
  return { thread, acknowledged, problems };
}

const KINDS =
  "pods,jobs,deployments,services,configmaps,secrets,serviceaccounts,roles,rolebindings,networkpolicies,poddisruptionbudgets";
/** Of the namespace itself, and of the test. */
const NOT_OURS = ["configmap/kube-root-ca.crt", "serviceaccount/default", "secret/store"];

async function nothingIsLeft({ kubectl }: InstalledChart): Promise<void> {
  const left = (await kubectl("get", KINDS, "-o", "name")).trim().split("\n");
  expect(left.filter((name) => name !== "" && !NOT_OURS.includes(name))).toEqual([]);
  expect((await kubectl("get", "persistentvolumeclaims", "-o", "name")).trim()).toBe(
    "persistentvolumeclaim/sandlot-workspaces",
  );
}
