/** The backend on a stand-in for Apple's `container`, in its own home. Leftovers after a test fail it. */

import { spawnSync } from "node:child_process";
import { chmodSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import type { FleetId } from "@sandlot/contract";
import { expect } from "vitest";
import { openDockerBackend } from "../../../../src/backends/docker/backend.ts";
import { DOCKER_DEFAULTS } from "../../../../src/backends/docker/config.ts";
import type { ConfiguredSettings } from "../../../../src/backends/docker/settings.ts";
import type { BackendStage } from "../../../../src/testing/backend-suite/stage.ts";
import type { BackendHarness } from "../../../../src/testing/backend-suite.ts";
import { onHarness } from "../../on-harness.ts";
import { blueprint, containerOf, daemonFiles, world } from "../docker-harness.ts";

const STAND_IN = fileURLToPath(new URL("stand-in.mjs", import.meta.url));

/** As `container system status --format json` prints it. */
export const STATUS = {
  status: "running",
  appRoot: "/Users/somebody/Library/Application Support/com.apple.container/",
  installRoot: "/usr/local/",
  apiServerVersion: "container-apiserver version 1.1.0 (build: release, commit: 0123456)",
  apiServerCommit: "0123456",
  apiServerBuild: "release",
  apiServerAppName: "container-apiserver",
};

export interface StandIn {
  /** The program to run. */
  readonly program: string;
  readonly place: string;
  /** Every command so far, word for word. */
  commands(): readonly (readonly string[])[];
  remove(): void;
}

export function makeStandIn(status: object = STATUS, images: readonly string[] = [DOCKER_DEFAULTS.image]): StandIn {
  const place = mkdtempSync(join(tmpdir(), "sl-apple-"));
  chmodSync(place, 0o755);
  const program = join(place, "container");
  writeFileSync(program, `#!/bin/sh\nSTAND_IN_PLACE='${place}' exec '${process.execPath}' '${STAND_IN}' "$@"\n`, {
    mode: 0o755,
  });
  writeFileSync(join(place, "answers.json"), JSON.stringify({ status, images }));
  return {
    program,
    place,
    commands: () => {
      const path = join(place, "commands.jsonl");
      const lines = existsSync(path) ? readFileSync(path, "utf8").trim().split("\n") : [];
      return lines.map((line) => JSON.parse(line));
    },
    remove: () => rmSync(place, { recursive: true, force: true }),
  };
}

export interface AppleHarness extends BackendHarness {
  readonly standIn: StandIn;
  readonly home: string;
}

/** `different` overrides the backend's usual settings. */
export async function openAppleHarness(different: Partial<ConfiguredSettings["docker"]> = {}): Promise<AppleHarness> {
  const standIn = makeStandIn();
  const home = mkdtempSync(join(tmpdir(), "sl-apple-home-"));
  const [fleetId, otherId] = [`fleet-${world.randomHex(3)}` as FleetId, `other-${world.randomHex(3)}` as FleetId];
  const daemon = await daemonFiles();
  const nothing = { host: null, runtime: null, network: null, hostPaths: {}, capabilities: [] };
  const docker = { ...DOCKER_DEFAULTS, ...nothing, engine: "apple-container" as const, ...different };
  const backends: Awaited<ReturnType<typeof openDockerBackend>>[] = [];
  const open = async (fleet: FleetId) => {
    const settings = { home, fleetId: fleet, skillsPath: null, orphanTimeoutMs: 120_000, docker };
    const installation = { daemon, runtimeDirectory: dirname(daemon.bundle), containerProgram: standIn.program };
    const backend = await openDockerBackend({ settings, world, installation });
    backends.push(backend);
    return backend;
  };
  const dispose = async () => {
    await Promise.all(backends.map((backend) => backend.close()));
    const containers = join(standIn.place, "containers");
    const left = [
      ...(existsSync(containers) ? readdirSync(containers) : []),
      ...[fleetId, otherId].flatMap((fleet) =>
        ["containers", "s", "slots", "markers"].flatMap((name) => listOf(join(home, fleet, name))),
      ),
    ];
    standIn.remove();
    rmSync(home, { recursive: true, force: true });
    expect(left, "what is left on the machine").toEqual([]);
  };
  try {
    return {
      ...{ standIn, home, fleetId, dispose, backend: await open(fleetId) },
      peer: () => open(fleetId),
      stranger: async () => ({ fleetId: otherId, backend: await open(otherId) }),
      kill: async (ref) => {
        const container = join(standIn.place, "containers", containerOf(ref), "container.json");
        process.kill(-JSON.parse(readFileSync(container, "utf8")).pid, "SIGKILL");
      },
    };
  } catch (error) {
    await dispose();
    throw error;
  }
}

/** Runs a test on a fresh backend, and fails when anything is left after it. */
export async function onAppleStage(run: (stage: BackendStage, harness: AppleHarness) => Promise<void>): Promise<void> {
  await onHarness(await openAppleHarness(), blueprint, run);
}

function listOf(path: string): readonly string[] {
  return existsSync(path) ? readdirSync(path).map((name) => join(path, name)) : [];
}

/** Why the stand-in cannot run anything here, or `null`. */
export function standInProblem(): string | null {
  if (process.getuid?.() !== 0) return "running containers of the stand-in takes root";
  const { status } = spawnSync("bwrap", ["--ro-bind", "/", "/", "--unshare-net", "--unshare-pid", "true"]);
  return status === 0 ? null : "bubblewrap is missing, or may not make namespaces";
}
