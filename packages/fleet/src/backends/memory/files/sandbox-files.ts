/**
 * The `files` part of a sandbox over a tree in memory: checks arguments, applies the limits, reports what was left out.
 * Searching is in `search.ts`.
 */

import {
  checkFileMode,
  decodeFileText,
  type FileListing,
  type FileStat,
  type GlobOptions,
  type GlobResult,
  type GrepOptions,
  type GrepResult,
  lineRangeOf,
  type ReadTextOptions,
  SANDBOX_LIMITS,
  type SandboxFiles,
  SandlotError,
  unlistedBelow,
  type WriteOptions,
} from "@sandlot/contract";
import type { FileCall } from "../engine-api.ts";
import { bytesOf, sizeOf, type TreeNode } from "./node.ts";
import { below, glob, grep } from "./search.ts";
import { checkPath, type FileTree, parentOf, resolvePath } from "./tree.ts";

export class MemoryFiles implements Pick<SandboxFiles, FileCall> {
  readonly #tree: FileTree;

  constructor(tree: FileTree) {
    this.#tree = tree;
  }

  async read(path: string, range: { readonly offset?: number; readonly length?: number } = {}): Promise<Uint8Array> {
    const bytes = bytesOf(this.#tree.file(tidy(path)));
    const offset = natural("offset", range.offset ?? 0);
    const length = natural("length", range.length ?? bytes.length);
    return checkSize(path, bytes.subarray(offset, offset + length)).slice();
  }

  async readText(path: string, options?: ReadTextOptions): Promise<string> {
    const bytes = bytesOf(this.#tree.file(tidy(path)));
    const lines = lineRangeOf(options);
    if (lines === null) return decodeFileText(path, checkSize(path, bytes), options);
    const startLine = positive("startLine", lines.startLine);
    const endLine = positive("endLine", lines.endLine ?? Number.MAX_SAFE_INTEGER);
    if (endLine < startLine) throw invalid("endLine", "it comes before startLine");
    return decodeFileText(path, checkSize(path, lineRange(bytes, startLine, endLine)), options);
  }

  async write(path: string, content: string | Uint8Array, options: WriteOptions = {}): Promise<void> {
    const { mode, ifVersion } = options;
    checkFileMode(mode);
    if (ifVersion !== undefined) this.#checkVersion(tidy(path), ifVersion);
    this.#tree.mkdirs(parentOf(tidy(path)));
    this.#tree.write(tidy(path), encode(content), mode);
  }

  async append(path: string, content: string | Uint8Array): Promise<void> {
    this.#tree.mkdirs(parentOf(tidy(path)));
    this.#tree.append(tidy(path), encode(content));
  }

  async mkdir(path: string): Promise<void> {
    this.#tree.mkdirs(tidy(path));
  }

  async rename(from: string, to: string): Promise<void> {
    this.#tree.rename(tidy(from), tidy(to));
  }

  async remove(path: string, options: { readonly recursive?: boolean } = {}): Promise<void> {
    this.#tree.remove(tidy(path), options);
  }

  async stat(path: string): Promise<FileStat> {
    return statOf(tidy(path), this.#tree.get(tidy(path), { follow: false }));
  }

  async list(
    path: string,
    options: { readonly depth?: number; readonly maxResults?: number } = {},
  ): Promise<FileListing> {
    const root = tidy(path);
    const depth = positive("depth", options.depth ?? 1);
    const max = limit(options.maxResults, SANDBOX_LIMITS.listMaxResults);
    const found = [...below(this.#tree.directory(root), unlistedBelow(root), depth)].map(({ relative, node }) =>
      statOf(resolvePath(root, relative), node),
    );
    found.sort((a, b) => (a.path < b.path ? -1 : 1));
    return { entries: found.slice(0, max), truncated: found.length > max };
  }

  async glob(path: string, pattern: string, options: GlobOptions = {}): Promise<GlobResult> {
    const max = limit(options.maxResults, SANDBOX_LIMITS.globDefaultResults, SANDBOX_LIMITS.globMaxResults);
    return glob(this.#tree, tidy(path), pattern, options.includeDirectories ?? false, max);
  }

  async grep(path: string, pattern: string, options: GrepOptions = {}): Promise<GrepResult> {
    const max = limit(options.maxResults, SANDBOX_LIMITS.grepDefaultResults, SANDBOX_LIMITS.grepMaxResults);
    return grep(this.#tree, tidy(path), pattern, options, max);
  }

  #checkVersion(path: string, expected: string | null): void {
    const node = this.#tree.find(path);
    const actual = node === undefined ? null : versionOf(node);
    if (actual !== expected) throw new SandlotError("file_changed", { path, expected, actual });
  }
}

/** Checks before tidying, so that the error shows what the caller wrote. */
function tidy(path: string): string {
  checkPath(path);
  return resolvePath("/", path);
}

function statOf(path: string, node: TreeNode): FileStat {
  const kind = node.kind === "device" ? "other" : node.kind;
  return {
    path,
    kind,
    sizeBytes: sizeOf(node),
    mode: node.mode,
    modifiedAt: node.modifiedAt,
    version: versionOf(node),
  };
}

function versionOf(node: TreeNode): string {
  return node.kind === "file" ? String(node.version) : `${node.kind}-${node.modifiedAt}`;
}

/** Lines without the newline of the last one: selected lines are joined. */
function lineRange(bytes: Uint8Array, startLine: number, endLine: number): Uint8Array {
  const newline = 0x0a;
  let start = 0;
  for (let line = 1; line < startLine; line++) {
    const next = bytes.indexOf(newline, start);
    if (next < 0) return bytes.subarray(0, 0);
    start = next + 1;
  }
  let end = start - 1;
  for (let line = startLine; line <= endLine && end < bytes.length; line++) {
    const next = bytes.indexOf(newline, end + 1);
    if (next === bytes.length - 1) return bytes.subarray(start, next);
    end = next < 0 ? bytes.length : next;
  }
  return bytes.subarray(start, Math.max(start, end));
}

function checkSize(path: string, bytes: Uint8Array): Uint8Array {
  const maxBytes = SANDBOX_LIMITS.readMaxBytes;
  if (bytes.length > maxBytes) throw new SandlotError("file_too_large", { path, sizeBytes: bytes.length, maxBytes });
  return bytes;
}

/** A caller may request up to the limit. */
function limit(asked: number | undefined, standard: number, max = standard): number {
  return Math.min(positive("maxResults", asked ?? standard), max);
}

function positive(field: string, value: number): number {
  if (Number.isInteger(value) && value >= 1) return value;
  throw invalid(field, "it is not a whole number from 1");
}

function natural(field: string, value: number): number {
  if (Number.isInteger(value) && value >= 0) return value;
  throw invalid(field, "it is not a whole number from 0");
}

function invalid(field: string, problem: string): SandlotError {
  return new SandlotError("invalid_request", { field, problem });
}

function encode(content: string | Uint8Array): Uint8Array {
  return typeof content === "string" ? new TextEncoder().encode(content) : content;
}

/** Keeps a byte order mark: text that is read and written back must be the same bytes. */
