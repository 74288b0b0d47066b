/**
 * Builds an environment: one sandbox of a fleet of its own, with the draft's tree writable at /opt/env.
 *
 * Invariants
 * - The script runs under the isolation and the limits of the blueprint, with the network of its setup.
 * - What it leaves is a plain tree: directories, files and links, readable by all, without setuid and devices.
 * - A tree that grows over its limit, or a disk that becomes full, ends the build.
 */

import { createWriteStream, mkdtempSync, statfsSync } from "node:fs";
import { chmod, lstat, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { ENVIRONMENT_ROOT, type FleetId, SandlotError, WORKSPACE_ROOT } from "@sandlot/contract";
import { assembleFleet } from "./assemble-fleet.ts";
import type { Backend } from "./backend/backend.ts";
import { type Blueprint, type EnvironmentSetup, homePathOf } from "./backend/blueprint.ts";
import type { Settings } from "./config/settings.ts";
import { type EnvironmentPlan, hostInterpreters } from "./environments/environment-hash.ts";
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

export function environmentsOf(settings: Settings, world: World, open: OpenBackend): Environments {
  const basis = settings.backend === "docker" ? async () => "the image's own" : hostInterpreters;
  const build: Builder = (plan, draft, signal) => buildEnvironment({ settings, world, open, plan, draft, signal });
  return new Environments({ home: settings.home, world, basis, build });
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
  const size = await settle(draft.tree, setup.diskBytes);
  if (size.sizeBytes > setup.diskBytes) throw failed(plan, tooLarge(setup));
  return { ...size, pythonPaths: await pythonPathsOf(draft.tree) };
}

async function inOwnFleet(
  { settings, world, open, plan, draft }: Build,
  setup: EnvironmentSetup,
  use: (lease: Lease) => Promise<void>,
): Promise<void> {
  const home = mkdtempSync(join(settings.home, ".sandlot-env-"));
  try {
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
    const own = { ...settings, home, fleetId, pool: {}, maxLifetimeMs: 0, skillsPath: null, blueprints };
    const store = new MemoryStore(newMemoryTables(world));
    const fleet = await assembleFleet({ settings: own, world, store, backend: await open(own) });
    try {
      await using lease = await fleet.acquire({ purpose: "the build of an environment" });
      await use(lease);
    } finally {
      await fleet.close({ destroy: true });
    }
  } finally {
    await rm(home, { recursive: true, force: true });
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
  for (const { name, content } of plan.files) await sandbox.files.write(`${WORKSPACE}/${name}`, content);
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
    const { sizeBytes, files } = await measure(tree, setup.diskBytes);
    if (isOver) return;
    const { bavail, bsize } = statfsSync(tree);
    if (sizeBytes > setup.diskBytes) onFull(tooLarge(setup));
    else if (files > FILES_MAX) onFull(`it has more than ${FILES_MAX} files`);
    else if (bavail * bsize < FREE_BYTES_MIN) onFull(`the host's disk has less than ${FREE_BYTES_MIN} bytes left`);
    else timer = world.timer(LOOK_MS, () => void look().catch((error: Error) => onFull(error.message)));
  };
  let timer = world.timer(LOOK_MS, () => void look().catch((error: Error) => onFull(error.message)));
  return () => {
    isOver = true;
    timer.cancel();
  };
}

function tooLarge({ diskBytes }: EnvironmentSetup): string {
  return `it became larger than setup.diskBytes (${diskBytes})`;
}

interface Size {
  readonly sizeBytes: number;
  readonly files: number;
}

/** Stops at the first entry beyond the limits. An entry that goes away meanwhile counts nothing. */
async function measure(tree: string, maxBytes: number): Promise<Size> {
  let [sizeBytes, files] = [0, 0];
  const walk = async (directory: string): Promise<void> => {
    const names = await readdir(directory).catch(() => []);
    for (const name of names) {
      const stat = await lstat(join(directory, name)).catch(() => null);
      if (stat === null) continue;
      files += 1;
      sizeBytes += stat.blocks * 512;
      if (sizeBytes > maxBytes || files > FILES_MAX) return;
      if (stat.isDirectory()) await walk(join(directory, name));
    }
  };
  await walk(tree);
  return { sizeBytes, files };
}

/** No process runs in the tree any more. */
async function settle(tree: string, maxBytes: number): Promise<Size> {
  let [sizeBytes, files] = [0, 0];
  const walk = async (path: string): Promise<void> => {
    const stat = await lstat(path);
    files += 1;
    sizeBytes += stat.blocks * 512;
    if (sizeBytes > maxBytes || stat.isSymbolicLink()) return;
    if (stat.isDirectory()) {
      await chmod(path, 0o755);
      for (const name of await readdir(path)) await walk(join(path, name));
    } else if (stat.isFile()) await chmod(path, (stat.mode & 0o111) === 0 ? 0o644 : 0o755);
    else await rm(path);
  };
  await walk(tree);
  return { sizeBytes, files: files - 1 };
}

async function pythonPathsOf(tree: string): Promise<readonly string[]> {
  const versions = await readdir(join(tree, "lib")).catch(() => []);
  const found = versions.filter((name) => /^python3\.\d+$/.test(name)).map((name) => `lib/${name}/site-packages`);
  return found;
}

function failed(plan: EnvironmentPlan, problem: string): SandlotError {
  return new SandlotError("environment_failed", { environment: plan.id, problem });
}
