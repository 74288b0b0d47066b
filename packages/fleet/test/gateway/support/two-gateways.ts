/**
 * Two gateways on two hosts that share one store in memory: each has its own home, clock identity and connection to the
 * store. With `engines: 2` each also has an engine of its own.
 */

import { mkdtemp, rm } from "node:fs/promises";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Epoch } from "@sandlot/contract";
import { assembleFleet } from "../../../src/assemble-fleet.ts";
import type { Backend } from "../../../src/backend/backend.ts";
import type { HostWorkspaces } from "../../../src/backend/host-workspaces.ts";
import { createMemoryBackend } from "../../../src/backends/memory/backend.ts";
import { MemoryEngine } from "../../../src/backends/memory/engine.ts";
import type { FleetConfig } from "../../../src/config/fleet-config.ts";
import type { GatewayConfig } from "../../../src/config/gateway-settings.ts";
import { resolveSettings } from "../../../src/config/resolve-settings.ts";
import type { Fleet, SharedEntries } from "../../../src/fleet.ts";
import { readOperatorKey } from "../../../src/gateway/keys/operator-key.ts";
import { type Gateway, startGateway } from "../../../src/gateway/start-gateway.ts";
import { StoreSteps } from "../../../src/observe/store-steps.ts";
import { MemoryRowServer } from "../../../src/store/rows/memory-row-server.ts";
import { MemoryRows } from "../../../src/store/rows/memory-rows.ts";
import { RowStore } from "../../../src/store/rows/row-store.ts";
import type { Store } from "../../../src/store/store.ts";
import { systemWorld } from "../../../src/world/system-world.ts";
import type { Timer, World } from "../../../src/world/world.ts";
import { Caller } from "./stage.ts";

/** Short, so that a dead peer is found soon. A store that is a server needs more: its steps get a third of this. */
export const LIFETIME_MS = 1_500;

export interface Host {
  readonly home: string;
  readonly world: HostWorld;
  readonly fleet: Fleet;
  readonly gateway: Gateway;
  readonly operator: Caller;
  /** The engine that its fleet reaches. */
  readonly engine: string;
  /** Resolves when the store's recovery of that engine is over. */
  recovered(): Promise<void>;
  /** Ends the process as SIGKILL would: its timers stop, its connections break, its store hears nothing more. */
  kill(): Promise<void>;
}

export interface TwoGateways {
  readonly a: Host;
  readonly b: Host;
  /** Of a connection of their own. */
  readonly entries: SharedEntries;
  /** A key made at gateway A. */
  user(name: string): Promise<string>;
  done(): Promise<void>;
}

export interface TwoGatewaysOptions {
  readonly settings?: GatewayConfig;
  readonly fleet?: FleetConfig;
  /** How many engines the two hosts have together. Default 1, which both reach. */
  readonly engines?: 1 | 2;
  /** Whether they say where they are. Default true. */
  readonly advertised?: boolean;
  /** Extends the backend of each host. */
  readonly enrich?: (backend: Backend, host: string) => Backend;
  /** Opens a connection to the store. Default: a row store in memory. */
  readonly openStore?: (world: World, timeoutMs: number) => Promise<Store>;
  /** Of the sessions. */
  readonly lifetimeMs?: number;
  /** Workspaces on each host's disk. */
  readonly hostWorkspaces?: (host: string) => HostWorkspaces;
}

export async function openTwoGateways(options: TwoGatewaysOptions = {}): Promise<TwoGateways> {
  const { settings, fleet, engines = 1, advertised = true, enrich, hostWorkspaces } = options;
  const lifetimeMs = options.lifetimeMs ?? LIFETIME_MS;
  const openStore = options.openStore ?? inMemory();
  const common = new MemoryEngine({ world: systemWorld() });
  const open = async (name: string): Promise<Host> => {
    const engine = engines === 1 ? common : new MemoryEngine({ world: systemWorld() });
    const port = await freePort();
    const address = advertised ? { address: `http://127.0.0.1:${port}` } : {};
    const home = await mkdtemp(join(tmpdir(), `sandlot-host-${name}-`));
    const world = new HostWorld(name);
    const config: FleetConfig = { fleetId: "shared", backend: "memory", store: { type: "memory" } };
    const timing: FleetConfig = { housekeepingIntervalMs: 200, sessionLifetimeMs: lifetimeMs };
    const resolved = resolveSettings({ home, ...config, ...timing, ...fleet }, {});
    const store = await openStore(world, lifetimeMs / 3);
    const plain = createMemoryBackend({ fleetId: resolved.fleetId, engine, world });
    const backend = enrich === undefined ? plain : enrich(plain, name);
    const opened = await assembleFleet({ settings: resolved, world, store, backend, ...address });
    const onDisk = hostWorkspaces === undefined ? {} : { hostWorkspaces: hostWorkspaces(name) };
    const shared = { entries: store.entries, storeSteps: new StoreSteps(store, world) };
    const parts = { fleet: opened, home, world, ...shared, ...onDisk };
    const advertise = advertised ? { advertise: `http://127.0.0.1:${port}` } : {};
    const gateway = await startGateway({ ...parts, settings: { port, ...advertise, ...settings } });
    const recovered = async () => {
      for (let turn = 0; (await store.meta(backend.engineId)).recovering; turn += 1) {
        if (turn > 3_000) throw new Error("the store is still recovering after a minute");
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      // Its next beat tells the fleet.
      await new Promise((resolve) => setTimeout(resolve, lifetimeMs / 2));
    };
    return {
      ...{ home, world, fleet: opened, gateway, engine: backend.engineId, recovered },
      operator: new Caller(gateway.url, (await readOperatorKey(home)) ?? ""),
      async kill() {
        world.stop();
        await store.close();
        await gateway.close().catch(() => undefined);
      },
    };
  };
  const own = await openStore(systemWorld(), 5_000);
  const { entries } = own;
  if (entries === null) throw new Error("a store that hosts share has entries");
  const [a, b] = [await open("a"), await open("b")];
  // Every store begins in recovery: an instance of the time before could still come.
  await Promise.all([a.recovered(), b.recovered()]);
  return {
    ...{ a, b, entries },
    user: async (user) => (await a.gateway.keys.create({ scope: "user", user })).key,
    async done() {
      for (const { gateway, fleet: opened, home, world } of [a, b]) {
        world.goOn();
        await gateway.close();
        await opened.close({ destroy: true, drainMs: 0 }).catch(() => undefined);
        await rm(home, { recursive: true, force: true });
      }
      await own.close();
    },
  };
}

function inMemory(): (world: World, timeoutMs: number) => Promise<Store> {
  const clock = systemWorld();
  const rows = new MemoryRows(
    () => clock.wallMs(),
    () => clock.randomHex(16) as Epoch,
  );
  return async (world, timeoutMs) => new RowStore({ server: new MemoryRowServer(rows), world, timeoutMs });
}

/** A port that is free now. Its gateway advertises it before it listens. */
async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** The world of one process on one host. Processes of another host are unknown to it. */
export class HostWorld implements World {
  readonly identity: World["identity"];
  readonly #system = systemWorld();
  #stopped = false;

  constructor(host: string) {
    this.identity = { bootId: `host-${host}`, pidNamespace: "pid:[1]", pid: process.pid, startTime: "1" };
  }

  wallMs(): number {
    return this.#system.wallMs();
  }
  monotonicMs(): number {
    return this.#system.monotonicMs();
  }
  timer(delayMs: number, fire: () => void, options?: { readonly background?: boolean }): Timer {
    return this.#system.timer(delayMs, () => this.#stopped || fire(), options);
  }
  random(): number {
    return this.#system.random();
  }
  randomHex(bytes: number): string {
    return this.#system.randomHex(bytes);
  }
  processLiveness({ bootId }: World["identity"]): "alive" | "unknown" {
    return bootId === this.identity.bootId && !this.#stopped ? "alive" : "unknown";
  }

  stop(): void {
    this.#stopped = true;
  }
  goOn(): void {
    this.#stopped = false;
  }
}
