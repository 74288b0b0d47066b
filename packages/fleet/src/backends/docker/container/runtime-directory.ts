/**
 * The directory that every container mounts: the daemon, and beside it the loader and the libraries that its Node needs.
 * Node itself is mounted over an empty file in it, since it is large and lies elsewhere; it is copied where the engine does not see
 * that place.
 *
 * Invariants
 * - A directory is named by what is in it and appears by a rename: it is complete or not there, and never changes.
 */

import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { basename, join } from "node:path";
import { nativeParts, type SandboxdFiles } from "@sandlot/sandboxd";
import { RUNTIME } from "./inside.ts";

export interface RuntimeDirectory {
  readonly path: string;
  /** Whether there is a Node that runs in any image; otherwise the image must have one. */
  readonly bringsNode: boolean;
  /** The Node to mount into it; `null` when there is none, or it is in it already. */
  readonly nodePath: string | null;
}

interface Libraries {
  readonly loader: string;
  readonly files: readonly string[];
}

/** `seesNode` is whether the engine can mount Node from where it is. */
export function makeRuntimeDirectory(
  parent: string,
  nodePath: string,
  daemon: SandboxdFiles,
  seesNode = true,
): RuntimeDirectory {
  const libraries = librariesOf(nodePath);
  const copied = libraries === null || seesNode ? null : nodePath;
  const native = nativeParts(daemon).map((part) => part.path);
  const files = [daemon.bundle, daemon.supervisor, ...native, ...(copied === null ? [] : [copied])];
  const path = join(parent, `runtime-${keyOf([...files, ...(libraries?.files ?? [])])}`);
  const bringsNode = libraries !== null;
  const made = { path, bringsNode, nodePath: bringsNode && seesNode ? nodePath : null };
  if (existsSync(path)) return made;
  mkdirSync(parent, { recursive: true, mode: 0o711 });
  const coming = `${path}.${process.pid}~`;
  try {
    fill(coming, daemon, libraries, copied);
    renameSync(coming, path);
  } catch (error) {
    rmSync(coming, { recursive: true, force: true });
    // Somebody else was faster, with the same.
    if (!existsSync(path)) throw error;
  }
  return made;
}

function fill(directory: string, daemon: SandboxdFiles, libraries: Libraries | null, copied: string | null): void {
  const put = (from: string, name: string, mode: number) => {
    copyFileSync(from, join(directory, name));
    chmodSync(join(directory, name), mode);
  };
  mkdirSync(join(directory, RUNTIME.libraries), { recursive: true });
  put(daemon.bundle, RUNTIME.bundle, 0o444);
  put(daemon.supervisor, RUNTIME.supervisor, 0o444);
  for (const { path, name } of nativeParts(daemon)) put(path, name, 0o555);
  if (copied === null) writeFileSync(join(directory, RUNTIME.node), "", { mode: 0o444 });
  else put(copied, RUNTIME.node, 0o555);
  if (libraries !== null) {
    put(libraries.loader, RUNTIME.loader, 0o555);
    for (const file of libraries.files) put(file, join(RUNTIME.libraries, basename(file)), 0o555);
  }
  chmodSync(join(directory, RUNTIME.libraries), 0o755);
  chmodSync(directory, 0o755);
}

/** What the Node of this machine is linked against. `null` where that is not something a Linux container could use. */
function librariesOf(nodePath: string): Libraries | null {
  if (process.platform !== "linux") return null;
  const { stdout } = spawnSync("ldd", [nodePath], { encoding: "utf8", env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin" } });
  const lines = (stdout ?? "").split("\n");
  const files = lines.flatMap((line) => /=> (\/\S+) \(0x/.exec(line)?.[1] ?? []);
  const loader = lines.flatMap((line) => /^\s*(\/\S+) \(0x/.exec(line)?.[1] ?? [])[0];
  return loader === undefined || files.length === 0 || /musl/.test(loader) ? null : { loader, files };
}

/** Told by size and time of the large ones: reading them costs more than it could tell. */
function keyOf(files: readonly string[]): string {
  const hash = createHash("sha256");
  for (const file of files) {
    const { size, mtimeMs } = statSync(file);
    hash.update(`${file} ${size} ${mtimeMs}\n`);
    if (size < 4 * 1024 * 1024) hash.update(readFileSync(file));
  }
  return hash.digest("hex").slice(0, 16);
}
