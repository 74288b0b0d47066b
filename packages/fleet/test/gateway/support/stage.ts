/**
 * A gateway over a fleet in memory, with its own home, and callers of every scope. `done` fails when anything is left:
 * a lease, an open stream, a file outside the home.
 */

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect } from "vitest";
import { assembleFleet } from "../../../src/assemble-fleet.ts";
import type { Backend } from "../../../src/backend/backend.ts";
import { MemoryTimelines } from "../../../src/backend/memory-timelines.ts";
import { createMemoryBackend } from "../../../src/backends/memory/backend.ts";
import { MemoryEngine } from "../../../src/backends/memory/engine.ts";
import type { FleetConfig } from "../../../src/config/fleet-config.ts";
import type { GatewayConfig } from "../../../src/config/gateway-settings.ts";
import { resolveSettings } from "../../../src/config/resolve-settings.ts";
import type { Fleet } from "../../../src/fleet.ts";
import { readOperatorKey } from "../../../src/gateway/keys/operator-key.ts";
import { type Gateway, type GatewayOptions, startGateway } from "../../../src/gateway/start-gateway.ts";
import { MemoryStore, newMemoryTables } from "../../../src/store/memory/memory-store.ts";
import type { Store } from "../../../src/store/store.ts";
import { systemWorld } from "../../../src/world/system-world.ts";
import type { World } from "../../../src/world/world.ts";

export interface Stage {
  readonly home: string;
  readonly fleet: Fleet;
  readonly gateway: Gateway;
  readonly operator: Caller;
  readonly platform: Caller;
  user(name: string): Promise<Caller>;
  /** Ends the thread's sandbox, as a crash would. */
  crash(thread: string): Promise<void>;
  done(): Promise<void>;
}

export interface StageOptions {
  readonly settings?: GatewayConfig;
  readonly fleet?: FleetConfig;
  readonly more?: Partial<GatewayOptions>;
  /** Instead of one in memory. */
  readonly store?: Store;
  /** Its wall clock is that of the sandboxes' files. */
  readonly engineWorld?: World;
  /** Extends the backend. */
  readonly enrich?: (backend: Backend) => Backend;
  /** Whether timelines are kept. Default true. */
  readonly timelines?: boolean;
}

export interface CallOptions {
  readonly body?: RequestInit["body"];
  readonly json?: unknown;
  readonly headers?: Record<string, string>;
  readonly signal?: AbortSignal;
}

/** One key and its requests. */
export class Caller {
  readonly url: string;
  readonly key: string;
  readonly #headers: Record<string, string>;

  constructor(url: string, key: string, headers: Record<string, string> = {}) {
    this.url = url;
    this.key = key;
    this.#headers = headers;
  }

  /** The same key, with headers on every call. */
  with(headers: Record<string, string>): Caller {
    return new Caller(this.url, this.key, { ...this.#headers, ...headers });
  }

  /** The same gateway with another key. */
  as(key: string): Caller {
    return new Caller(this.url, key);
  }

  call(method: string, path: string, { body, json, headers, signal }: CallOptions = {}): Promise<Response> {
    return fetch(`${this.url}${path}`, {
      method,
      headers: {
        ...(this.key === "" ? {} : { authorization: `Bearer ${this.key}` }),
        ...(json === undefined ? {} : { "content-type": "application/json" }),
        ...this.#headers,
        ...headers,
      },
      ...(json === undefined ? {} : { body: JSON.stringify(json) }),
      ...(body === undefined ? {} : { body, duplex: "half" }),
      ...(signal === undefined ? {} : { signal }),
    });
  }

  /** The response as JSON, after its status was checked. */
  async ask<T = Record<string, unknown>>(
    status: number,
    method: string,
    path: string,
    options: CallOptions = {},
  ): Promise<T> {
    const response = await this.call(method, path, options);
    const text = await response.text();
    expect(`${response.status} ${response.status === status ? "" : text}`).toBe(`${status} `);
    return (text === "" ? null : JSON.parse(text)) as T;
  }
}

export async function openStage(options: StageOptions = {}): Promise<Stage> {
  const { settings, fleet: config, more, store, enrich, engineWorld, timelines = true } = options;
  const home = await mkdtemp(join(tmpdir(), "sandlot-gateway-"));
  const world = systemWorld();
  const resolved = resolveSettings(
    { home, backend: "memory", store: { type: "memory" }, housekeepingIntervalMs: 200, ...config },
    {},
  );
  const engine = new MemoryEngine({ world: engineWorld ?? world });
  const backend = createMemoryBackend({ fleetId: resolved.fleetId, engine, world });
  const fleet = await assembleFleet({
    settings: resolved,
    world,
    store: store ?? new MemoryStore(newMemoryTables(world)),
    backend: enrich === undefined ? backend : enrich(backend),
    ...(timelines && { timelines: new MemoryTimelines(world) }),
  });
  const gateway = await startGateway({ fleet, home, world, settings: { port: 0, ...settings }, ...more });
  const make = async (scope: "user" | "platform" | "operator", user?: string) => {
    const { key } = await gateway.keys.create({ scope, ...(user === undefined ? {} : { user }) });
    return new Caller(gateway.url, key);
  };
  return {
    home,
    fleet,
    gateway,
    operator: new Caller(gateway.url, (await readOperatorKey(home)) ?? ""),
    platform: await make("platform"),
    user: (name) => make("user", name),
    async crash(thread) {
      const found = (await fleet.list()).find((sandbox) => sandbox.thread === thread);
      const objects = await backend.list({ consistent: true }, new AbortController().signal);
      for (const { labels, ref } of objects) if (labels.sandboxId === found?.sandboxId) engine.kill(ref);
    },
    async done() {
      await gateway.close();
      const leased = (await fleet.list()).filter(({ state }) => state === "leased");
      const held = leased.filter(({ holders }) => holders.some((holder) => holder === fleet.instanceId));
      await fleet.close({ destroy: true, drainMs: 0 });
      await rm(home, { recursive: true, force: true });
      expect(
        held.map(({ thread, holders }) => ({ thread, holders })),
        "leases that nobody gave back",
      ).toEqual([]);
    },
  };
}
