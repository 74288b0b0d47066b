/**
 * A Docker backend in its own home, on the tests' engine. Leftovers after a test fail it: containers, volumes, sockets,
 * slots, files of objects.
 */

import { chmodSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import type { EngineRef, FleetId } from "@sandlot/contract";
import { filesBeside, type SandboxdFiles } from "@sandlot/sandboxd";
import Docker from "dockerode";
import { expect } from "vitest";
import { holdTestEngine } from "../../../../../scripts/docker-test-engine.mjs";
import { bundle } from "../../../../sandboxd/bundle.mjs";
import type { Backend } from "../../../src/backend/backend.ts";
import type { Blueprint } from "../../../src/backend/blueprint.ts";
import { openDockerBackend } from "../../../src/backends/docker/backend.ts";
import { DOCKER_DEFAULTS } from "../../../src/backends/docker/config.ts";
import { parseRef } from "../../../src/backends/docker/objects/labels.ts";
import type { ConfiguredSettings, DockerSettings } from "../../../src/backends/docker/settings.ts";
import type { BackendStage } from "../../../src/testing/backend-suite/stage.ts";
import type { BackendHarness } from "../../../src/testing/backend-suite.ts";
import { systemWorld } from "../../../src/world/system-world.ts";
import { onHarness } from "../on-harness.ts";

export const world = systemWorld();
export const blueprint: Blueprint = { environment: {}, limits: {}, mounts: [], network: { mode: "none", allow: [] } };

const MIB = 1024 * 1024;
/** The last user of the engine ends it. */
export const STOPPING_MS = 120_000;

export interface TestEngine {
  readonly host: string;
  readonly image: string;
  readonly docker: Docker;
  release(): Promise<void>;
}

/** The engine of all tests in a file, or the reason why there is none. With `CI=true` there must be one. */
export async function testEngine(): Promise<TestEngine | { readonly reason: string }> {
  const held = await holdTestEngine();
  if ("reason" in held) {
    if (process.env.CI === "true") throw new Error(`no Docker engine: ${held.reason}`);
    process.stderr.write(`skipped, no Docker engine: ${held.reason}\n`);
    return held;
  }
  const docker = new Docker({ socketPath: held.host.replace("unix://", "") });
  return { ...held, docker };
}

let built: Promise<SandboxdFiles> | undefined;

/** The daemon of the present sources. Built once per test file; call `removeDaemon` after all tests. */
export function daemonFiles(): Promise<SandboxdFiles> {
  built ??= (async () => {
    const directory = mkdtempSync(join(tmpdir(), "sl-docker-bundle-"));
    chmodSync(directory, 0o755);
    const { outfile } = await bundle(join(directory, "sandboxd.cjs"));
    return filesBeside(outfile);
  })();
  return built;
}

export async function removeDaemon(): Promise<void> {
  if (built !== undefined) rmSync(dirname((await built).bundle), { recursive: true, force: true });
}

export interface DockerHarness extends BackendHarness {
  readonly home: string;
  readonly engine: TestEngine;
  /** A backend like the others, with some settings overridden. */
  open(more?: Partial<ConfiguredSettings>, installation?: Partial<DockerSettings>): Promise<Backend>;
}

export function settingsIn(
  home: string,
  fleetId: FleetId,
  { host, image }: TestEngine,
  different: Partial<ConfiguredSettings["docker"]> = {},
): ConfiguredSettings {
  const nothing = { runtime: null, network: null, hostPaths: {}, capabilities: [] };
  const small = { tmpBytes: 64 * MIB, homeBytes: 64 * MIB };
  const docker = { ...DOCKER_DEFAULTS, ...nothing, ...small, host, image, ...different };
  return { home, fleetId, skillsPath: null, orphanTimeoutMs: 120_000, docker };
}

/** `different` overrides the backend's usual settings. */
export async function openHarness(
  engine: TestEngine,
  different: Partial<ConfiguredSettings["docker"]> = {},
): Promise<DockerHarness> {
  const home = mkdtempSync(join(tmpdir(), "sl-docker-"));
  const backends: Backend[] = [];
  const fleetId = `fleet-${world.randomHex(3)}` as FleetId;
  const otherId = `other-${world.randomHex(3)}` as FleetId;
  const open: DockerHarness["open"] = async (more = {}, installation = {}) => {
    const settings = { ...settingsIn(home, fleetId, engine, different), ...more };
    const daemon = await daemonFiles();
    const backend = await openDockerBackend({
      settings,
      world,
      installation: { daemon, runtimeDirectory: dirname(daemon.bundle), ...installation },
    });
    backends.push(backend);
    return backend;
  };
  return {
    home,
    engine,
    fleetId,
    open,
    backend: await open(),
    peer: () => open(),
    stranger: async () => ({ fleetId: otherId, backend: await open({ fleetId: otherId }) }),
    kill: async (ref) => void (await engine.docker.getContainer(containerOf(ref)).kill()),
    dispose: async () => {
      await Promise.all(backends.map((backend) => backend.close()));
      const left = await leftovers(engine, home, [fleetId, otherId]);
      rmSync(home, { recursive: true, force: true });
      expect(left, "what is left on the machine").toEqual([]);
    },
  };
}

export interface StageOptions {
  /** Overrides of the backend's usual settings. */
  readonly docker?: Partial<ConfiguredSettings["docker"]>;
  /** The blueprint of its sandboxes. */
  readonly of?: Blueprint;
}

/** Runs a test on a fresh backend, and fails when anything is left after it. */
export async function onStage(
  engine: TestEngine,
  run: (stage: BackendStage, harness: DockerHarness) => Promise<void>,
  { docker = {}, of = blueprint }: StageOptions = {},
): Promise<void> {
  await onHarness(await openHarness(engine, docker), of, run);
}

/** The engine's id of a sandbox's container. */
export function containerOf(ref: EngineRef): string {
  const id = parseRef(ref)?.containerId;
  if (id === undefined || id === null) throw new Error(`${ref} names no container`);
  return id;
}

/** Everything of these fleets that still exists, except workspaces at home. */
async function leftovers({ docker }: TestEngine, home: string, fleets: readonly FleetId[]): Promise<string[]> {
  const places = fleets.flatMap((fleet) =>
    ["containers", "s", "slots", "markers", "trash", "aio"].map((name) => join(home, fleet, name)),
  );
  const files = places.flatMap((place) => list(place).map((name) => join(place, name)));
  const containers = await Promise.all(
    fleets.map((fleet) => docker.listContainers({ all: true, filters: { label: [`sandlot.fleet=${fleet}`] } })),
  );
  const { Volumes } = await docker.listVolumes();
  return [
    ...files,
    ...containers.flat().map(({ Id, Status }) => `container ${Id} (${Status})`),
    ...(Volumes ?? []).map(({ Name }) => `volume ${Name}`),
  ];
}

function list(path: string): readonly string[] {
  try {
    return readdirSync(path);
  } catch {
    return [];
  }
}
