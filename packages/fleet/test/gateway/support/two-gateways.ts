/**
 * Two gateways on two hosts that share one store in memory: each has its own home, clock identity and connection to the
 * store. With `engines: 2` each also has an engine of its own.
 */

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { assembleFleet } from "../../../src/assemble-fleet.ts";
import { createMemoryBackend } from "../../../src/backends/memory/backend.ts";
import { MemoryEngine } from "../../../src/backends/memory/engine.ts";
import type { FleetConfig } from "../../../src/config/fleet-config.ts";
import type { GatewayConfig } from "../../../src/config/gateway-settings.ts";
import { resolveSettings } from "../../../src/config/resolve-settings.ts";
import type { Fleet } from "../../../src/fleet.ts";
import { readOperatorKey } from "../../../src/gateway/keys/operator-key.ts";
import { type Gateway, startGateway } from "../../../src/gateway/start-gateway.ts";
import { MemoryEntries } from "../../../src/store/memory/memory-entries.ts";
import { MemoryStore, newMemoryTables } from "../../../src/store/memory/memory-store.ts";
import { systemWorld } from "../../../src/world/system-world.ts";
import type { Timer, World } from "../../../src/world/world.ts";
import { Caller } from "./stage.ts";

export interface Host {
  readonly home: string;
  readonly world: HostWorld;
  readonly fleet: Fleet;
  readonly gateway: Gateway;
  readonly operator: Caller;
  /** Ends the process as SIGKILL would: its timers stop, its connections break, its store hears nothing more. */
  kill(): Promise<void>;
}

export interface TwoGateways {
  readonly a: Host;
  readonly b: Host;
  readonly entries: MemoryEntries;
  /** A key made at gateway A. */
  user(name: string): Promise<string>;
  done(): Promise<void>;
}

export interface TwoGatewaysOptions {
  readonly settings?: GatewayConfig;
  readonly fleet?: FleetConfig;
}

export async function openTwoGateways({ settings, fleet }: TwoGatewaysOptions = {}): Promise<TwoGateways> {
  const tables = newMemoryTables(systemWorld());
  const entries = new MemoryEntries();
  const engine = new MemoryEngine({ world: systemWorld() });
  const open = async (name: string): Promise<Host> => {
    const home = await mkdtemp(join(tmpdir(), `sandlot-host-${name}-`));
    const world = new HostWorld(name);
    const config: FleetConfig = { fleetId: "shared", backend: "memory", store: { type: "memory" } };
    const timing: FleetConfig = { housekeepingIntervalMs: 200, sessionLifetimeMs: 1_500 };
    const resolved = resolveSettings({ home, ...config, ...timing, ...fleet }, {});
    const store = new MemoryStore(tables, entries);
    const backend = createMemoryBackend({ fleetId: "shared", engine, world });
    const opened = await assembleFleet({ settings: resolved, world, store, backend });
    const gateway = await startGateway({ fleet: opened, home, world, entries, settings: { port: 0, ...settings } });
    return {
      ...{ home, world, fleet: opened, gateway },
      operator: new Caller(gateway.url, (await readOperatorKey(home)) ?? ""),
      async kill() {
        world.stop();
        await store.close();
        await gateway.close().catch(() => undefined);
      },
    };
  };
  const [a, b] = [await open("a"), await open("b")];
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
    },
  };
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
