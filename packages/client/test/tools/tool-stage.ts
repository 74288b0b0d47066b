/**
 * A fleet for tests of tools and adapters, on any backend or behind a gateway, with helpers for such tests: the holders
 * of each sandbox, and a sandbox that dies at a bad moment. Closing it fails when a lease was left behind.
 */

import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { FleetEvent } from "@sandlot/contract";
import { expect } from "vitest";
import { MemoryEngine } from "../../../fleet/src/backends/memory/engine.ts";
import { startGateway } from "../../../fleet/src/gateway/start-gateway.ts";
import { type Fleet, type FleetConfig, openFleet } from "../../../fleet/src/index.ts";
import { systemWorld } from "../../../fleet/src/world/system-world.ts";
import type { TestEngine } from "../../../fleet/test/backends/docker/docker-harness.ts";
import { SandlotClient } from "../../src/index.ts";
import type { SandboxSource } from "../../src/tools/index.ts";

export interface ToolStage extends AsyncDisposable {
  readonly home: string;
  /** The observable parts. */
  readonly fleet: Fleet;
  /** The source of tools and adapters: the fleet itself, or the client of a gateway in front of it. */
  readonly source: SandboxSource;
  /** The same for one of several: behind a gateway they use four clients, which know nothing of one another. */
  sourceOf(user: number): SandboxSource;
  readonly events: readonly FleetEvent[];
  /** Current leases. */
  leaseCount(): number;
  /** The sandbox of a thread dies by itself. */
  kill(thread: string, user?: string): Promise<void>;
  /** Fails when any instance still has a lease. */
  expectNoLease(): Promise<void>;
}

/** `gateway`: a gateway's client, over a fleet on the memory backend. */
export type StageKind = "memory" | "gateway" | "local" | { readonly docker: TestEngine };

export async function openToolStage(kind: StageKind = "memory"): Promise<ToolStage> {
  const home = mkdtempSync(join(tmpdir(), "sandlot-tools-"));
  const fleet = await openFleet({ home, store: { type: "memory" }, ...backendOf(kind) }).catch((error: unknown) => {
    rmSync(home, { recursive: true, force: true });
    throw error;
  });
  const events: FleetEvent[] = [];
  fleet.events.on((event) => events.push(event));
  const gateway = kind === "gateway" ? await openGateway(fleet, home) : null;
  const count = (type: FleetEvent["type"]) => events.filter((event) => event.type === type).length;
  const leaseCount = () => count("lease-acquired") - count("lease-released");
  const leases = async () => ({
    counted: leaseCount(),
    listed: (await fleet.list()).filter(({ state }) => state === "leased").map(({ thread }) => thread),
  });
  return {
    ...{ home, fleet, events, leaseCount },
    source: gateway?.clients[0] ?? fleet,
    sourceOf: (user) => gateway?.clients[user % CLIENTS] ?? fleet,
    async kill(thread, user = "default") {
      const record = (await fleet.list()).find((line) => line.thread === thread && line.user === user);
      if (record === undefined) throw new Error(`There is no sandbox of thread ${thread}.`);
      await killSandbox(kind, home, record.sandboxId);
    },
    async expectNoLease() {
      expect(await leases(), "leases that are still held").toEqual({ counted: 0, listed: [] });
    },
    async [Symbol.asyncDispose]() {
      const left = leaseCount();
      await gateway?.close();
      await fleet.close({ destroy: true, drainMs: 0 });
      rmSync(home, { recursive: true, force: true });
      expect(left, "leases left behind").toBe(0);
    },
  };
}

const MIB = 1024 * 1024;
const CLIENTS = 4;

function backendOf(kind: StageKind): FleetConfig {
  if (typeof kind === "string") return { backend: kind === "local" ? "local" : "memory" };
  const { host, image } = kind.docker;
  const docker = { host, image, tmpBytes: 64 * MIB, homeBytes: 64 * MIB };
  return { backend: "docker", docker, pool: { default: 1 }, limits: { max: 12 } };
}

async function openGateway(fleet: Fleet, home: string) {
  const gateway = await startGateway({ fleet, home, world: systemWorld(), settings: { port: 0, keepLeasesMs: 0 } });
  const { key } = await gateway.keys.create({ scope: "user", user: "default" });
  const clients = Array.from({ length: CLIENTS }, () => new SandlotClient({ url: gateway.url, apiKey: key }));
  return { clients, close: () => gateway.close() };
}

function killSandbox(kind: StageKind, home: string, sandboxId: string): Promise<void> | void {
  if (typeof kind === "object") return killContainer(kind.docker, sandboxId);
  return kind === "local" ? killLocal(home, sandboxId) : killInMemory(home, sandboxId);
}

function killInMemory(home: string, sandboxId: string): void {
  const engine = MemoryEngine.shared(home);
  const object = engine.objects().find(({ labels }) => labels.sandboxId === sandboxId);
  if (object === undefined) throw new Error(`There is no sandbox ${sandboxId}.`);
  engine.kill(object.ref);
}

async function killContainer({ docker }: TestEngine, sandboxId: string): Promise<void> {
  const [container] = await docker.listContainers({ filters: { label: [`sandlot.sandbox=${sandboxId}`] } });
  if (container === undefined) throw new Error(`There is no container of ${sandboxId}.`);
  await docker.getContainer(container.Id).kill();
}

/** Its first process, and with it all others. Resolves when it is dead. */
async function killLocal(home: string, sandboxId: string): Promise<void> {
  const [fleetId = ""] = readdirSync(home).filter((name) => name.startsWith("fleet-"));
  const objects = join(home, fleetId, "objects");
  const object = readdirSync(objects).find((name) => name.startsWith(`${sandboxId}-`));
  if (object === undefined) throw new Error(`There is no sandbox ${sandboxId}.`);
  const { init } = JSON.parse(readFileSync(join(objects, object, "process.json"), "utf8")) as { init: { pid: number } };
  process.kill(init.pid, "SIGKILL");
  while (existsSync(`/proc/${init.pid}`)) await new Promise((resolve) => setTimeout(resolve, 5));
}
