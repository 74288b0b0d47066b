/**
 * Finding files. Names are listed by `find` and matched here, in the language that every backend has; lines are found by
 * the server's own `grep`, within the limits of the contract.
 */

import {
  type FileListing,
  type GlobOptions,
  type GlobResult,
  type GrepOptions,
  type GrepResult,
  SANDBOX_LIMITS,
  SandlotError,
} from "@sandlot/contract";
import { pathPattern } from "@sandlot/sandboxd/patterns";
import type { AioCalls } from "../calls.ts";
import { checkCount } from "../checks.ts";
import { type AioRefusal, fileError } from "../wire/answers.ts";
import { grepSchema } from "../wire/schemas.ts";
import { LARGE_TEXTS, LIST } from "./script-texts.ts";
import type { Scripts } from "./scripts.ts";
import { type ListedEntry, parseEntry } from "./stats.ts";

/** More than anybody reads; what is filtered afterwards must have been found. */
const GREP_LOOKED_AT_MAX = 10_000;
const COMPLETE = "complete\n";

export class Search {
  readonly #calls: AioCalls;
  readonly #scripts: Scripts;

  constructor(calls: AioCalls, scripts: Scripts) {
    this.#calls = calls;
    this.#scripts = scripts;
  }

  async list(path: string, options: { readonly depth?: number; readonly maxResults?: number }): Promise<FileListing> {
    const { depth = 1, maxResults } = options;
    checkCount(depth, "depth", 1);
    const max = limit(maxResults, SANDBOX_LIMITS.listMaxResults);
    const { entries, complete } = await this.#entries(path, String(depth));
    const kept = entries.slice(0, max).map(({ stat }) => stat);
    return { entries: kept, truncated: entries.length > max || !complete };
  }

  async glob(path: string, pattern: string, options: GlobOptions): Promise<GlobResult> {
    const max = limit(options.maxResults, SANDBOX_LIMITS.globDefaultResults, SANDBOX_LIMITS.globMaxResults);
    const { matches } = pathPattern(pattern);
    const { entries, complete } = await this.#entries(path, "");
    const found = entries.filter(
      ({ relative, stat }) => (stat.kind !== "directory" || options.includeDirectories === true) && matches(relative),
    );
    const paths = found.slice(0, max).map(({ stat }) => stat.path);
    return { paths, truncated: found.length > max || !complete };
  }

  async grep(path: string, pattern: string, options: GrepOptions): Promise<GrepResult> {
    const { grepDefaultResults, grepMaxResults, grepFileMaxBytes, grepLineMaxChars } = SANDBOX_LIMITS;
    const max = limit(options.maxResults, grepDefaultResults, grepMaxResults);
    const glob = options.glob === undefined ? null : pathPattern(options.glob);
    const isWanted = (file: string) => glob === null || glob.matches(relativeTo(path, file));
    // Asked first: how the server says that there is no such path is not described, nor does it tell what it skips.
    const large = await this.#scripts.run(LARGE_TEXTS, { P: path, MAX: String(grepFileMaxBytes) }, path);
    const fields = {
      path,
      pattern,
      case_insensitive: options.caseSensitive !== true,
      fixed_strings: options.literal === true,
      max_results: GREP_LOOKED_AT_MAX,
      max_file_size: String(grepFileMaxBytes),
      recursive: true,
    };
    const onRefusal = (refusal: AioRefusal) => grepError(refusal, path, pattern);
    const found = await this.#calls.post(grepSchema, "/v1/file/grep", fields, { onRefusal });
    const wanted = found.matches
      .map(({ file, line_number: lineNumber, line_content: line }) => ({ path: file, lineNumber, line: trimmed(line) }))
      .filter(({ path: file }) => isWanted(file))
      .sort((a, b) => order(a.path, b.path) || a.lineNumber - b.lineNumber);
    const short = wanted.filter(({ line }) => line.length <= grepLineMaxChars);
    return {
      matches: short.slice(0, max).map((match) => ({ ...match, line: shorten(match.line) })),
      truncated: found.truncated || short.length > max,
      skippedFiles: large.split("\0").filter((file) => file !== "" && isWanted(file)).length,
      skippedLines: wanted.length - short.length,
    };
  }

  async #entries(path: string, depth: string): Promise<{ entries: readonly ListedEntry[]; complete: boolean }> {
    const lines = (await this.#scripts.run(LIST, { P: path, DEPTH: depth }, path)).split("\0");
    const complete = lines.pop() === COMPLETE;
    const entries = lines.map((line) => parseEntry(path, line)).sort((a, b) => order(a.relative, b.relative));
    return { entries, complete };
  }
}

/** A caller may ask for up to the limit, never for more. */
function limit(asked: number | undefined, standard: number, max = standard): number {
  checkCount(asked, "maxResults", 1);
  return Math.min(asked ?? standard, max);
}

/** What is left for a server to refuse is the pattern, unless it says otherwise. */
function grepError({ file, message }: AioRefusal, path: string, pattern: string): SandlotError {
  const isAboutPath = file !== null && file.error_type !== "invalid_path" && file.error_type !== "io_error";
  return isAboutPath ? fileError(file, path) : new SandlotError("invalid_pattern", { pattern, problem: message });
}

/** A directory before what is in it, names in the order of their characters. */
function order(a: string, b: string): number {
  const [left, right] = [a.replaceAll("/", "\0"), b.replaceAll("/", "\0")];
  return left < right ? -1 : left > right ? 1 : 0;
}

function relativeTo(root: string, file: string): string {
  const below = root === "/" ? "/" : `${root}/`;
  return file.startsWith(below) ? file.slice(below.length) : baseName(file);
}

function baseName(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}

function trimmed(line: string): string {
  return line.replace(/\r?\n?$/, "");
}

function shorten(line: string): string {
  const max = SANDBOX_LIMITS.grepReportMaxChars;
  return line.length > max ? `${line.slice(0, max - 3)}...` : line;
}
