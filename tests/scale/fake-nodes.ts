/**
 * Nodes of kwok: objects whose pods are called Running at once, and run nothing. Their addresses lead to this machine,
 * where one stub answers in place of every daemon, with the key of the pod that is asked for.
 */

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import type { Socket } from "node:net";
import { join } from "node:path";
import { createServer, type Server as TlsServer } from "node:tls";
import { PSK_TLS } from "@sandlot/contract";
import { DAEMON_PORT } from "../../packages/fleet/src/backends/kubernetes/settings.ts";
import { FleetKeys } from "../../packages/fleet/src/sandboxd/fleet-keys.ts";
import { type Cluster, until } from "../chaos/kubernetes/cluster.ts";
import { createDouble } from "../hostile-daemon/double/double.ts";

const NEVER = new AbortController().signal;
/** Beside the networks of `up.sh`. */
const POD_NETWORK = "10.245.0.0/16";
const PODS_PER_NODE = 110;
const READY_MS = 60_000;
const FAKE = { key: "sandlot.dev/fake", label: "sandlot.dev/fake-nodes" };

export class FakeNodes {
  readonly #cluster: Cluster;
  readonly #mark: string;
  #kwok: ChildProcess | null = null;
  #stub: TlsServer | null = null;
  #names: readonly string[] = [];
  answeredCount = 0;

  constructor(cluster: Cluster) {
    this.#cluster = cluster;
    this.#mark = cluster.namespace;
  }

  get pod(): object {
    return {
      nodeSelector: { [FAKE.label]: this.#mark },
      tolerations: [{ key: FAKE.key, operator: "Exists" }],
    };
  }

  async start(podCount: number): Promise<void> {
    const { api, directory, kubeconfig } = this.#cluster;
    const program = join(directory, "..", "bin", "kwok");
    if (!existsSync(program)) throw new Error("kwok is not built: tests/cluster/build.sh addons");
    const selector = `${FAKE.label}=${this.#mark}`;
    this.#kwok = spawn(
      program,
      [
        ...["--kubeconfig", kubeconfig, "--manage-all-nodes=false", `--manage-nodes-with-label-selector=${selector}`],
        ...["--node-lease-duration-seconds=40", "--cidr=10.245.0.1/16", "--server-address=127.0.0.1:10247"],
      ],
      { stdio: "ignore" },
    );
    this.#names = Array.from({ length: Math.ceil(podCount / PODS_PER_NODE) }, (_, index) => `${this.#mark}-${index}`);
    const room = { cpu: "1000", memory: "1000Gi", pods: String(PODS_PER_NODE), "ephemeral-storage": "10Ti" };
    for (const name of this.#names) {
      const metadata = { name, labels: { [FAKE.label]: this.#mark } };
      const spec = { taints: [{ key: FAKE.key, effect: "NoSchedule" }] };
      const status = { allocatable: room, capacity: room };
      await api.create("nodes", { apiVersion: "v1", kind: "Node", metadata, spec, status }, NEVER);
    }
    await until("the fake nodes are ready", async () => ((await this.#areReady()) ? true : null), READY_MS);
    ip("add");
  }

  /** Answers for every daemon of the fleet. */
  async answer(fleetId: string): Promise<void> {
    const secret = await this.#cluster.api.get("secrets", `sandlot-key-${fleetId}`, NEVER);
    const { data } = secret as unknown as { data: { keys: string } };
    const keys = FleetKeys.parse(Buffer.from(data.keys, "base64").toString("utf8"), "the fleet's key");
    const double = createDouble({ onTaken: () => {} });
    const stub = createServer({
      ...PSK_TLS,
      pskCallback: (_socket, identity) => {
        const named = keys.named(identity);
        return named === null ? null : Buffer.from(named.psk.key, "hex");
      },
    });
    stub.on("connection", (socket: Socket) => {
      // The addresses of fake pods only, not those by which others reach this machine.
      if (!socket.localAddress?.includes("10.245.")) socket.destroy();
    });
    stub.on("secureConnection", (socket) => {
      this.answeredCount += 1;
      double.emit("connection", socket);
    });
    stub.on("tlsClientError", () => {});
    this.#stub = stub;
    await new Promise<void>((resolve) => stub.listen(DAEMON_PORT, "0.0.0.0", resolve));
  }

  async stop(): Promise<void> {
    const { api } = this.#cluster;
    this.#stub?.close();
    for (const name of this.#names) {
      const found = await api.get("nodes", name, NEVER);
      if (found !== null) await api.remove("nodes", name, { uid: found.metadata.uid }, NEVER);
    }
    this.#kwok?.kill();
    ip("del");
  }

  async #areReady(): Promise<boolean> {
    const { items } = await this.#cluster.api.list("nodes", { labelSelector: `${FAKE.label}=${this.#mark}` }, NEVER);
    const isReady = (node: object) =>
      (node as { status?: { conditions?: { type: string; status: string }[] } }).status?.conditions?.some(
        ({ type, status }) => type === "Ready" && status === "True",
      ) === true;
    return items.length === this.#names.length && items.every(isReady);
  }
}

/** Packets to the addresses of fake pods come to this machine. */
function ip(verb: "add" | "del"): void {
  spawnSync("ip", ["route", verb, "local", POD_NETWORK, "dev", "lo"], { stdio: "ignore" });
}
