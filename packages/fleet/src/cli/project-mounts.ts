/**
 * The directories of this machine for a coding agent: `sandlot mcp --workspace DIR --mount DIR[:ro]`.
 *
 * They are mounts of a separate blueprint, named after its mounts: a sandbox with other mounts is another sandbox. They
 * are the user's own files, so they count against no disk budget and are part of no checkpoint.
 */

import { createHash } from "node:crypto";
import { realpathSync, statSync } from "node:fs";
import { basename } from "node:path";
import { SandlotError } from "@sandlot/contract";
import { DEFAULT_BLUEPRINT } from "../config/defaults.ts";
import type { FleetConfig } from "../config/fleet-config.ts";

type Mount = { readonly hostPath: string; readonly sandboxPath: string; readonly readOnly: boolean };

export interface Project {
  /** The option's name, for errors. */
  readonly option: string;
  readonly mounts: readonly Mount[];
  /** Options of the agent's run. */
  readonly run: { readonly blueprint: string; readonly more: string; readonly workingDirectory?: string };
}

const PLACE = "/mnt/project";
const READ_ONLY = ":ro";

/** `null` when no directory of this machine is requested. Throws `invalid_request` for a path that is no directory. */
export function projectOf(given: readonly string[], workspace: string | undefined): Project | null {
  const own: readonly Mount[] =
    workspace === undefined
      ? []
      : [{ hostPath: directory("--workspace", workspace), sandboxPath: PLACE, readOnly: false }];
  const mounts = [...own, ...given.map(mountOf)];
  const [first] = mounts;
  if (first === undefined) return null;
  const places = new Set(mounts.map(({ sandboxPath }) => sandboxPath));
  if (places.size < mounts.length) {
    const problem =
      "two directories have the same name, and would be at the same place; rename one, or mount what holds both";
    throw new SandlotError("invalid_request", { field: "--mount", problem });
  }
  const name = createHash("sha256").update(JSON.stringify(mounts)).digest("hex").slice(0, 12);
  const list = mounts.map(({ sandboxPath, readOnly }) => `${sandboxPath}${readOnly ? " (read-only)" : ""}`).join(", ");
  const begin =
    workspace === undefined ? "" : ` Work in ${PLACE}: the shell begins there, and relative paths are below it.`;
  const more = `The user's own directories are mounted: ${list}. What you change there changes the user's files.${begin}`;
  return {
    option: workspace === undefined ? "--mount" : "--workspace",
    mounts,
    run: { blueprint: `mcp-${name}`, more, ...(workspace !== undefined && { workingDirectory: PLACE }) },
  };
}

/** The configuration with a blueprint for the project: the default one, with its mounts. */
export function withProject(config: FleetConfig, { mounts, run }: Project): FleetConfig {
  const base = config.blueprints?.[DEFAULT_BLUEPRINT] ?? {};
  const blueprint = { ...base, mounts: [...(base.mounts ?? []), ...mounts] };
  return { ...config, blueprints: { ...config.blueprints, [run.blueprint]: blueprint } };
}

function mountOf(text: string): Mount {
  const readOnly = text.endsWith(READ_ONLY);
  const hostPath = directory("--mount", readOnly ? text.slice(0, -READ_ONLY.length) : text);
  return { hostPath, sandboxPath: `/mnt/${basename(hostPath)}`, readOnly };
}

function directory(option: string, path: string): string {
  let problem = "it is no directory";
  try {
    const real = realpathSync(path);
    if (statSync(real).isDirectory() && real !== "/") return real;
    if (real === "/") problem = "the root of the machine cannot be mounted";
  } catch (error) {
    problem = (error as NodeJS.ErrnoException).code === "ENOENT" ? "it does not exist" : (error as Error).message;
  }
  throw new SandlotError("invalid_request", { field: option, problem: `${path}: ${problem}` });
}
