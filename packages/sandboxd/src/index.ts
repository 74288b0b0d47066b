/**
 * `@sandlot/sandboxd`: the daemon's files and how a backend starts it. The daemon is one file without dependencies,
 * made by `bundle.mjs`, and runs on Node 20 and newer, whatever runs the fleet.
 *
 * In a pid namespace of its own a sandbox begins with the supervisor, as pid 1 (`bwrap --as-pid-1`, a container without
 * an init of the engine's):
 *
 *   argv          supervisedCommand({ node, bundle, supervisor })     paths as they are inside the sandbox
 *   descriptor 3  configText(config), then the end
 *   descriptor 4  receives the ready line; in the configuration `ready: { fd: 4 }`
 *   descriptor 5  a listening socket; in the configuration `listen: { fd: 5 }`. Not needed with a path or a port
 *
 * `node` is a link to Node that is not called `node`, with no `node` in its path. The environment is clean, with `PATH`
 * and `TMPDIR`. Elsewhere the daemon runs by itself, with `--config-fd 3` instead of the supervisor.
 */

import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import type { DaemonConfig } from "@sandlot/contract";

/** The descriptors of a sandbox's first process. */
export const SUPERVISED_DESCRIPTORS = { config: 3, ready: 4, listen: 5 } as const;

/** The daemon, as a file to mount into a sandbox and run. The same from source and from the build. */
export const SANDBOXD_FILE: string = fileURLToPath(new URL("../dist/sandboxd.cjs", import.meta.url));

/** The files that a sandbox needs, on this machine. */
export interface SandboxdFiles {
  /** The daemon: run by Node. */
  readonly bundle: string;
  /** The first process: run by `sh`. */
  readonly supervisor: string;
  /** The daemon compiled, and the file that starts it in place of the bundle. `null` where the build made none. */
  readonly compiled: { readonly start: string; readonly code: string } | null;
  /** Terminals. `null` where there is none for this platform. */
  readonly pty: string | null;
  /** Processes without a fork. `null` where there is none for this platform: Node forks then. */
  readonly koffi: string | null;
}

/** The names of the native files beside the bundle. */
export const NATIVE_FILES = { pty: "pty.node", koffi: "koffi.node" } as const;
/** The names of the compiled files beside the bundle: `start-compiled.ts`. */
export const COMPILED_FILES = { start: "start-compiled.cjs", code: "sandboxd.compiled" } as const;

export function sandboxdFiles(): SandboxdFiles {
  return filesBeside(SANDBOXD_FILE);
}

/** The native parts that exist, with their names beside the bundle. */
export function nativeParts({
  pty,
  koffi,
}: SandboxdFiles): readonly { readonly path: string; readonly name: string }[] {
  const parts = [
    { path: pty, name: NATIVE_FILES.pty },
    { path: koffi, name: NATIVE_FILES.koffi },
  ];
  return parts.flatMap(({ path, name }) => (path === null ? [] : [{ path, name }]));
}

/** The files beside a bundle that `bundle.mjs` made. */
export function filesBeside(bundle: string): SandboxdFiles {
  const at = (name: string): string => join(dirname(bundle), name);
  const native = (name: string): string | null => (existsSync(at(name)) ? at(name) : null);
  const { pty, koffi } = NATIVE_FILES;
  const [start, code] = [native(COMPILED_FILES.start), native(COMPILED_FILES.code)];
  const compiled = start === null || code === null ? null : { start, code };
  return { bundle, supervisor: at("supervisor.sh"), compiled, pty: native(pty), koffi: native(koffi) };
}

/** The command of a sandbox's first process. All paths are those inside. */
export function supervisedCommand(paths: {
  readonly node: string;
  readonly bundle: string;
  readonly supervisor: string;
  /** Default `/bin/sh`. */
  readonly shell?: string;
}): readonly string[] {
  return [paths.shell ?? "/bin/sh", paths.supervisor, paths.node, ...SANDBOXD_NODE_FLAGS, paths.bundle];
}

/** A configuration in the daemon's format: one line, with only the token's check value in place of the token. */
export function configText({ token, ...config }: DaemonConfig): string {
  return `${JSON.stringify({ ...config, tokenHash: createHash("sha256").update(token).digest("hex") })}\n`;
}

/**
 * The flags of the daemon's Node. Where a command is a fork of the daemon, it costs as much as the daemon has in
 * memory, and more where its threads have run on another processor: a sixth of a command's time. (`--single-threaded`
 * would do the same, but Node then discards its precompiled code, and takes half as long again to start.)
 */
export const SANDBOXD_NODE_FLAGS: readonly string[] = [
  "--single-threaded-gc",
  "--no-concurrent-recompilation",
  "--v8-pool-size=1",
  "--max-semi-space-size=1",
];
