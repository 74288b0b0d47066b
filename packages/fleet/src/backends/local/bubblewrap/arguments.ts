/**
 * The command line of bubblewrap for one sandbox.
 *
 * Invariants
 * - No process inside has a capability, may gain one, or may make a user namespace; all run as `sandbox`.
 * - The root is read-only. Only the workspace, mounts configured as writable, and file systems in memory with a size
 *   can be written.
 * - The argument list holds no secret: every process of the host can read it.
 */

import { HOME_LINK } from "@sandlot/contract";
import type { Binding } from "../../../host/mounts/mounts.ts";
import { INNER_ACCOUNT } from "../../../sandboxd/inner-account.ts";
import type { BubblewrapFeatures } from "./features.ts";
import { HOSTNAME } from "./system-files.ts";

export interface SandboxShape {
  readonly features: BubblewrapFeatures;
  /** From `system-files.ts`. */
  readonly system: readonly string[];
  readonly proc: readonly string[];
  /** File contents by path, each with the descriptor that supplies it. */
  readonly files: readonly { readonly path: string; readonly fd: number }[];
  /** The workspace, or a blank's whole `/mnt`, the daemon's files, and configured mounts. */
  readonly bindings: readonly Binding[];
  /** The allowed size of a file system in memory, for a wanted size. */
  readonly memoryBytes: (wanted: number) => number;
  readonly temporaryBytes: number;
  /** The path of the home. */
  readonly home: string;
  /** The size of a home in memory; `null` for a home in the workspace. */
  readonly homeBytes: number | null;
  /** Keeps the network namespace that it is started in, instead of a new empty one. */
  readonly keepsNetwork: boolean;
  readonly statusFd: number;
  readonly seccompFd: number | null;
  readonly command: readonly string[];
}

/** For the daemon alone: commands that fill `/tmp` must not stop it. */
export const DAEMON_DIRECTORY = "/run/sandlot";
export const DAEMON_TEMPORARY = `${DAEMON_DIRECTORY}/tmp`;
const DAEMON_TEMPORARY_BYTES = 64 * 1024 * 1024;
const SHARED_MEMORY_BYTES = 64 * 1024 * 1024;

export function bubblewrapArguments(shape: SandboxShape): readonly string[] {
  const { features, statusFd, seccompFd } = shape;
  return [
    ...["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"],
    ...(shape.keepsNetwork ? [] : ["--unshare-net"]),
    ...(features.disableUserNamespaces ? ["--disable-userns"] : []),
    ...["--uid", String(INNER_ACCOUNT.uid), "--gid", String(INNER_ACCOUNT.gid)],
    ...["--hostname", HOSTNAME, "--cap-drop", "ALL", "--new-session", "--as-pid-1"],
    ...["--json-status-fd", String(statusFd)],
    ...(seccompFd === null ? [] : ["--seccomp", String(seccompFd)]),
    ...fileSystem(shape),
    ...["--chdir", "/", "--setenv", "TMPDIR", DAEMON_TEMPORARY],
    ...["--", ...shape.command],
  ];
}

function fileSystem(shape: SandboxShape): string[] {
  const { features, system, proc, files, bindings, temporaryBytes, home, homeBytes, memoryBytes } = shape;
  const memory = (path: string, bytes: number, mode: string) => [
    ...["--perms", mode],
    ...(features.size ? ["--size", String(memoryBytes(bytes))] : []),
    ...["--tmpfs", path],
  ];
  const directory = (path: string) => ["--perms", "0755", "--dir", path];
  const hasOwn = bindings.some(({ to }) => to === "/mnt" || to === "/mnt/acp-workspace");
  return [
    ...directory("/etc"),
    ...system,
    ...files.flatMap(({ path, fd }) => ["--perms", "0644", "--file", String(fd), path]),
    ...proc,
    ...["--dev", "/dev", ...memory("/dev/shm", SHARED_MEMORY_BYTES, "1777"), "--remount-ro", "/dev"],
    ...memory("/tmp", temporaryBytes, "1777"),
    ...["/var", "/sys", "/root", "/home", "/run", DAEMON_DIRECTORY, "/mnt"].flatMap(directory),
    ...["--symlink", "../tmp", "/var/tmp", "--symlink", home, HOME_LINK],
    ...(homeBytes === null ? [] : memory(home, homeBytes, "0700")),
    ...memory(DAEMON_TEMPORARY, DAEMON_TEMPORARY_BYTES, "0700"),
    ...bindings.flatMap(({ from, to, readOnly }) => [readOnly ? "--ro-bind" : "--bind", from, to]),
    ...(hasOwn ? [] : ["--symlink", "user-data/.acp-workspace", "/mnt/acp-workspace"]),
    ...["--remount-ro", "/"],
  ];
}
