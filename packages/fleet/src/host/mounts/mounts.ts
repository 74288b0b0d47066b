/**
 * Configured mounts: which are refused, and why.
 *
 * Invariants
 * - Every spelling of a reserved path, or of one above it, is refused: paths are normalized before they are compared.
 *   A mount that may replace (`Blueprint.mounts`) can have `/mnt/acp-workspace`, or a place below `/mnt/skills`.
 * - A host path is used with its links resolved. It never contains, or lies in, the fleet's own directory.
 * - No part of a host path, nor of a nested destination, is resolved in a directory that a sandbox of any blueprint may
 *   write. Otherwise a sandbox would decide what the next one sees, and where.
 */

import { realpathSync, statSync } from "node:fs";
import { isAbsolute, posix } from "node:path";
import { HOME_LINK, SandlotError, TEMPORARY_HOME } from "@sandlot/contract";
import type { Blueprint, BlueprintMount } from "../../backend/blueprint.ts";
import { isWithin } from "../../world/paths.ts";
import type { MountPoint } from "../workspaces/slots.ts";
import { type Binding, lookedUpIn, mountPointOf, mountPointProblem, outerOf } from "./mount-points.ts";

export type { Binding } from "./mount-points.ts";

/** A mount of a path of the host. */
type Mount = {
  readonly hostPath: string;
  readonly sandboxPath: string;
  readonly readOnly: boolean;
  readonly replaces?: boolean | undefined;
};
type Blueprints = Readonly<Record<string, { readonly blueprint: Pick<Blueprint, "mounts"> }>>;

const SKILLS = "/mnt/skills";
const ACP_WORKSPACE = "/mnt/acp-workspace";

/** Refused, with everything below them. */
const RESERVED_TREES = [
  // The home's link leads into the workspace.
  ...["/mnt/user-data", ACP_WORKSPACE, SKILLS, HOME_LINK],
  ...["/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/run", "/sbin", "/sys", "/usr"],
  "/var/tmp",
];
/** Refused themselves, but paths below them may be mounted over. */
const RESERVED_PATHS = ["/", "/mnt", "/tmp", "/home", TEMPORARY_HOME, "/root", "/var"];
/** On the host: the kernel's own views of the machine. */
const REFUSED_HOST_TREES = ["/proc", "/sys", "/dev"];

/** The mounts to make, including skills. `blueprints` are all of the fleet's. Throws `mount_refused`. */
export function checkMounts(
  given: readonly BlueprintMount[],
  skillsPath: string | null,
  fleetRoot: string,
  blueprints: Blueprints = {},
): readonly Binding[] {
  const configured = given.map(hostMount);
  const skills = skillsPath === null ? [] : [{ hostPath: skillsPath, sandboxPath: SKILLS, readOnly: true }];
  const mounts = [...skills, ...configured];
  const bindings = mounts.map((mount, index) => ({
    from: checkedHostPath(mount, fleetRoot),
    to: index < skills.length ? SKILLS : checkedSandboxPath(mount),
    readOnly: mount.readOnly,
  }));
  const others = Object.values(blueprints).flatMap((one) => one.blueprint.mounts);
  const writable = writableTrees([...configured, ...others.map(hostMount)]);
  for (const [index, binding] of bindings.entries()) {
    const mount = mounts[index];
    if (mount === undefined) continue;
    const problem = problemAmong(binding, mount, bindings, writable);
    if (problem !== null) throw refused(mount, problem);
  }
  // Deeper destinations are mounted later, so that they are not covered.
  return bindings.sort((a, b) => a.to.split("/").length - b.to.split("/").length);
}

/** The configuration allows volumes only where the backend has them. */
function hostMount({ hostPath, volume, sandboxPath, readOnly, replaces }: BlueprintMount): Mount {
  if (hostPath !== undefined) return { hostPath, sandboxPath, readOnly, replaces };
  throw refused({ hostPath: volume, sandboxPath, readOnly }, "this backend has no volumes, only paths of the host");
}

/** A mount that landed at another place than configured. */
export function misplaced({ from, to }: Binding): SandlotError {
  const problem = "it was not mounted at its place; a symbolic link may lead elsewhere";
  return refused({ hostPath: from, sandboxPath: to, readOnly: true }, problem);
}

function problemAmong(
  binding: Binding,
  { hostPath }: Mount,
  bindings: readonly Binding[],
  writable: readonly string[],
): string | null {
  if (bindings.some((other) => other !== binding && other.to === binding.to)) return "another mount has the same place";
  const isReplaceable = (path: string) => lookedUpIn(path).some((one) => writable.some((tree) => isWithin(one, tree)));
  if (isReplaceable(hostPath)) return "it lies in a directory that sandboxes may write, so a sandbox could replace it";
  const outer = outerOf(binding, bindings);
  if (outer === undefined) return null;
  if (isReplaceable(mountPointOf(binding, outer)))
    return `its place lies in the mount of ${outer.to}, where sandboxes may write, so a sandbox could put a link there`;
  return mountPointProblem(binding, outer);
}

/** Trees that sandboxes can write through some mount. A missing path cannot be mounted. */
function writableTrees(mounts: readonly Mount[]): readonly string[] {
  const paths = mounts.filter(({ readOnly }) => !readOnly).map(({ hostPath }) => hostPath);
  return [...new Set(paths)].flatMap((path) => {
    try {
      return [realpathSync(path)];
    } catch {
      return [];
    }
  });
}

function checkedSandboxPath(mount: Mount): string {
  const { sandboxPath } = mount;
  if (!isAbsolute(sandboxPath) || sandboxPath.includes("\0")) throw refused(mount, "the path inside must be absolute");
  if (sandboxPath.split("/").includes("..")) throw refused(mount, "the path inside must not contain ..");
  const path = posix
    .normalize(sandboxPath)
    .replace(/(?<=.)\/+$/, "")
    .replace(/^\/\/+/, "/");
  if (mount.replaces === true && (path === ACP_WORKSPACE || path.startsWith(`${SKILLS}/`))) return path;
  const reserved = RESERVED_PATHS.find((one) => one === path) ?? RESERVED_TREES.find((tree) => isWithin(path, tree));
  if (reserved !== undefined) throw refused(mount, `${reserved} is reserved`);
  return path;
}

function checkedHostPath(mount: Mount, fleetRoot: string): string {
  const { hostPath } = mount;
  if (!isAbsolute(hostPath) || hostPath.includes("\0")) throw refused(mount, "the host path must be absolute");
  const path = resolved(mount);
  // The mount of a request was checked without links. One that has come since leads elsewhere.
  if (mount.replaces === true && path !== hostPath) throw refused(mount, "a link leads to another place");
  const kind = statSync(path);
  if (!kind.isDirectory() && !kind.isFile()) throw refused(mount, "only directories and files can be mounted");
  const root = realpathSync(fleetRoot);
  if (isWithin(path, root)) throw refused(mount, "it lies in the fleet's own directory");
  if (isWithin(root, path)) throw refused(mount, "it holds the fleet's own directory, and with it every thread's data");
  const tree = REFUSED_HOST_TREES.find((refusedTree) => isWithin(path, refusedTree));
  if (tree !== undefined) throw refused(mount, `${tree} shows the machine itself`);
  return path;
}

function resolved(mount: Mount): string {
  try {
    return realpathSync(mount.hostPath);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw refused(
      mount,
      code === "ENOENT"
        ? "the host path does not exist; create it first, or correct the blueprint"
        : `the host path cannot be reached (${code})`,
    );
  }
}

function refused({ hostPath, sandboxPath }: Mount, problem: string): SandlotError {
  return new SandlotError("mount_refused", { hostPath, sandboxPath, problem });
}

/** The mount points that a slot or a frame needs from the start, because nothing can be created in it later. */
export function mountPointsOf(mounts: readonly Binding[]): readonly MountPoint[] {
  return mounts
    .filter(({ to }) => to.startsWith("/mnt/"))
    .map(({ from, to }) => ({
      path: to.slice("/mnt/".length),
      kind: statSync(from).isDirectory() ? "directory" : "file",
    }));
}
