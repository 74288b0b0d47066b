/**
 * Lists and searches: `list`, `glob` by name, `grep` by content.
 *
 * Nothing is hidden but the home (`unlisted.ts`): `.git` and `node_modules` are searched like any other directory,
 * because a result that omits something would have to say so. `truncated` reports a reached limit or an unreadable entry; text that is too large to
 * be searched is counted.
 */

import { closeSync, constants, fstatSync, lstatSync, openSync, readSync, realpathSync, statSync } from "node:fs";
import {
  type FileListing,
  type FileStat,
  type GlobResult,
  type GrepMatch,
  type GrepOptions,
  type GrepResult,
  SANDBOX_LIMITS,
  SandlotError,
} from "@sandlot/contract";
import { pathPattern } from "../patterns/glob-pattern.ts";
import { compileRegex, guarded } from "../patterns/guarded-regex.ts";
import { statOf } from "./change.ts";
import { fileError } from "./file-error.ts";
import { join } from "./paths.ts";
import { candidates } from "./ripgrep.ts";
import { isTemporary } from "./temporary.ts";
import { unlisted } from "./unlisted.ts";
import { Pacer, walk } from "./walk.ts";

const EVERYTHING = Number.POSITIVE_INFINITY;
/** A NUL byte among the first bytes makes a file binary. */
const BINARY_PROBE_BYTES = 8_192;

export async function listDirectory(root: string, depth: number, max: number): Promise<FileListing> {
  checkDirectory(root);
  const entries: FileStat[] = [];
  let unnamed = 0;
  const { unreadable } = await walk({ root, depth, unlisted: unlisted(root) }, ({ relative }) => {
    const path = join(root, relative);
    const stats = lstatSync(path, { throwIfNoEntry: false, bigint: true });
    if (stats !== undefined) entries.push(statOf(path, stats));
    // A name that is no text cannot be requested; anything else is gone meanwhile.
    else if (relative.includes("\ufffd")) unnamed++;
    return entries.length <= max;
  });
  return { entries: entries.slice(0, max), truncated: entries.length > max || unreadable + unnamed > 0 };
}

export async function globPaths(
  root: string,
  pattern: string,
  includeDirectories: boolean,
  max: number,
): Promise<GlobResult> {
  const { matches, mayMatchBelow } = pathPattern(pattern);
  checkDirectory(root);
  const paths: string[] = [];
  const options = { root, depth: EVERYTHING, unlisted: unlisted(root, pattern), enter: mayMatchBelow };
  const { unreadable } = await walk(options, ({ relative, kind }) => {
    if ((kind !== "directory" || includeDirectories) && matches(relative)) paths.push(join(root, relative));
    return paths.length <= max;
  });
  return { paths: paths.slice(0, max), truncated: paths.length > max || unreadable > 0 };
}

/** Looks for one match more than it reports: only then is `truncated` exact. */
export async function grepFiles(root: string, pattern: string, options: GrepOptions, max: number): Promise<GrepResult> {
  const literal = options.literal === true;
  const source = literal ? pattern.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&") : pattern;
  const caseSensitive = options.caseSensitive === true;
  const expression = compileRegex(source, caseSensitive ? "" : "i");
  const glob = options.glob === undefined ? null : pathPattern(options.glob);
  const found: Found = { matches: [], unreadable: 0, skippedFiles: 0, skippedLines: 0 };
  const visit = (path: string) => {
    // A named link means its target.
    searchFile(path === root ? realpathSync(path) : path, path, { pattern, expression, max }, found);
    return found.matches.length <= max;
  };
  const skipped = unlisted(root, options.glob);
  const unreadable = await eachFile(root, glob, { pattern, literal, caseSensitive, unlisted: skipped }, visit);
  const { matches, skippedFiles, skippedLines } = found;
  const truncated = matches.length > max || unreadable + found.unreadable > 0;
  return { matches: matches.slice(0, max), truncated, skippedFiles, skippedLines };
}

/** The results of a search so far. */
interface Found {
  readonly matches: GrepMatch[];
  unreadable: number;
  skippedFiles: number;
  skippedLines: number;
}

/** The files of a search, in the order of their paths. Returns how many directories were skipped. */
async function eachFile(
  root: string,
  glob: ReturnType<typeof pathPattern> | null,
  search: Parameters<typeof candidates>[1],
  visit: (path: string) => boolean,
): Promise<number> {
  if (kindOf(root) === "file") {
    if (glob === null || glob.matches(root.slice(root.lastIndexOf("/") + 1))) visit(root);
    return 0;
  }
  const found = await candidates(root, search);
  if (found !== null) {
    const pacer = new Pacer();
    // The large ones first: they yield no matches, so all of them are counted.
    for (const relative of [...found.tooLarge, ...found.paths]) {
      if ((glob !== null && !glob.matches(relative)) || isTemporary(relative)) continue;
      if (!visit(join(root, relative))) break;
      if (pacer.isDue()) await pacer.pause();
    }
    return 0;
  }
  const { unlisted } = search;
  const options = { root, depth: EVERYTHING, unlisted, ...(glob !== null && { enter: glob.mayMatchBelow }) };
  const { unreadable } = await walk(options, ({ relative, kind }) => {
    if (kind !== "file" || (glob !== null && !glob.matches(relative))) return true;
    return visit(join(root, relative));
  });
  return unreadable;
}

function searchFile(
  file: string,
  path: string,
  { pattern, expression, max }: { pattern: string; expression: RegExp; max: number },
  found: Found,
): void {
  const bytes = readText(file);
  if (bytes === "unreadable") found.unreadable++;
  if (bytes === "too large") found.skippedFiles++;
  if (!Buffer.isBuffer(bytes)) return;
  const lines = bytes.toString("utf8").split("\n");
  if (lines.at(-1) === "") lines.pop();
  const left = max + 1 - found.matches.length;
  const { numbers, skipped } = guarded(pattern, () => matchingLines(lines, expression, left));
  for (const index of numbers)
    found.matches.push({ path, lineNumber: index + 1, line: shorten(trimmed(lines[index] ?? "")) });
  found.skippedLines += skipped;
}

const scratch = Buffer.allocUnsafeSlow(SANDBOX_LIMITS.grepFileMaxBytes + 1);

/** The content of a searchable text file. Valid until the next call. */
function readText(path: string): Buffer | "no text" | "too large" | "unreadable" {
  let fd: number;
  try {
    fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    // Gone or replaced since the directory was read: then it counts as missing.
    return code === "ENOENT" || code === "ELOOP" || code === "ENXIO" ? "no text" : "unreadable";
  }
  try {
    const { size } = fstatSync(fd);
    const wanted = size > SANDBOX_LIMITS.grepFileMaxBytes ? BINARY_PROBE_BYTES : scratch.length;
    let held = 0;
    for (let count = -1; count !== 0 && held < wanted; held += count) {
      count = readSync(fd, scratch, held, wanted - held, null);
    }
    const bytes = scratch.subarray(0, held);
    if (bytes.subarray(0, BINARY_PROBE_BYTES).includes(0)) return "no text";
    return Math.max(size, held) > SANDBOX_LIMITS.grepFileMaxBytes ? "too large" : bytes;
  } catch {
    return "unreadable";
  } finally {
    closeSync(fd);
  }
}

function matchingLines(
  lines: readonly string[],
  expression: RegExp,
  max: number,
): { numbers: readonly number[]; skipped: number } {
  const numbers: number[] = [];
  let skipped = 0;
  for (let index = 0; index < lines.length && numbers.length < max; index++) {
    const line = trimmed(lines[index] ?? "");
    if (line.length > SANDBOX_LIMITS.grepLineMaxChars) skipped++;
    else if (expression.test(line)) numbers.push(index);
  }
  return { numbers, skipped };
}

function trimmed(line: string): string {
  return line.endsWith("\r") ? line.slice(0, -1) : line;
}

function shorten(line: string): string {
  const max = SANDBOX_LIMITS.grepReportMaxChars;
  return line.length > max ? `${line.slice(0, max - 3)}...` : line;
}

function kindOf(path: string): "file" | "directory" {
  try {
    const stats = statSync(path);
    if (stats.isDirectory()) return "directory";
    if (stats.isFile()) return "file";
  } catch (error) {
    throw fileError(error, path);
  }
  throw new SandlotError("not_a_directory", { path });
}

function checkDirectory(path: string): void {
  if (kindOf(path) !== "directory") throw new SandlotError("not_a_directory", { path });
}
