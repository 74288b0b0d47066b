/**
 * The directory that every sandbox mounts: the daemon, the shell that supervises it, and the loader and libraries of
 * both. Node itself is large and lies elsewhere, so it is mounted over an empty file in the directory, or copied where
 * it cannot be mounted.
 *
 * Invariants
 * - A directory is named by a hash of its content and appears by a rename: it is complete or missing, and never
 *   changes.
 * - The loader is executable but not readable. The kernel makes programs that run through it **closed**: processes of
 *   the same account cannot reach their memory, environment and descriptors (unless `fs.suid_dumpable` is 1). The mount
 *   is read-only, so nothing inside can change the mode, not even its owner.
 */

import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import {
  chmodSync,
  copyFileSync,
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { basename, join } from "node:path";
import { promisify } from "node:util";
import { COMPILED_FILES, nativeParts, SANDBOXD_NODE_FLAGS, type SandboxdFiles } from "@sandlot/sandboxd";
import type { World } from "../../world/world.ts";
import type { Binding } from "../mounts/mounts.ts";
import { beginUse, noteUse, sweepUnused } from "./runtime-uses.ts";

/** Names in the directory. None contains `node`: `pkill -f node` inside means the agent's own programs. */
export const RUNTIME = {
  node: "sandboxd-runtime",
  bundle: "sandboxd.cjs",
  /** The program to run: it starts the compiled daemon, or is a link to the bundle where there is none. */
  start: COMPILED_FILES.start,
  supervisor: "supervisor.sh",
  shell: "sh",
  loader: "loader",
  /** The same, for kernels that cannot run an unreadable loader. */
  readableLoader: "loader-r",
  libraries: "lib",
} as const;

export interface RuntimeDirectory {
  readonly path: string;
  /** Whether it has a Node for any image, and a shell; otherwise the image must. Only these are closed. */
  readonly bringsNode: boolean;
  /** The Node to mount into it; `null` when there is none, or the directory contains it. */
  readonly nodePath: string | null;
}

interface Libraries {
  readonly loader: string;
  readonly files: readonly string[];
}

const run = promisify(execFile);
/** Many times the creation of one. */
const DRAFT_MAX_MS = 3_600_000;
const SWEEP_INTERVAL_MS = 3_600_000;
const SHELL = "/bin/sh";
const PATH = "/usr/sbin:/usr/bin:/sbin:/bin";

export interface KeeperParts {
  readonly parent: string;
  readonly nodePath: string;
  readonly daemon: SandboxdFiles;
  readonly seesNode?: boolean;
  /** The directories of both backends' sandbox records; `null` when other fleets use this one: removes none. */
  readonly objects: readonly string[] | null;
  readonly world: Pick<World, "wallMs">;
  /** Hears why a directory that no sandbox uses could not be removed. */
  readonly onProblem: (error: unknown) => void;
}

/** Creates the directory at its first use, and again when it is gone; removes those that no sandbox uses any more. */
export class RuntimeKeeper {
  readonly #parts: KeeperParts;
  #made: Promise<RuntimeDirectory> | null = null;
  #sweptAt = Number.NEGATIVE_INFINITY;

  constructor(parts: KeeperParts) {
    this.#parts = parts;
  }

  /** For a sandbox that is about to be created: its use is noted (`use`) within the next minutes. */
  async get(): Promise<RuntimeDirectory> {
    const { world } = this.#parts;
    let made = await (this.#made ?? this.#makeAnew());
    if (!beginUse(made.path, world.wallMs())) made = await this.#makeAnew();
    this.#sweep(made.path, world.wallMs());
    return made;
  }

  /** Called before mounting. `object` is the path of the sandbox's record. */
  use({ path }: RuntimeDirectory, object: string): void {
    if (this.#parts.objects !== null) noteUse(path, object);
  }

  #makeAnew(): Promise<RuntimeDirectory> {
    const { parent, nodePath, daemon, seesNode } = this.#parts;
    const making = makeRuntimeDirectory(parent, nodePath, daemon, seesNode);
    this.#made = making;
    making.catch(() => {
      if (this.#made === making) this.#made = null;
    });
    return making;
  }

  #sweep(current: string, nowMs: number): void {
    const { parent, objects, onProblem } = this.#parts;
    if (objects === null || nowMs - this.#sweptAt < SWEEP_INTERVAL_MS) return;
    this.#sweptAt = nowMs;
    try {
      sweepUnused({ parent, objects, current, nowMs, onProblem });
    } catch (error) {
      // No sandbox fails for it: the next sweep tries again.
      onProblem(error);
    }
  }
}

/** The mounts, at `directory`. */
export function runtimeBindings({ path, nodePath }: RuntimeDirectory, directory: string): readonly Binding[] {
  const all = { from: path, to: directory, readOnly: true };
  return nodePath === null ? [all] : [all, { from: nodePath, to: join(directory, RUNTIME.node), readOnly: true }];
}

/** `seesNode`: whether Node can be mounted from its own path. */
export async function makeRuntimeDirectory(
  parent: string,
  nodePath: string,
  daemon: SandboxdFiles,
  seesNode = true,
): Promise<RuntimeDirectory> {
  const libraries = await librariesOf([nodePath, SHELL]);
  const copied = libraries === null || seesNode ? null : nodePath;
  const native = nativeParts(daemon).map((part) => part.path);
  const shared = libraries === null ? [] : [libraries.loader, SHELL, ...libraries.files];
  const compiled = daemon.compiled === null ? [] : [daemon.compiled.start, daemon.compiled.code];
  const large = [...shared, ...compiled, ...(copied === null ? [] : [copied])];
  const path = join(parent, `runtime-${keyOf([daemon.bundle, daemon.supervisor, ...native], large)}`);
  const bringsNode = libraries !== null;
  const made = { path, bringsNode, nodePath: bringsNode && seesNode ? nodePath : null };
  if (existsSync(path)) return made;
  mkdirSync(parent, { recursive: true, mode: 0o711 });
  const coming = `${path}.${process.pid}~`;
  try {
    fill(coming, daemon, libraries, copied);
    renameSync(coming, path);
    sweepDrafts(parent, statSync(path).mtimeMs);
  } catch (error) {
    rmSync(coming, { recursive: true, force: true });
    // Another process was faster, with the same content.
    if (!existsSync(path)) throw error;
  }
  return made;
}

/** Removes half-made directories of killed processes, much older than the one just made. */
function sweepDrafts(parent: string, nowMs: number): void {
  for (const name of readdirSync(parent)) {
    if (!/^runtime-[^.]+\.\d+~$/.test(name)) continue;
    const path = join(parent, name);
    const stats = statSync(path, { throwIfNoEntry: false });
    if (stats !== undefined && nowMs - stats.mtimeMs > DRAFT_MAX_MS) rmSync(path, { recursive: true, force: true });
  }
}

/**
 * The command line that starts the supervisor from this directory, mounted at `directory`: `script` sources it as `$0`.
 * It is closed unless the kernel cannot run an unreadable loader.
 */
export function closedSupervisor(directory: string, script: string, isReadable = false): readonly string[] {
  const at = (name: string) => join(directory, name);
  const loader = isReadable ? RUNTIME.readableLoader : RUNTIME.loader;
  const load = [at(loader), "--library-path", at(RUNTIME.libraries)];
  const daemon = [...load, at(RUNTIME.node), ...SANDBOXD_NODE_FLAGS, at(RUNTIME.start)];
  return [...load, at(RUNTIME.shell), "-c", script, at(RUNTIME.supervisor), ...daemon];
}

const LOADERS: Readonly<Record<string, string>> = {
  x64: "/lib64/ld-linux-x86-64.so.2",
  arm64: "/lib/ld-linux-aarch64.so.1",
};

/** Why the daemon cannot be closed to commands on this machine; `null` where it can. */
export function closingProblem(): string | null {
  const loader = LOADERS[process.arch];
  if (process.platform !== "linux" || loader === undefined || !existsSync(loader))
    return "this machine has no loader of the GNU C library";
  const isDebugging = readFileSync("/proc/sys/fs/suid_dumpable", "latin1").trim() === "1";
  return isDebugging ? "fs.suid_dumpable is 1, which opens every process to its own account" : null;
}

function fill(directory: string, daemon: SandboxdFiles, libraries: Libraries | null, copied: string | null): void {
  const put = (from: string, name: string, mode: number) => {
    copyFileSync(from, join(directory, name));
    chmodSync(join(directory, name), mode);
  };
  mkdirSync(join(directory, RUNTIME.libraries), { recursive: true });
  put(daemon.bundle, RUNTIME.bundle, 0o444);
  put(daemon.supervisor, RUNTIME.supervisor, 0o444);
  if (daemon.compiled !== null) {
    put(daemon.compiled.start, COMPILED_FILES.start, 0o444);
    put(daemon.compiled.code, COMPILED_FILES.code, 0o444);
  } else linkSync(join(directory, RUNTIME.bundle), join(directory, RUNTIME.start));
  for (const { path, name } of nativeParts(daemon)) put(path, name, 0o555);
  if (copied === null) writeFileSync(join(directory, RUNTIME.node), "", { mode: 0o444 });
  else linkOrCopy(realpathSync(copied), join(directory, RUNTIME.node));
  if (libraries !== null) {
    put(libraries.loader, RUNTIME.loader, 0o111);
    put(libraries.loader, RUNTIME.readableLoader, 0o555);
    put(realpathSync(SHELL), RUNTIME.shell, 0o555);
    for (const file of libraries.files) put(file, join(RUNTIME.libraries, basename(file)), 0o555);
  }
  chmodSync(join(directory, RUNTIME.libraries), 0o755);
  chmodSync(directory, 0o755);
}

/** A hundred megabytes are copied only from another disk. */
function linkOrCopy(from: string, to: string): void {
  try {
    linkSync(from, to);
  } catch {
    copyFileSync(from, to);
    chmodSync(to, 0o555);
  }
}

/**
 * The libraries of programs of this machine, with their one loader, which takes a search path. `null` where there is no
 * such loader (musl, macOS), so nothing that a Linux container could use.
 */
async function librariesOf(programs: readonly string[]): Promise<Libraries | null> {
  if (process.platform !== "linux") return null;
  // It fails when one of them is statically linked; then its output is not enough either.
  const { stdout } = await run("ldd", [...programs], { env: { PATH } }).catch(() => ({ stdout: "" }));
  const lines = stdout.split("\n");
  const files = new Set(lines.flatMap((line) => /=> (\/\S+) \(0x/.exec(line)?.[1] ?? []));
  const loaders = new Set(lines.flatMap((line) => /^\s*(\/\S+) \(0x/.exec(line)?.[1] ?? []));
  const [loader, ...others] = loaders;
  const isUsable = loader !== undefined && others.length === 0 && files.size > 0 && !/musl/.test(loader);
  return isUsable ? { loader, files: [...files] } : null;
}

/** Large files are identified by size and time: reading them costs too much. */
function keyOf(files: readonly string[], large: readonly string[]): string {
  const hash = createHash("sha256").update(JSON.stringify(RUNTIME));
  for (const file of [...files, ...large]) {
    const { size, mtimeMs } = statSync(file);
    hash.update(`${file} ${size} ${mtimeMs}\n`);
  }
  for (const file of files) hash.update(readFileSync(file));
  return hash.digest("hex").slice(0, 16);
}
