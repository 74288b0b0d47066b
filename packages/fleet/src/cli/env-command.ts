/** `env ls`, `build`, `inspect` and `rm`: the environments of blueprints with a setup, in this home. */

import { SandlotError } from "@sandlot/contract";
import type { Backend } from "../backend/backend.ts";
import { environmentsOf } from "../build-environment.ts";
import { resolveSettings } from "../config/resolve-settings.ts";
import type { Settings } from "../config/settings.ts";
import { livingOf } from "../environments/backend-with-environments.ts";
import type { EnvironmentEntry } from "../environments/environment-store.ts";
import type { Environments } from "../environments/environments.ts";
import { openBackend } from "../open-fleet.ts";
import { systemWorld } from "../world/system-world.ts";
import { loadSettings } from "./load-settings.ts";
import { withProgress } from "./progress.ts";
import { printTable } from "./table.ts";
import { printJson, type Terminal } from "./terminal.ts";

export interface EnvCommandOptions {
  readonly config?: string;
  readonly json: boolean;
}

interface Opened {
  readonly settings: Settings;
  readonly environments: Environments;
  /** Opened when it is first asked for. */
  readonly backend: () => Promise<Backend>;
}

async function opened<Result>(
  terminal: Terminal,
  options: EnvCommandOptions,
  use: (opened: Opened) => Promise<Result>,
): Promise<Result> {
  const { config } = await loadSettings(options.config, terminal.environment);
  const settings = resolveSettings(config, terminal.environment);
  const world = systemWorld();
  let opening: Promise<Backend> | null = null;
  // It renews no sandbox, so those that no other process renews still end by themselves.
  const backend = (): Promise<Backend> => (opening ??= openBackend({ ...settings, orphanTimeoutMs: 0 }, world));
  const environments = environmentsOf(settings, world, (its) => openBackend(its, world), backend);
  try {
    return await use({ settings, environments, backend });
  } finally {
    await environments.close();
    await (await (opening as Promise<Backend> | null)?.catch(() => null))?.close();
  }
}

export function listEnvironments(terminal: Terminal, options: EnvCommandOptions): Promise<void> {
  return opened(terminal, options, async ({ environments }) => {
    const entries = environments.entries();
    if (options.json) return printJson(terminal, { environments: entries });
    if (entries.length === 0) return terminal.out("There is no environment. A blueprint's `setup` makes one.\n");
    const rows = entries.map((entry) => [entry.id, stateOf(entry), sizeOf(entry), String(entry.uses.length)]);
    printTable(terminal, ["ENVIRONMENT", "STATE", "SIZE", "SANDBOXES"], rows);
  });
}

/** Builds what is missing, and what failed before. */
export function buildEnvironments(
  terminal: Terminal,
  options: EnvCommandOptions & { readonly blueprint?: string },
  signal: AbortSignal,
): Promise<void> {
  return opened(terminal, options, async ({ settings, environments }) => {
    const chosen = Object.values(settings.blueprints).filter(
      ({ name, blueprint }) => blueprint.setup !== undefined && (options.blueprint ?? name) === name,
    );
    if (chosen.length === 0) {
      const which = options.blueprint === undefined ? "no blueprint" : `no blueprint ${options.blueprint}`;
      throw new SandlotError("invalid_request", { field: "command line", problem: `there is ${which} with a setup` });
    }
    const ids: string[] = [];
    for (const named of chosen) {
      const plan = await environments.plan(named, signal);
      if (plan === null) continue;
      await withProgress(terminal, `Building ${plan.id}`, () => environments.rebuild(plan, signal));
      ids.push(plan.id);
    }
    if (options.json) printJson(terminal, { environments: ids });
    else terminal.out(`${ids.map((id) => `${id} is ready.\n`).join("")}`);
  });
}

export function inspectEnvironment(terminal: Terminal, id: string, options: EnvCommandOptions): Promise<void> {
  return opened(terminal, options, async ({ environments }) => {
    const entry = found(environments, id);
    const log = environments.store.log(entry.id) ?? "";
    if (options.json) return printJson(terminal, { ...entry, tree: environments.store.tree(entry.id), log });
    const { facts, failure } = entry;
    terminal.out(`${entry.id}: ${stateOf(entry)}\n`);
    if (facts !== null)
      terminal.out(`  ${facts.files} files, ${sizeOf(entry)}, built in ${Math.round(facts.buildMs / 1_000)} s\n`);
    if (failure !== null) terminal.out(`  ${failure.problem}\n`);
    terminal.out(`\n${log}`);
  });
}

export function removeEnvironment(
  terminal: Terminal,
  id: string,
  options: EnvCommandOptions,
  signal: AbortSignal,
): Promise<void> {
  return opened(terminal, options, async ({ backend, environments }) => {
    const entry = found(environments, id);
    await environments.remove(entry.id, await livingOf(await backend(), signal));
    if (options.json) printJson(terminal, { removed: entry.id });
    else terminal.out(`${entry.id} is removed.\n`);
  });
}

/** By its whole name, or the only one with this beginning. */
function found(environments: Environments, id: string): EnvironmentEntry {
  const entries = environments.entries();
  const exact = entries.find((entry) => entry.id === id);
  const alike = entries.filter((entry) => entry.id.startsWith(id));
  const entry = exact ?? (alike.length === 1 ? alike[0] : undefined);
  if (entry !== undefined) return entry;
  const problem =
    alike.length > 1
      ? `${id} is the beginning of ${alike.map((one) => one.id).join(", ")}; name one`
      : `there is no environment ${id}; \`sandlot env ls\` lists them`;
  throw new SandlotError("invalid_request", { field: "command line", problem });
}

function stateOf({ facts, failure }: EnvironmentEntry): string {
  if (facts !== null) return "ready";
  return failure === null ? "going" : "failed";
}

function sizeOf({ facts }: EnvironmentEntry): string {
  return facts === null ? "" : `${Math.ceil(facts.sizeBytes / 1_024 ** 2)} MiB`;
}
