/**
 * A provisioner for the tests of the remote backend: a gateway over real local sandboxes. The whole chain of a test is
 * fleet, remote backend, gateway, local sandbox.
 */

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { EngineRef, FleetId } from "@sandlot/contract";
import { expect } from "vitest";
import { assembleFleet } from "../../../src/assemble-fleet.ts";
import type { Backend } from "../../../src/backend/backend.ts";
import { openRemoteBackend } from "../../../src/backends/remote/backend.ts";
import { type RemoteConfig, remoteSchema } from "../../../src/backends/remote/config.ts";
import { parseRef } from "../../../src/backends/remote/object-id.ts";
import type { GatewayConfig } from "../../../src/config/gateway-settings.ts";
import { resolveSettings } from "../../../src/config/resolve-settings.ts";
import type { Fleet } from "../../../src/fleet.ts";
import { type Gateway, startGateway } from "../../../src/gateway/start-gateway.ts";
import { MemoryStore, newMemoryTables } from "../../../src/store/memory/memory-store.ts";
import type { BackendHarness } from "../../../src/testing/backend-suite.ts";
import { systemWorld } from "../../../src/world/system-world.ts";
import { type LocalHarness, openHarness } from "../local/local-harness.ts";

const world = systemWorld();

export interface InnerGateway {
  readonly gateway: Gateway;
  readonly fleet: Fleet;
  readonly key: string;
  /** Kills the local sandbox behind a remote one. */
  kill(ref: EngineRef): Promise<void>;
  /** Another gateway with the same home, ports and fleet. */
  restart(): Promise<void>;
  close(): Promise<void>;
}

/** The part of it that a harness uses: another gateway will do. */
export interface AnyGateway {
  readonly gateway: Pick<Gateway, "url">;
  readonly fleet: Pick<Fleet, "list">;
  readonly key: string;
  kill(ref: EngineRef): Promise<void>;
}

export async function openInnerGateway(): Promise<InnerGateway> {
  const local: LocalHarness = await openHarness();
  const home = mkdtempSync(join(tmpdir(), "sl-inner-"));
  const config = { home: local.home, fleetId: local.fleetId, backend: "local", limits: { max: 200 } } as const;
  const settings = resolveSettings({ ...config, housekeepingIntervalMs: 500 }, {});
  const store = new MemoryStore(newMemoryTables(world));
  const fleet = await assembleFleet({ settings, world, store, backend: local.backend });
  // Also under the address of a proxy.
  const usual = { rate: { perAddressFailuresPerMinute: 100_000 }, keepLeasesMs: 0, allowedHosts: ["127.0.0.1"] };
  const begin = (ports: GatewayConfig) => startGateway({ fleet, home, world, settings: { ...usual, ...ports } });
  let gateway = await begin({ port: 0 });
  const ports = { port: portOf(gateway.url), preview: { port: portOf(gateway.previewUrl) } };
  const { key } = await gateway.keys.create({ scope: "platform" });
  return {
    ...{ gateway, fleet, key },
    async restart() {
      await gateway.close();
      gateway = await begin(ports);
    },
    async kill(ref) {
      const { id } = parseRef(ref) ?? {};
      const response = await fetch(`${gateway.url}/api/sandboxes/${id}`, { headers: { "x-api-key": key } });
      const { sandbox_url } = (await response.json()) as { sandbox_url: string };
      const inner = await innerIdOf(sandbox_url, home);
      const objects = await local.backend.list({ consistent: true }, new AbortController().signal);
      const found = objects.find(({ labels }) => labels.sandboxId === inner);
      if (found !== undefined) await local.kill(found.ref);
    },
    async close() {
      await gateway.close();
      for (const { user, thread } of await fleet.list())
        if (user !== null && thread !== null) await fleet.destroy({ user, thread }, { force: true });
      await fleet.close({ destroy: true, drainMs: 0 });
      rmSync(home, { recursive: true, force: true });
      await local.dispose();
    },
  };
}

function portOf(url: string): number {
  return Number(new URL(url).port);
}

/** The fleet's id of the sandbox that a URL leads to, from the gateway's own record. */
async function innerIdOf(url: string, home: string): Promise<string> {
  const name = /\/aio\/p([0-9a-f]{48})/.exec(url)?.[1];
  const { readFile } = await import("node:fs/promises");
  return (JSON.parse(await readFile(join(home, "provisioned", `${name}.json`), "utf8")) as { sandboxId: string })
    .sandboxId;
}

export function remoteConfig(inner: Pick<AnyGateway, "gateway">, more: object = {}): RemoteConfig {
  return remoteSchema.parse({ url: inner.gateway.url, ...more });
}

export interface RemoteHarness extends BackendHarness {
  readonly home: string;
  open(fleetId: FleetId, more?: object): Promise<Backend>;
}

/** `usual`: what all of its backends have in their section. */
export async function openRemoteHarness(inner: AnyGateway, usual: object = {}): Promise<RemoteHarness> {
  const home = mkdtempSync(join(tmpdir(), "sl-remote-"));
  mkdirSync(join(home, "secret"));
  const keyFile = join(home, "secret", "key");
  writeFileSync(keyFile, `${inner.key}\n`);
  const [fleetId, otherId] = [`fleet-${world.randomHex(3)}` as FleetId, `other-${world.randomHex(3)}` as FleetId];
  const backends: Backend[] = [];
  const open = async (fleet: FleetId, more: object = {}) => {
    const remote = remoteConfig(inner, { keyFile, ...usual, ...more });
    const backend = await openRemoteBackend({ settings: { home, fleetId: fleet, skillsPath: null, remote }, world });
    backends.push(backend);
    return backend;
  };
  return {
    ...{ home, fleetId, open },
    backend: await open(fleetId),
    peer: () => open(fleetId),
    stranger: async () => ({ fleetId: otherId, backend: await open(otherId) }),
    kill: (ref) => inner.kill(ref),
    async dispose() {
      await Promise.all(backends.map((backend) => backend.close()));
      rmSync(home, { recursive: true, force: true });
      const left = (await inner.fleet.list()).filter(({ state }) => state === "leased");
      expect(left.map(({ thread }) => thread)).toEqual([]);
    },
  };
}
