/**
 * `just-bash` as the shell of the `memory` backend: bash syntax and many more commands (awk, jq, diff) over the same
 * file tree. It is an optional peer dependency, loaded when it is asked for.
 *
 * What differs from our own shell: output arrives when a command has ended, so one that is ended from outside has
 * none; nothing runs in the background; and its own limits on loops and commands apply before a timeout does. Arrays
 * are run by our own commands.
 */

import { isSandlotError } from "@sandlot/contract";
import type { BashExecResult, IFileSystem } from "just-bash";
import { importPeer } from "../../optional-peer.ts";
import type { RunCommand } from "./exec/exec-table.ts";
import { bytesOf, sizeOf, type TreeNode } from "./files/node.ts";
import { below } from "./files/search.ts";
import { type FileTree, parentOf, resolvePath } from "./files/tree.ts";
import { runInOwnShell } from "./shell/run.ts";

export async function loadJustBash(): Promise<RunCommand> {
  const { Bash } = await importPeer("just-bash", 'The shell "just-bash"', () => import("just-bash"));
  return async (process, command, options) => {
    if (typeof command !== "string") return runInOwnShell(process, command, options);
    const { cwd, environment, streams } = options;
    const bash = new Bash({
      fs: new TreeFileSystem(process.machine.tree),
      cwd,
      env: Object.fromEntries(environment),
      sleep: (ms) => process.pause(ms),
      // It patches globals of the whole process, which is the host's and not ours to patch.
      defenseInDepth: false,
    });
    const stdin = Buffer.from(await streams.stdin.readAll()).toString("latin1");
    const result = await bash.exec(command, { stdin, stdinKind: "bytes", signal: process.signal, rawScript: true });
    process.signal.throwIfAborted();
    await streams.stdout.write(stdoutBytes(result));
    await streams.stderr.write(new TextEncoder().encode(result.stderr));
    return result.exitCode;
  };
}

function stdoutBytes({ stdout, stdoutKind, stdoutEncoding }: BashExecResult): Uint8Array {
  return Buffer.from(stdout, stdoutKind === "bytes" || stdoutEncoding === "binary" ? "latin1" : "utf8");
}

/** The tree as just-bash wants to see it. Its commands recognise failures by Node's error codes. */
class TreeFileSystem implements IFileSystem {
  readonly #tree: FileTree;

  constructor(tree: FileTree) {
    this.#tree = tree;
  }

  async readFile(path: string, options?: Parameters<IFileSystem["readFile"]>[1]): Promise<string> {
    const encoding = (typeof options === "string" ? options : options?.encoding) ?? "utf8";
    return Buffer.from(await this.readFileBuffer(path)).toString(encoding);
  }

  async readFileBuffer(path: string): Promise<Uint8Array> {
    return asNode("open", path, () => bytesOf(this.#tree.file(path)).slice());
  }

  async writeFile(...[path, content, options]: Parameters<IFileSystem["writeFile"]>): Promise<void> {
    asNode("open", path, () => {
      this.#tree.mkdirs(parentOf(path));
      this.#tree.write(path, toBytes(content, options));
    });
  }

  async appendFile(...[path, content, options]: Parameters<IFileSystem["appendFile"]>): Promise<void> {
    asNode("open", path, () => {
      this.#tree.mkdirs(parentOf(path));
      this.#tree.append(path, toBytes(content, options));
    });
  }

  async exists(path: string): Promise<boolean> {
    return this.#tree.find(path) !== undefined;
  }

  async stat(path: string): ReturnType<IFileSystem["stat"]> {
    return asNode("stat", path, () => statOf(this.#tree.get(path)));
  }

  async lstat(path: string): ReturnType<IFileSystem["lstat"]> {
    return asNode("lstat", path, () => statOf(this.#tree.get(path, { follow: false })));
  }

  async mkdir(path: string, options?: { recursive?: boolean }): Promise<void> {
    asNode("mkdir", path, () => (options?.recursive === true ? this.#tree.mkdirs(path) : this.#tree.mkdir(path)));
  }

  async readdir(path: string): Promise<string[]> {
    return asNode("scandir", path, () => [...this.#tree.directory(path).entries.keys()].sort());
  }

  async rm(path: string, options: { recursive?: boolean; force?: boolean } = {}): Promise<void> {
    if (options.force === true && this.#tree.find(path, { follow: false }) === undefined) return;
    asNode("rm", path, () => this.#tree.remove(path, options));
  }

  async cp(from: string, to: string): Promise<void> {
    asNode("cp", from, () => this.#tree.copy(from, to));
  }

  async mv(from: string, to: string): Promise<void> {
    asNode("rename", from, () => this.#tree.rename(from, to));
  }

  async chmod(path: string, mode: number): Promise<void> {
    asNode("chmod", path, () => this.#tree.chmod(path, mode));
  }

  async symlink(target: string, path: string): Promise<void> {
    asNode("symlink", path, () => this.#tree.symlink(target, path));
  }

  async link(_existing: string, path: string): Promise<void> {
    throw new Error(`EPERM: operation not permitted, link '${path}'`);
  }

  async readlink(path: string): Promise<string> {
    const node = asNode("readlink", path, () => this.#tree.get(path, { follow: false }));
    if (node.kind !== "symlink") throw new Error(`EINVAL: invalid argument, readlink '${path}'`);
    return node.target;
  }

  async realpath(path: string): Promise<string> {
    return asNode("realpath", path, () => this.#tree.realPath(path));
  }

  async utimes(path: string, _accessed: Date, modified: Date): Promise<void> {
    asNode("utime", path, () => this.#tree.touch(path, modified.getTime()));
  }

  resolvePath(base: string, path: string): string {
    return resolvePath(base, path);
  }

  getAllPaths(): string[] {
    return [...below(this.#tree.directory("/"))].map(({ relative }) => `/${relative}`);
  }
}

function statOf(node: TreeNode): Awaited<ReturnType<IFileSystem["stat"]>> {
  return {
    isFile: node.kind === "file" || node.kind === "device",
    isDirectory: node.kind === "directory",
    isSymbolicLink: node.kind === "symlink",
    mode: node.mode,
    size: sizeOf(node),
    mtime: new Date(node.modifiedAt),
  };
}

function toBytes(content: string | Uint8Array, options: Parameters<IFileSystem["writeFile"]>[2]): Uint8Array {
  if (typeof content !== "string") return content;
  return Buffer.from(content, (typeof options === "string" ? options : options?.encoding) ?? "utf8");
}

const NODE_ERRORS: Readonly<Record<string, string>> = {
  file_not_found: "ENOENT: no such file or directory",
  file_exists: "EEXIST: file already exists",
  file_too_large: "EFBIG: file too large",
  not_a_directory: "ENOTDIR: not a directory",
  is_a_directory: "EISDIR: illegal operation on a directory",
  directory_not_empty: "ENOTEMPTY: directory not empty",
  read_only_path: "EROFS: read-only file system",
  invalid_path: "EINVAL: invalid argument",
};

function asNode<T>(call: string, path: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (!isSandlotError(error)) throw error;
    throw new Error(`${NODE_ERRORS[error.code] ?? error.message}, ${call} '${path}'`, { cause: error });
  }
}
