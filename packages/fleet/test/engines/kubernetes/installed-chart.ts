/**
 * The chart, installed on the cluster of `tests/cluster` with a Redis server of this machine as its store. Two gateways serve the
 * same threads; the claim of their workspaces is the chart's own.
 */

import { execFile, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { SandlotClient } from "@sandlot/client";
import { type ApiClient, openApi } from "../../../src/backends/kubernetes/api/client.ts";
import { systemWorld } from "../../../src/world/system-world.ts";
import { CLUSTER, KUBE_BIN, openVolumes } from "./kubernetes-harness.ts";

const CHART = fileURLToPath(new URL("../../../../../deploy/helm/sandlot", import.meta.url));
const NEVER = new AbortController().signal;
/** An address of this machine that pods reach: that of the first node. */
export const HOST = "10.250.0.1";
const run = promisify(execFile);

export interface InstalledChart {
  readonly namespace: string;
  readonly api: ApiClient;
  readonly client: SandlotClient;
  readonly url: string;
  /** A new key of the gateways. */
  makeKey(scope: "operator" | "platform"): Promise<string>;
  helm(...args: string[]): Promise<string>;
  kubectl(...args: string[]): Promise<string>;
  /** Everything of the release is removed. The namespace stays. */
  uninstall(): Promise<void>;
  dispose(): Promise<void>;
}

/** `redis`: a server of this machine is the store; otherwise the chart's own SQLite. */
export async function installChart(values: object, stored: "redis" | "sqlite"): Promise<InstalledChart> {
  const world = systemWorld();
  const namespace = `installed-${world.randomHex(3)}`;
  const folder = mkdtempSync(join(tmpdir(), "sandlot-installed-"));
  const env = {
    ...process.env,
    KUBECONFIG: CLUSTER ?? "",
    HELM_CACHE_HOME: folder,
    HELM_CONFIG_HOME: folder,
    HELM_DATA_HOME: folder,
  };
  const program = async (name: string, args: readonly string[]) =>
    (await run(join(KUBE_BIN, name), ["--namespace", namespace, ...args], { env, maxBuffer: 16 * 1024 * 1024 })).stdout;
  const helm = (...args: string[]) => program("helm", args);
  const kubectl = (...args: string[]) => program("kubectl", args);
  openVolumes();
  const store = stored === "redis" ? await startRedis(folder) : null;
  const api = await openApi({ kubeconfig: CLUSTER, context: null, namespace }, world);
  const dispose = async () => {
    await kubectl("delete", "namespace", namespace, "--wait=false").catch(() => "");
    api.close();
    store?.end();
    rmSync(folder, { recursive: true, force: true });
  };
  try {
    await kubectl("create", "namespace", namespace);
    await kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted");
    const shared =
      store === null
        ? {}
        : { store: { type: "redis", url: `redis://${HOST}:${store.port}/0`, passwordSecret: { name: "store" } } };
    if (store !== null)
      await kubectl("create", "secret", "generic", "store", `--from-literal=password=${store.password}`);
    const file = join(folder, "values.json");
    writeFileSync(file, JSON.stringify({ ...shared, ...values }));
    await helm("install", "sandlot", CHART, "--values", file, "--wait", "--timeout", "240s");
    const makeKey = async (scope: string) => {
      const inside = ["sandlot", "keys", "create", "--scope", scope, "--json"];
      return (JSON.parse(await kubectl("exec", "deployment/sandlot", "--", ...inside)) as { key: string }).key;
    };
    const service = await api.get("services", "sandlot", NEVER);
    const { clusterIP } = (service as unknown as { spec: { clusterIP: string } }).spec;
    const url = `http://${clusterIP}:8750`;
    const client = new SandlotClient({ url, apiKey: await makeKey("operator") });
    const uninstall = async () => {
      try {
        await helm("uninstall", "sandlot", "--wait", "--timeout", "300s");
      } catch (error) {
        throw new Error(`${error}\n${await kubectl("logs", "job/sandlot-let-go", "--tail=20").catch(String)}`);
      }
    };
    return { namespace, api, client, url, makeKey, helm, kubectl, uninstall, dispose };
  } catch (error) {
    const said = await kubectl("describe", "pods").catch(() => "");
    const logs = await kubectl("logs", "deployment/sandlot", "--tail=30").catch(() => "");
    await helm("uninstall", "sandlot", "--no-hooks").catch(() => "");
    await dispose();
    throw new Error(`the chart was not installed: ${error}\n${logs}\n${said.slice(-4_000)}`);
  }
}

export { CHART };

interface Redis {
  readonly port: number;
  readonly password: string;
  end(): void;
}

/** As `docs/stores` asks for it: every commit is on the disk before it is answered. */
async function startRedis(folder: string): Promise<Redis> {
  const port = await freePort();
  const password = systemWorld().randomHex(16);
  const args = [
    ...["--bind", HOST, "--port", String(port), "--requirepass", password, "--dir", folder, "--save", ""],
    ...["--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction"],
  ];
  const child = spawn("redis-server", args, { stdio: "ignore" });
  const ended = new Promise<never>((_resolve, reject) => {
    child.once("error", reject);
    child.once("exit", (code) => reject(new Error(`redis-server ended with ${code}`)));
  });
  ended.catch(() => {});
  process.once("exit", () => child.kill("SIGKILL"));
  await Promise.race([ended, sleep(1_000)]);
  return { port, password, end: () => void child.kill("SIGKILL") };
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen({ host: HOST, port: 0 }, resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  return typeof address === "object" && address !== null ? address.port : 0;
}
