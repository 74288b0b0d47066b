/**
 * Builds an environment: one sandbox of a fleet of its own, with the draft's tree writable at /opt/env.
 *
 * Invariants
 * - The script runs under the isolation and the limits of the blueprint, with the network of its setup.
 * - What it leaves is a plain tree: directories, files and links, readable by all, without setuid and devices.
 * - A tree that grows over its limit, or a disk that becomes full, ends the build.
 */

import { createWriteStream, mkdirSync, statfsSync } from "node:fs";
import { chmod } from "node:fs/promises";
import { join } from "node:path";
import { ENVIRONMENT_ROOT, type FleetId, SandlotError, WORKSPACE_ROOT } from "@sandlot/contract";
import { assembleFleet } from "./assemble-fleet.ts";
import type { Backend } from "./backend/backend.ts";
import { type Blueprint, type EnvironmentSetup, homePathOf } from "./backend/blueprint.ts";
import type { Settings } from "./config/settings.ts";
import type { Basis, EnvironmentPlan } from "./environments/environment-hash.ts";
import { BUILD } from "./environments/environment-store.ts";
import { measureTree, pythonPathsOf, settleTree, type TreeSize } from "./environments/environment-tree.ts";
import { type Builder, Environments } from "./environments/environments.ts";
import type { Lease } from "./fleet.ts";
import { MemoryStore, newMemoryTables } from "./store/memory/memory-store.ts";
import type { World } from "./world/world.ts";

type OpenBackend = (settings: Settings) => Promise<Backend>;

const WORKSPACE = `${WORKSPACE_ROOT}/workspace`;
const FILES_MAX = 1_000_000;
/** Left free for everything else on the disk. */
const FREE_BYTES_MIN = 1_024 ** 3;
const LOOK_MS = 1_000;
const LOG_MAX_BYTES = 16 * 1_024 * 1_024;
const LOG_END_CHARS = 600;

/** `programs` is asked only for a blueprint with a setup. */
export function environmentsOf(
  settings: Settings,
  world: World,
  open: OpenBackend,
  programs: () => Promise<Pick<Backend, "name" | "programsOf">>,
): Environments {
  const basis: Basis = async (blueprint, signal) => {
    const backend = await programs();
    if (backend.programsOf !== undefined) return backend.programsOf(blueprint, signal);
    const told = { backend: backend.name, capability: "environments", neededBy: "the setup of a blueprint" };
    throw new SandlotError("capability_missing", told);
  };
  const build: Builder = (plan, draft, signal) => buildEnvironment({ settings, world, open, plan, draft, signal });
  return new Environments({ home: settings.home, world, basis, build, limits: settings.environments });
}

interface Build {
  readonly settings: Settings;
  readonly world: World;
  readonly open: OpenBackend;
  readonly plan: EnvironmentPlan;
  readonly draft: { readonly directory: string; readonly tree: string };
  readonly signal: AbortSignal;
}

async function buildEnvironment(build: Build): ReturnType<Builder> {
  const { plan, draft } = build;
  const { setup } = plan.blueprint.blueprint;
  if (setup === undefined) throw new TypeError("an environment without a setup");
  // The sandbox's account is not the fleet's.
  await chmod(draft.tree, 0o777);
  await inOwnFleet(build, setup, (lease) => runSetup(build, setup, lease));
  const limits = { maxBytes: setup.diskBytes, maxFiles: FILES_MAX };
  const size = await settleTree(draft.tree, limits).catch((error: Error) => {
    throw failed(plan, `what it left in ${ENVIRONMENT_ROOT} cannot be read: ${error.message}`);
  });
  const problem = sizeProblem(size, setup);
  if (problem !== null) throw failed(plan, problem);
  return { ...size, pythonPaths: await pythonPathsOf(draft.tree) };
}

async function inOwnFleet(
  { settings, world, open, plan, draft }: Build,
  setup: EnvironmentSetup,
  use: (lease: Lease) => Promise<void>,
): Promise<void> {
  // In the draft, so that it goes with it, also where this process is killed.
  const home = join(draft.directory, BUILD);
  mkdirSync(home, { mode: 0o700 });
  const { setup: _, ...rest } = plan.blueprint.blueprint;
  const blueprint: Blueprint = {
    ...rest,
    home: "kept",
    network: setup.network,
    mounts: [{ hostPath: draft.tree, sandboxPath: ENVIRONMENT_ROOT, readOnly: false }],
    environment: { ...prefixes(homePathOf(rest)), ...rest.environment },
  };
  const fleetId = `env-${world.randomHex(4)}` as FleetId;
  const blueprints = { default: { ...plan.blueprint, name: "default", blueprint } };
  const checkpoints = { ...settings.checkpoints, automatic: false };
  const own = { ...settings, home, fleetId, pool: {}, maxLifetimeMs: 0, skillsPath: null, blueprints, checkpoints };
  const store = new MemoryStore(newMemoryTables(world));
  const fleet = await assembleFleet({ settings: own, world, store, backend: await open(own) });
  try {
    await using lease = await fleet.acquire({ purpose: "the build of an environment" });
    await use(lease);
  } finally {
    await fleet.close({ destroy: true });
  }
}

/** Where each tool installs. */
function prefixes(home: string): Readonly<Record<string, string>> {
  return {
    PYTHONUSERBASE: ENVIRONMENT_ROOT,
    PIP_USER: "1",
    PIP_NO_CACHE_DIR: "1",
    NPM_CONFIG_PREFIX: ENVIRONMENT_ROOT,
    CARGO_INSTALL_ROOT: ENVIRONMENT_ROOT,
    GOBIN: `${ENVIRONMENT_ROOT}/bin`,
    GOPATH: `${home}/go`,
    SANDLOT_ENVIRONMENT: ENVIRONMENT_ROOT,
  };
}

async function runSetup({ world, plan, draft, signal }: Build, setup: EnvironmentSetup, lease: Lease): Promise<void> {
  const { sandbox } = lease;
  for (const file of plan.files) await sandbox.files.write(`${WORKSPACE}/${file.name}`, file.read());
  await sandbox.files.write(`${WORKSPACE}/.setup.sh`, setup.script);
  const full = new AbortController();
  const stop = watchSize(world, draft.tree, setup, (problem) => full.abort(failed(plan, problem)));
  const log = createWriteStream(join(draft.directory, "log"), { mode: 0o600 });
  let [end, logBytes] = ["", 0];
  const note = (text: string): void => {
    end = (end + text).slice(-LOG_END_CHARS);
    logBytes += Buffer.byteLength(text);
    if (logBytes <= LOG_MAX_BYTES) log.write(text);
  };
  try {
    const { status, exitCode } = await sandbox.exec(["sh", "-e", `${WORKSPACE}/.setup.sh`], {
      cwd: WORKSPACE,
      timeoutMs: setup.timeoutMs,
      outputMaxBytes: LOG_END_CHARS,
      signal: AbortSignal.any([signal, full.signal]),
      onStdout: note,
      onStderr: note,
    });
    if (status === "timed_out")
      throw failed(plan, `the script ran for more than ${setup.timeoutMs} ms; ${lastLines(end)}`);
    if (exitCode !== 0)
      throw failed(plan, `the script ended with exit code ${exitCode} (${status}); ${lastLines(end)}`);
  } catch (error) {
    if (full.signal.aborted) throw full.signal.reason;
    throw error;
  } finally {
    stop();
    await new Promise<void>((resolve) => log.end(resolve));
  }
}

function lastLines(text: string): string {
  const lines = text.trim().split("\n").slice(-6).join("\n");
  return lines === "" ? "it printed nothing" : `its last lines:\n${lines}`;
}

/** Looks again a second after each look has ended, so that a large tree does not keep the disk busy. */
function watchSize(world: World, tree: string, setup: EnvironmentSetup, onFull: (problem: string) => void): () => void {
  let isOver = false;
  const look = async (): Promise<void> => {
    const size = await measureTree(tree, { maxBytes: setup.diskBytes, maxFiles: FILES_MAX });
    if (isOver) return;
    const { bavail, bsize } = statfsSync(tree);
    const problem = sizeProblem(size, setup);
    if (problem !== null) onFull(problem);
    else if (bavail * bsize < FREE_BYTES_MIN) onFull(`the host's disk has less than ${FREE_BYTES_MIN} bytes left`);
    else timer = world.timer(LOOK_MS, () => void look().catch((error: Error) => onFull(error.message)));
  };
  let timer = world.timer(LOOK_MS, () => void look().catch((error: Error) => onFull(error.message)));
  return () => {
    isOver = true;
    timer.cancel();
  };
}

function sizeProblem({ sizeBytes, files }: TreeSize, { diskBytes }: EnvironmentSetup): string | null {
  if (sizeBytes > diskBytes) return `it became larger than setup.diskBytes (${diskBytes})`;
  return files > FILES_MAX ? `it has more than ${FILES_MAX} files` : null;
}

function failed(plan: EnvironmentPlan, problem: string): SandlotError {
  return new SandlotError("environment_failed", { environment: plan.id, problem });
}
