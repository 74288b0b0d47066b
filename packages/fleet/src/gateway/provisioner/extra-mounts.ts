/**
 * The extra mounts of a provisioner's client: which are allowed, by DeerFlow's rules and one more.
 *
 * - A host path lies in the base directory of the configuration; without one there are no extra mounts.
 * - No part of it below the base is a symbolic link: a sandbox that may write one mount could put a link there, and the
 *   next sandbox would see what it leads to.
 * - A path inside is one of seven places, each at most once. It wins over a mount of the blueprint at the same place.
 */

import { realpath, stat } from "node:fs/promises";
import { isAbsolute, join, posix, relative, resolve } from "node:path";
import { type ExtraMount, SandlotError } from "@sandlot/contract";
import type { Blueprint } from "../../backend/blueprint.ts";
import { isMissing } from "../../world/disk-trouble.ts";
import { makeDirectories } from "../../world/make-directories.ts";
import { isWithin } from "../../world/paths.ts";

const MOUNTS_MAX = 10;
const LARK = "/mnt/integrations/lark-cli";
const PLACES: readonly string[] = [
  ...["/mnt/acp-workspace", "/mnt/skills/custom", "/mnt/skills/integrations"],
  ...["config", "config/locks", "data", "runtime"].map((name) => `${LARK}/${name}`),
];

/** Throws `invalid_request`. A missing directory that may be written is made, as Kubernetes does. */
export async function checkExtraMounts(
  mounts: readonly ExtraMount[],
  basePath: string | null,
): Promise<Blueprint["mounts"]> {
  if (mounts.length === 0) return [];
  if (basePath === null)
    throw refused("this gateway allows none; its configuration can, with provisioner.hostBasePath");
  if (mounts.length > MOUNTS_MAX) throw refused(`there are ${mounts.length}, and at most ${MOUNTS_MAX} are allowed`);
  const base = await realBase(basePath);
  const seen = new Set<string>();
  const checked: Blueprint["mounts"][number][] = [];
  for (const { host_path, container_path, read_only } of mounts) {
    const sandboxPath = placeOf(container_path);
    if (seen.has(sandboxPath)) throw refused(`container_path ${shown(container_path)} is there twice`);
    seen.add(sandboxPath);
    const hostPath = await realHostPath(host_path, basePath, base, read_only);
    checked.push({ hostPath, sandboxPath, readOnly: read_only, replaces: true });
  }
  return checked;
}

function placeOf(path: string): string {
  if (!posix.isAbsolute(path)) throw refused(`container_path ${shown(path)} is not absolute`);
  const place = posix.resolve(path);
  if (!PLACES.includes(place))
    throw refused(`container_path ${shown(path)} is not allowed; allowed are ${PLACES.join(", ")}`);
  return place;
}

async function realHostPath(path: string, basePath: string, base: string, isReadOnly: boolean): Promise<string> {
  if (!isAbsolute(path) || path.includes("\0")) throw refused(`host_path ${shown(path)} is not absolute`);
  const normal = resolve(path);
  if (!isWithin(normal, resolve(basePath))) throw refused(`host_path ${shown(path)} is outside of ${basePath}`);
  const expected = join(base, relative(resolve(basePath), normal));
  if (!isReadOnly) await makeIfMissing(expected, base);
  const real = await realpath(expected).catch((error: unknown) => {
    if (isMissing(error)) throw refused(`host_path ${shown(path)} does not exist`);
    throw error;
  });
  if (real !== expected) throw refused(`host_path ${shown(path)} leads through a symbolic link`);
  if (!(await stat(real)).isDirectory()) throw refused(`host_path ${shown(path)} is not a directory`);
  return real;
}

/** Nothing is made behind a link: its nearest existing parent must be where it seems to be. */
async function makeIfMissing(path: string, base: string): Promise<void> {
  for (let parent = path; isWithin(parent, base); parent = join(parent, "..")) {
    try {
      if ((await realpath(parent)) !== parent) throw refused(`host_path ${shown(path)} leads through a symbolic link`);
      if (parent !== path) makeDirectories(path, 0o755);
      return;
    } catch (error) {
      if (!isMissing(error)) throw error;
    }
  }
}

async function realBase(basePath: string): Promise<string> {
  try {
    return await realpath(basePath);
  } catch (error) {
    if (!isMissing(error)) throw error;
    throw refused(`the base directory ${basePath} of the gateway's configuration does not exist`);
  }
}

function shown(path: string): string {
  return JSON.stringify(path.slice(0, 200));
}

function refused(problem: string): SandlotError {
  return new SandlotError("invalid_request", { field: "extra_mounts", problem });
}
