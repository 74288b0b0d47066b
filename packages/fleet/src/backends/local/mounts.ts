/**
 * Configured mounts: which are refused, and why.
 *
 * Invariants
 * - No spelling of a reserved path, or of one above it, gets through: paths are normalized before they are compared.
 * - A host path is taken with its links resolved. It never holds, or lies in, the fleet's own directory, nor in
 *   something that a sandbox may write, because then a sandbox would decide what the next one sees.
 */

import { realpathSync, statSync } from "node:fs";
import { isAbsolute, posix } from "node:path";
import { SandlotError } from "@sandlot/contract";
import type { Blueprint } from "../../backend/blueprint.ts";

/** A host path, and where it is seen inside. */
export interface Binding {
  readonly from: string;
  readonly to: string;
  readonly readOnly: boolean;
}

type Mount = Blueprint["mounts"][number];

const SKILLS = "/mnt/skills";

/** Neither these nor anything in them. */
const RESERVED_TREES = [
  ...["/mnt/user-data", "/mnt/acp-workspace", SKILLS],
  ...["/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/run", "/sbin", "/sys", "/usr"],
  "/var/tmp",
];
/** These themselves, but what is in them may be mounted over. */
const RESERVED_PATHS = ["/", "/mnt", "/tmp", "/home", "/home/sandbox", "/root", "/var"];
/** Of the host: the kernel's own views of the machine. */
const REFUSED_HOST_TREES = ["/proc", "/sys", "/dev"];

/** The mounts as they are to be made, skills among them. Throws `mount_refused`. */
export function checkMounts(
  configured: readonly Mount[],
  skillsPath: string | null,
  fleetRoot: string,
): readonly Binding[] {
  const skills = skillsPath === null ? [] : [{ hostPath: skillsPath, sandboxPath: SKILLS, readOnly: true }];
  const mounts = [...skills, ...configured];
  const bindings = mounts.map((mount, index) => ({
    from: checkedHostPath(mount, fleetRoot),
    to: index < skills.length ? SKILLS : checkedSandboxPath(mount),
    readOnly: mount.readOnly,
  }));
  for (const [index, binding] of bindings.entries()) {
    const mount = mounts[index];
    if (mount === undefined) continue;
    const others = bindings.filter((other) => other !== binding);
    if (others.some(({ to }) => to === binding.to)) throw refused(mount, "another mount has the same place");
    if (others.some(({ from, readOnly }) => !readOnly && from !== binding.from && isWithin(binding.from, from)))
      throw refused(mount, "it lies in a directory that sandboxes may write, so a sandbox could replace it");
  }
  // What lies deeper is mounted later, so that it is not covered.
  return bindings.sort((a, b) => a.to.split("/").length - b.to.split("/").length);
}

function checkedSandboxPath(mount: Mount): string {
  const { sandboxPath } = mount;
  if (!isAbsolute(sandboxPath) || sandboxPath.includes("\0")) throw refused(mount, "the path inside must be absolute");
  if (sandboxPath.split("/").includes("..")) throw refused(mount, "the path inside must not contain ..");
  const path = posix
    .normalize(sandboxPath)
    .replace(/(?<=.)\/+$/, "")
    .replace(/^\/\/+/, "/");
  const reserved = RESERVED_PATHS.find((one) => one === path) ?? RESERVED_TREES.find((tree) => isWithin(path, tree));
  if (reserved !== undefined) throw refused(mount, `${reserved} is reserved`);
  return path;
}

function checkedHostPath(mount: Mount, fleetRoot: string): string {
  const { hostPath } = mount;
  if (!isAbsolute(hostPath) || hostPath.includes("\0")) throw refused(mount, "the host path must be absolute");
  const path = resolved(mount);
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

/** Whether `path` is `tree` or lies in it. */
export function isWithin(path: string, tree: string): boolean {
  return path === tree || path.startsWith(tree === "/" ? "/" : `${tree}/`);
}

function refused({ hostPath, sandboxPath }: Mount, problem: string): SandlotError {
  return new SandlotError("mount_refused", { hostPath, sandboxPath, problem });
}
