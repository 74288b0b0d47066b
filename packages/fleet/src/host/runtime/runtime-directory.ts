/**
 * The directory that every sandbox mounts: the daemon, the shell that supervises it, and the loader and libraries of both.
 * Node itself is mounted over an empty file in it, since it is large and lies elsewhere; it is copied where that place cannot
 * be mounted.
 *
 * Invariants
 * - A directory is named by what is in it and appears by a rename: it is complete or not there, and never changes.
 * - The loader may be executed and not read. The kernel makes what is run by such a program **closed**: its memory, environment
 *   and descriptors are out of reach for processes of the same account (unless `fs.suid_dumpable` is 1). The mount is
 *   read-only, so nothing inside can change the mode, the owner neither.
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

/** Names in the directory. No `node` in any of them: `pkill -f node` inside means the agent's own programs. */
export const RUNTIME = {
  node: "sandboxd-runtime",
  bundle: "sandboxd.cjs",
  /** Which of both is run: what starts the compiled daemon, or a link to the bundle where there is none. */
  start: COMPILED_FILES.start,
  supervisor: "supervisor.sh",
  shell: "sh",
  loader: "loader",
  /** The same, for kernels that run nothing they cannot read. */
  readableLoader: "loader-r",
  libraries: "lib",
} as const;

export interface RuntimeDirectory {
  readonly path: string;
  /** Whether there is a Node that runs in any image, and a shell; otherwise the image must have them. Only these are closed. */
  readonly bringsNode: boolean;
  /** The Node to mount into it; `null` when there is none, or it is in it already. */
  readonly nodePath: string | null;
}

interface Libraries {
  readonly loader: string;
  readonly files: readonly string[];
}

const run = promisify(execFile);
/** Many times what making one takes. */
const DRAFT_MAX_MS = 3_600_000;
const SWEEP_INTERVAL_MS = 3_600_000;
const SHELL = "/bin/sh";
const PATH = "/usr/sbin:/usr/bin:/sbin:/bin";

export interface KeeperParts {
  readonly parent: string;
  readonly nodePath: string;
  readonly daemon: SandboxdFiles;
  readonly seesNode?: boolean;
  /** Where sandboxes are written down, by both backends; `null` where other fleets use the directory: then none is removed. */
  readonly objects: readonly string[] | null;
  readonly world: Pick<World, "wallMs">;
  /** Hears why a directory that no sandbox uses could not be removed. */
  readonly onProblem: (error: unknown) => void;
}

/** Makes the directory when it is first needed, and again when it is gone; removes those that no sandbox uses any more. */
export class RuntimeKeeper {
  readonly #parts: KeeperParts;
  #made: Promise<RuntimeDirectory> | null = null;
  #sweptAt = Number.NEGATIVE_INFINITY;

  constructor(parts: KeeperParts) {
    this.#parts = parts;
  }

  /** Of a sandbox that is about to be made: its use is noted (`use`) within the next minutes. */
  async get(): Promise<RuntimeDirectory> {
    const { world } = this.#parts;
    let made = await (this.#made ?? this.#makeAnew());
    if (!beginUse(made.path, world.wallMs())) made = await this.#makeAnew();
    this.#sweep(made.path, world.wallMs());
    return made;
  }

  /** Before it is mounted. `object` is the path of what is written down of the sandbox. */
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

/** What is mounted, at `directory`. */
export function runtimeBindings({ path, nodePath }: RuntimeDirectory, directory: string): readonly Binding[] {
  const all = { from: path, to: directory, readOnly: true };
  return nodePath === null ? [all] : [all, { from: nodePath, to: join(directory, RUNTIME.node), readOnly: true }];
}

/** `seesNode` is whether Node can be mounted from where it is. */
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
    // Somebody else was faster, with the same.
    if (!existsSync(path)) throw error;
  }
  return made;
}

/** Removes what killed processes have left half made, long before the one that was just made. */
function sweepDrafts(parent: string, nowMs: number): void {
  for (const name of readdirSync(parent)) {
    if (!/^runtime-[^.]+\.\d+~$/.test(name)) continue;
    const path = join(parent, name);
    const stats = statSync(path, { throwIfNoEntry: false });
    if (stats !== undefined && nowMs - stats.mtimeMs > DRAFT_MAX_MS) rmSync(path, { recursive: true, force: true });
  }
}

/**
 * How the supervisor is started with what is in the directory, which is mounted at `directory`: `script` sources it as `$0`.
 * It is closed unless the kernel runs nothing that it cannot read.
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

/** A hundred megabytes are copied only where they are on another disk. */
function linkOrCopy(from: string, to: string): void {
  try {
    linkSync(from, to);
  } catch {
    copyFileSync(from, to);
    chmodSync(to, 0o555);
  }
}

/**
 * What programs of this machine are linked against: with one loader, which looks for libraries where it is told. `null` where
 * there is no such loader (musl, macOS), and nothing that a Linux container could use.
 */
async function librariesOf(programs: readonly string[]): Promise<Libraries | null> {
  if (process.platform !== "linux") return null;
  // It fails where one of them is linked against nothing; then what it says is not enough either.
  const { stdout } = await run("ldd", [...programs], { env: { PATH } }).catch(() => ({ stdout: "" }));
  const lines = stdout.split("\n");
  const files = new Set(lines.flatMap((line) => /=> (\/\S+) \(0x/.exec(line)?.[1] ?? []));
  const loaders = new Set(lines.flatMap((line) => /^\s*(\/\S+) \(0x/.exec(line)?.[1] ?? []));
  const [loader, ...others] = loaders;
  const isUsable = loader !== undefined && others.length === 0 && files.size > 0 && !/musl/.test(loader);
  return isUsable ? { loader, files: [...files] } : null;
}

/** Large ones are told by size and time: reading them costs more than it could tell. */
function keyOf(files: readonly string[], large: readonly string[]): string {
  const hash = createHash("sha256").update(JSON.stringify(RUNTIME));
  for (const file of [...files, ...large]) {
    const { size, mtimeMs } = statSync(file);
    hash.update(`${file} ${size} ${mtimeMs}\n`);
  }
  for (const file of files) hash.update(readFileSync(file));
  return hash.digest("hex").slice(0, 16);
}
