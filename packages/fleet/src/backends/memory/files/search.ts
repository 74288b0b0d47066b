/**
 * Searching a tree: by name (`glob`) and by content (`grep`).
 *
 * Nothing is hidden but the home: `.git` and `node_modules` are searched like any other directory, because a result
 * that leaves something out would have to say so. The home is searched by a call that names it. Symbolic links are reported by `glob` but never followed, so a search ends and
 * stays below its root.
 */

import {
  type GlobResult,
  type GrepMatch,
  type GrepOptions,
  type GrepResult,
  SANDBOX_LIMITS,
  unlistedBelow,
} from "@sandlot/contract";
import { compileRegex, guarded, pathPattern } from "@sandlot/sandboxd/patterns";
import { bytesOf, type DirectoryNode, type FileNode, type TreeNode } from "./node.ts";
import { baseName, type FileTree, join } from "./tree.ts";

interface Found {
  /** Relative to where the search began. */
  readonly relative: string;
  readonly node: TreeNode;
}

/** Everything below a directory, a directory before its content, down to `depth` levels, without the unlisted ones. */
export function* below(
  directory: DirectoryNode,
  unlisted: readonly string[],
  depth = Number.POSITIVE_INFINITY,
  prefix = "",
): Generator<Found> {
  for (const [name, node] of directory.entries) {
    const relative = prefix + name;
    if (unlisted.includes(relative)) continue;
    yield { relative, node };
    if (node.kind === "directory" && depth > 1) yield* below(node, unlisted, depth - 1, `${relative}/`);
  }
}

export function glob(
  tree: FileTree,
  root: string,
  pattern: string,
  includeDirectories: boolean,
  max: number,
): GlobResult {
  const { matches } = pathPattern(pattern);
  const paths: string[] = [];
  for (const { relative, node } of below(tree.directory(root), unlistedBelow(root, pattern))) {
    if (node.kind === "directory" && !includeDirectories) continue;
    if (matches(relative)) paths.push(join(root, relative));
  }
  paths.sort();
  return { paths: paths.slice(0, max), truncated: paths.length > max };
}

/** Searches one match more than it reports, so that `truncated` is exact. */
export function grep(tree: FileTree, root: string, pattern: string, options: GrepOptions, max: number): GrepResult {
  const source = options.literal === true ? pattern.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&") : pattern;
  const expression = compileRegex(source, options.caseSensitive === true ? "" : "i");
  const matches: GrepMatch[] = [];
  let [skippedFiles, skippedLines] = [0, 0];
  for (const { path, file } of searched(tree, root, options.glob)) {
    if (matches.length > max) break;
    if (file.size > SANDBOX_LIMITS.grepFileMaxBytes) {
      skippedFiles++;
      continue;
    }
    const lines = textLines(file);
    const left = max + 1 - matches.length;
    const { numbers, skipped } = guarded(pattern, () => matchingLines(lines, expression, left));
    for (const index of numbers) matches.push({ path, lineNumber: index + 1, line: shorten(lines[index] ?? "") });
    skippedLines += skipped;
  }
  return { matches: matches.slice(0, max), truncated: matches.length > max, skippedFiles, skippedLines };
}

/** The text files of a search, in the order of their paths. */
function searched(tree: FileTree, root: string, pattern: string | undefined): { path: string; file: FileNode }[] {
  const matches = pattern === undefined ? () => true : pathPattern(pattern).matches;
  const node = tree.get(root);
  if (node.kind === "file") return matches(baseName(root)) && isText(node) ? [{ path: root, file: node }] : [];
  const files: { path: string; file: FileNode }[] = [];
  for (const { relative, node } of below(tree.directory(root), unlistedBelow(root, pattern))) {
    if (node.kind === "file" && matches(relative) && isText(node))
      files.push({ path: join(root, relative), file: node });
  }
  return files.sort((a, b) => (a.path < b.path ? -1 : 1));
}

function isText(file: FileNode): boolean {
  return !bytesOf(file).subarray(0, 8_192).includes(0);
}

function textLines(file: FileNode): string[] {
  const lines = new TextDecoder().decode(bytesOf(file)).split("\n");
  if (lines.at(-1) === "") lines.pop();
  return lines.map((line) => (line.endsWith("\r") ? line.slice(0, -1) : line));
}

function matchingLines(
  lines: readonly string[],
  expression: RegExp,
  max: number,
): { numbers: readonly number[]; skipped: number } {
  const numbers: number[] = [];
  let skipped = 0;
  for (let index = 0; index < lines.length && numbers.length < max; index++) {
    const line = lines[index] ?? "";
    if (line.length > SANDBOX_LIMITS.grepLineMaxChars) skipped++;
    else if (expression.test(line)) numbers.push(index);
  }
  return { numbers, skipped };
}

function shorten(line: string): string {
  const max = SANDBOX_LIMITS.grepReportMaxChars;
  return line.length > max ? `${line.slice(0, max - 3)}...` : line;
}
