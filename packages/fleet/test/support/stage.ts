/**
 * A stage: one engine, one store and one virtual time, on which instances of a fleet are opened, crashed and watched.
 */

import { mkdtempSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  type Epoch,
  type ErrorCode,
  type FleetEvent,
  type FleetEventType,
  type FleetId,
  isSandlotError,
  type SandlotError,
} from "@sandlot/contract";
import { afterEach } from "vitest";
import { assembleFleet } from "../../src/assemble-fleet.ts";
import type { Backend } from "../../src/backend/backend.ts";
import { createMemoryBackend } from "../../src/backends/memory/backend.ts";
import { MemoryEngine, type MemoryObjectView } from "../../src/backends/memory/engine.ts";
import type { FleetConfig } from "../../src/config/fleet-config.ts";
import { resolveSettings } from "../../src/config/resolve-settings.ts";
import type { Fleet } from "../../src/fleet.ts";
import { MemoryStore, newMemoryTables } from "../../src/store/memory/memory-store.ts";
import type { MemoryTables } from "../../src/store/memory/memory-tables.ts";
import type { SandboxRecord } from "../../src/store/record.ts";
import { MemoryRowServer } from "../../src/store/rows/memory-row-server.ts";
import { MemoryRows } from "../../src/store/rows/memory-rows.ts";
import type { RowServer } from "../../src/store/rows/row-server.ts";
import { RowStore } from "../../src/store/rows/row-store.ts";
import { openSqliteStore } from "../../src/store/sqlite/sqlite-store.ts";
import type { Store } from "../../src/store/store.ts";
import type { World } from "../../src/world/world.ts";
import { Attachments } from "./attachments.ts";
import { Interception } from "./interception.ts";
import { VirtualTime, type VirtualWorld } from "./virtual-time.ts";

export type StoreKind = "memory" | "sqlite" | "rows";

export interface Instance {
  readonly fleet: Fleet;
  readonly world: VirtualWorld;
  readonly backend: Interception<Backend>;
  readonly store: Interception<Store>;
  readonly attachments: Attachments;
  readonly events: FleetEvent[];
  /** The types of the events so far, without those that housekeeping may add at any time. */
  typesOf(...types: FleetEventType[]): readonly FleetEventType[];
  eventsOf<Type extends FleetEventType>(type: Type): readonly Extract<FleetEvent, { type: Type }>[];
  /** As `kill -9`. `seen`: others on this machine can detect that the process is gone. */
  crash(options?: { seen?: boolean }): void;
}

export class Stage {
  readonly time = new VirtualTime();
  readonly engineWorld = this.time.newWorld();
  readonly engine = new MemoryEngine({ world: this.engineWorld });
  readonly #openStore: (world: World) => Promise<Store>;
  readonly #loseStore: (world: World) => Promise<void>;
  readonly #config: FleetConfig;
  readonly #instances: Instance[] = [];
  readonly #crashed = new Set<Instance>();
  #eyes: Promise<Store> | null = null;

  constructor(
    config: FleetConfig,
    openStore: (world: World) => Promise<Store>,
    loseStore: (world: World) => Promise<void>,
  ) {
    this.#config = config;
    this.#openStore = openStore;
    this.#loseStore = loseStore;
  }

  /** The store loses everything, as when its file is replaced by an empty one. */
  loseStore(): Promise<void> {
    return this.#loseStore(this.engineWorld);
  }

  /** The engine of another host. */
  newEngine(): MemoryEngine {
    return new MemoryEngine({ world: this.engineWorld });
  }

  /** Opens an instance. `config` replaces the stage's settings, `host` the stage's engine. */
  async open(
    config: FleetConfig = {},
    prepare: (instance: Omit<Instance, "fleet">) => void = () => undefined,
    { engine = this.engine, address }: { readonly engine?: MemoryEngine; readonly address?: string } = {},
  ) {
    const world = this.time.newWorld();
    const settings = resolveSettings(
      { fleetId: "stage", backend: "memory", store: { type: "memory" }, ...this.#config, ...config },
      HOME,
    );
    const store = new Interception<Store>(await this.#openStore(world));
    const attachments = new Attachments();
    const inner = createMemoryBackend({ fleetId: settings.fleetId, engine, world });
    const backend = new Interception<Backend>(attachments.wrap(inner));
    const events: FleetEvent[] = [];
    const parts = {
      ...{ world, backend, store, attachments, events },
      typesOf: (...types: FleetEventType[]) => events.map(({ type }) => type).filter((type) => types.includes(type)),
      eventsOf: <Type extends FleetEventType>(type: Type) =>
        events.filter((event): event is Extract<FleetEvent, { type: Type }> => event.type === type),
      crash: ({ seen = false } = {}) => {
        world.stop();
        store.cut();
        backend.cut();
        if (seen) this.time.setLiveness(world.identity, "dead");
        this.#crashed.add(instance);
      },
    };
    prepare(parts);
    const open = { settings, world, store: store.proxy, backend: backend.proxy, ...(address && { address }) };
    const assembling = assembleFleet(open).then((opened) => {
      opened.events.on((event) => events.push(event));
      return opened;
    });
    const fleet = await this.time.until(assembling);
    const instance: Instance = { ...parts, fleet };
    this.#instances.push(instance);
    return instance;
  }

  /** The store's content, read past every interception. */
  async records(): Promise<readonly SandboxRecord[]> {
    return (await this.#look()).list();
  }

  async recordOf(thread: string, user = "default"): Promise<SandboxRecord | null> {
    return (await this.records()).find((record) => record.thread === thread && record.user === user) ?? null;
  }

  async #look(): Promise<Store> {
    this.#eyes ??= this.#openStore(this.engineWorld);
    return this.#eyes;
  }

  objects(fleetId = "stage"): readonly MemoryObjectView[] {
    return this.engine.objects().filter(({ labels }) => labels.fleet === (fleetId as FleetId));
  }

  /** The sandbox dies by itself. */
  killSandbox(sandboxId: string): void {
    const object = this.engine.objects().find(({ labels }) => labels.sandboxId === sandboxId);
    if (object === undefined) throw new Error(`The engine has no sandbox ${sandboxId}.`);
    this.engine.kill(object.ref);
  }

  settle(): Promise<void> {
    return this.time.settle();
  }

  advance(ms: number): Promise<void> {
    return this.time.advance(ms);
  }

  until<T>(promise: Promise<T>, patienceMs?: number): Promise<T> {
    return this.time.until(promise, patienceMs);
  }

  /** The error with which `promise` rejects, which must have this code. */
  async refusal<Code extends ErrorCode>(code: Code, promise: Promise<unknown>): Promise<SandlotError<Code>> {
    const error = await this.rejection(promise);
    if (isSandlotError(error, code)) return error;
    throw new Error(`Expected ${code}, got ${String(error)}`, { cause: error });
  }

  async rejection(promise: Promise<unknown>): Promise<unknown> {
    let value: unknown;
    try {
      value = await this.time.until(promise);
    } catch (error) {
      return error;
    }
    throw new Error(`It should have been refused, but it answered ${String(value)}.`);
  }

  async close(): Promise<void> {
    for (const instance of this.#instances) {
      instance.world.goOn();
      if (!this.#crashed.has(instance)) await this.time.until(instance.fleet.close());
    }
    await (await this.#eyes)?.close();
  }
}

const HOME = { SANDLOT_HOME: "/nonexistent/sandlot-stage" };
const cleanups: (() => Promise<void> | void)[] = [];

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

/** A stage over the memory store. `tables` are the store's tables, to empty it. `isShared`: for several engines. */
export function newStage(config: FleetConfig = {}, isShared = false): Stage & { readonly tables: MemoryTables } {
  const holder: { tables?: MemoryTables } = {};
  const open = async (world: World) => {
    holder.tables ??= newMemoryTables(world, isShared);
    return new MemoryStore(holder.tables);
  };
  const stage = new Stage(config, open, async () => holder.tables?.empty());
  cleanups.push(() => stage.close());
  return Object.defineProperty(stage, "tables", { get: () => holder.tables }) as Stage & { tables: MemoryTables };
}

export function newStageOn(kind: StoreKind, config: FleetConfig = {}): Stage {
  if (kind === "memory") return newStage(config);
  if (kind === "rows") return newStageOnRows(config).stage;
  const directory = mkdtempSync(join(tmpdir(), "sandlot-stage-"));
  const path = join(directory, "fleet.db");
  const stage = new Stage(
    config,
    (world) => openSqliteStore({ path, world }),
    async (world) => {
      const other = join(directory, "other.db");
      await (await openSqliteStore({ path: other, world })).close();
      renameSync(other, path);
    },
  );
  cleanups.push(() => rmSync(directory, { recursive: true, force: true }));
  cleanups.push(() => stage.close());
  return stage;
}

/** On a row store; `calls` names every call to its server so far. */
export function newStageOnRows(config: FleetConfig = {}): { readonly stage: Stage; readonly calls: string[] } {
  const calls: string[] = [];
  let rows: MemoryRows | null = null;
  const open = async (world: World): Promise<Store> => {
    rows ??= new MemoryRows(
      () => world.wallMs(),
      () => world.randomHex(16) as Epoch,
    );
    return new RowStore({ server: counted(new MemoryRowServer(rows), calls), world });
  };
  const stage = new Stage(config, open, async () => rows?.lose());
  cleanups.push(() => stage.close());
  return { stage, calls };
}

function counted(server: RowServer, calls: string[]): RowServer {
  return new Proxy(server, {
    get(target, name) {
      const member: unknown = Reflect.get(target, name, target);
      if (typeof member !== "function") return member;
      return (...args: unknown[]) => {
        if (ROUND_TRIPS.has(name)) calls.push(String(name));
        return Reflect.apply(member, target, args) as unknown;
      };
    },
  });
}

const ROUND_TRIPS: ReadonlySet<PropertyKey> = new Set(["commit", "read", "scan", "beginEpoch"]);

export const STORE_KINDS: readonly StoreKind[] = ["memory", "sqlite"];
