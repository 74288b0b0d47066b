/**
 * `@sandlot/sandboxd`: where the daemon is and how a backend starts it. The daemon is one file without dependencies, made
 * by `bundle.mjs`, and runs on Node 20 and newer, whatever runs the fleet.
 *
 * In a pid namespace of its own a sandbox begins with the supervisor, as pid 1 (`bwrap --as-pid-1`, a container without an
 * init of the engine's):
 *
 *   argv          supervisedCommand({ node, bundle, supervisor })     paths as they are inside the sandbox
 *   descriptor 3  configText(config), then the end
 *   descriptor 4  where the ready line comes; in the configuration `ready: { fd: 4 }`
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

/** Which descriptors the first process of a sandbox is given. */
export const SUPERVISED_DESCRIPTORS = { config: 3, ready: 4, listen: 5 } as const;

/** The daemon, as a file to mount into a sandbox and run. The same from source and from the build. */
export const SANDBOXD_FILE: string = fileURLToPath(new URL("../dist/sandboxd.cjs", import.meta.url));

/** What a sandbox needs, on this machine. */
export interface SandboxdFiles {
  /** The daemon: run by Node. */
  readonly bundle: string;
  /** The first process: run by `sh`. */
  readonly supervisor: string;
  /** The daemon compiled, and what starts it in place of the bundle. `null` where it was not made. */
  readonly compiled: { readonly start: string; readonly code: string } | null;
  /** Terminals. `null` where there is none for this platform. */
  readonly pty: string | null;
  /** Processes without a fork. `null` where there is none for this platform: Node forks then. */
  readonly koffi: string | null;
}

/** What must lie beside the bundle, and under which names it looks for it. */
export const NATIVE_FILES = { pty: "pty.node", koffi: "koffi.node" } as const;
/** Beside the bundle too, under these names: `start-compiled.ts`. */
export const COMPILED_FILES = { start: "start-compiled.cjs", code: "sandboxd.compiled" } as const;

export function sandboxdFiles(): SandboxdFiles {
  return filesBeside(SANDBOXD_FILE);
}

/** The native parts that there are, and what each is called beside the bundle. */
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

/** Of a daemon that was made by `bundle.mjs`. */
export function filesBeside(bundle: string): SandboxdFiles {
  const at = (name: string): string => join(dirname(bundle), name);
  const native = (name: string): string | null => (existsSync(at(name)) ? at(name) : null);
  const { pty, koffi } = NATIVE_FILES;
  const [start, code] = [native(COMPILED_FILES.start), native(COMPILED_FILES.code)];
  const compiled = start === null || code === null ? null : { start, code };
  return { bundle, supervisor: at("supervisor.sh"), compiled, pty: native(pty), koffi: native(koffi) };
}

/** What to run as the first process of a sandbox. All paths as they are inside. */
export function supervisedCommand(paths: {
  readonly node: string;
  readonly bundle: string;
  readonly supervisor: string;
  /** Default `/bin/sh`. */
  readonly shell?: string;
}): readonly string[] {
  return [paths.shell ?? "/bin/sh", paths.supervisor, paths.node, ...SANDBOXD_NODE_FLAGS, paths.bundle];
}

/** A configuration as the daemon reads it: one line, and of the token only what it takes to check one. */
export function configText({ token, ...config }: DaemonConfig): string {
  return `${JSON.stringify({ ...config, tokenHash: createHash("sha256").update(token).digest("hex") })}\n`;
}

/**
 * How its Node is started. Where a command is a fork of the daemon, it costs what the daemon has in memory, and more where its
 * threads have run on another processor: a sixth of a command's time. (`--single-threaded` would do the same, but
 * Node then throws away what it has compiled ahead, and takes half as long again to start.)
 */
export const SANDBOXD_NODE_FLAGS: readonly string[] = [
  "--single-threaded-gc",
  "--no-concurrent-recompilation",
  "--v8-pool-size=1",
  "--max-semi-space-size=1",
];
