/**
 * A local backend in its own home, for tests. Leftovers after a test fail it: processes, sockets, control groups,
 * slots, objects.
 */

import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import type { EngineRef, FleetId } from "@sandlot/contract";
import { filesBeside, type SandboxdFiles } from "@sandlot/sandboxd";
import { expect } from "vitest";
import { bundle } from "../../../../sandboxd/bundle.mjs";
import type { Backend } from "../../../src/backend/backend.ts";
import type { Blueprint } from "../../../src/backend/blueprint.ts";
import { createLocalBackend } from "../../../src/backends/local/backend.ts";
import { parseRef } from "../../../src/backends/local/objects/engine-ref.ts";
import type { ConfiguredSettings, LocalSettings } from "../../../src/backends/local/settings.ts";
import { openLimits } from "../../../src/host/limits/index.ts";
import type { BackendStage } from "../../../src/testing/backend-suite/stage.ts";
import type { BackendHarness } from "../../../src/testing/backend-suite.ts";
import { systemWorld } from "../../../src/world/system-world.ts";
import { onHarness } from "../on-harness.ts";

export const world = systemWorld();
export const blueprint: Blueprint = { environment: {}, limits: {}, mounts: [], network: { mode: "none", allow: [] } };
export const isRoot = process.getuid?.() === 0;

const MIB = 1024 * 1024;

let built: Promise<SandboxdFiles> | undefined;

/** The daemon of the present sources. Built once per test file; call `removeDaemon` after all tests. */
export function daemonFiles(): Promise<SandboxdFiles> {
  built ??= (async () => {
    const directory = mkdtempSync(join(tmpdir(), "sl-local-bundle-"));
    chmodSync(directory, 0o755);
    const { outfile } = await bundle(join(directory, "sandboxd.cjs"));
    return filesBeside(outfile);
  })();
  return built;
}

export async function removeDaemon(): Promise<void> {
  if (built !== undefined) rmSync(dirname((await built).bundle), { recursive: true, force: true });
}

export interface LocalHarness extends BackendHarness {
  readonly home: string;
  /** A backend like the others, with some settings overridden. */
  open(more?: Partial<ConfiguredSettings>, installation?: Partial<LocalSettings>): Promise<Backend>;
}

export type Isolation = ConfiguredSettings["local"]["isolation"];

export function settingsIn(home: string, fleetId: FleetId, isolation: Isolation = "bubblewrap"): ConfiguredSettings {
  const [tmpBytes, homeBytes] = [64 * MIB, 64 * MIB];
  const local = { isolation, uid: 59_999, gid: 59_999, tmpBytes, homeBytes } as const;
  return { home, fleetId, skillsPath: null, orphanTimeoutMs: 120_000, local };
}

export async function openHarness(isolation: Isolation = "bubblewrap"): Promise<LocalHarness> {
  const home = mkdtempSync(join(tmpdir(), "sl-local-"));
  // Only bubblewrap can show files that are closed to the sandbox's account.
  if (isolation === "unsafe-process") chmodSync(home, 0o711);
  const backends: Backend[] = [];
  const fleetId = `fleet-${world.randomHex(3)}` as FleetId;
  const otherId = `other-${world.randomHex(3)}` as FleetId;
  const open = async (more: Partial<ConfiguredSettings> = {}, installation: Partial<LocalSettings> = {}) => {
    const settings = { ...settingsIn(home, fleetId, isolation), ...more };
    const daemon = await daemonFiles();
    const backend = createLocalBackend({ settings, world, installation: { daemon, ...installation } });
    backends.push(backend);
    return backend;
  };
  return {
    home,
    fleetId,
    open,
    backend: await open(),
    peer: () => open(),
    stranger: async () => ({ fleetId: otherId, backend: await open({ fleetId: otherId }) }),
    kill: async (ref) => void process.kill(initOf(ref), "SIGKILL"),
    dispose: async () => {
      await Promise.all(backends.map((backend) => backend.close()));
      const left = leftovers(home, [fleetId, otherId]);
      rmSync(home, { recursive: true, force: true });
      expect(left, "what is left on the machine").toEqual([]);
    },
  };
}

/** Runs a test on a fresh backend, and fails when anything is left after it. */
export async function onStage(run: (stage: BackendStage, harness: LocalHarness) => Promise<void>): Promise<void> {
  await onHarness(await openHarness(), blueprint, run);
}

/** The host's pid of a sandbox's init. */
export function initOf(ref: EngineRef): number {
  const pid = parseRef(ref)?.process?.pid;
  if (pid === undefined) throw new Error(`${ref} names no process`);
  return pid;
}

/** Everything of these fleets that still runs or exists, except workspaces at home. */
function leftovers(home: string, fleets: readonly FleetId[]): string[] {
  const places = fleets.flatMap((fleet) =>
    ["objects", "s", "slots", "markers", "trash", "private"].map((name) => join(home, fleet, name)),
  );
  places.push(join(home, "ids"));
  const files = places
    .flatMap((place) => list(place).map((name) => join(place, name)))
    .filter((path) => path !== join(home, "ids/number"));
  const groups = fleets.flatMap((fleetId) => {
    const limits = openLimits({ fleetId, world });
    const found = limits.findGroups().map((name) => `control group ${name}`);
    limits.close();
    return found;
  });
  return [...files, ...groups, ...processesOf(home)];
}

/** Processes that hold anything below the directory open, or were started with it. */
function processesOf(directory: string): string[] {
  return list("/proc")
    .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
    .filter((pid) => mentions(pid, directory))
    .map((pid) => `process ${pid}: ${read(`/proc/${pid}/cmdline`).replaceAll("\0", " ").slice(0, 200)}`);
}

function mentions(pid: string, directory: string): boolean {
  return [`/proc/${pid}/cmdline`, `/proc/${pid}/mountinfo`].some((path) => read(path).includes(directory));
}

function list(path: string): readonly string[] {
  try {
    return readdirSync(path);
  } catch {
    return [];
  }
}

function read(path: string): string {
  try {
    return readFileSync(path, "latin1");
  } catch {
    return "";
  }
}
