/**
 * Finds files. `find` lists names, which are matched here with the syntax of all backends; the server's own `grep`
 * finds lines, within the limits of the contract.
 */

import {
  type FileListing,
  type GlobOptions,
  type GlobResult,
  type GrepOptions,
  type GrepResult,
  SANDBOX_LIMITS,
  SandlotError,
  unlistedBelow,
} from "@sandlot/contract";
import { pathPattern } from "@sandlot/sandboxd/patterns";
import { nextTurn } from "../../../world/system-world.ts";
import type { AioCalls } from "../calls.ts";
import { checkCount } from "../checks.ts";
import { type AioRefusal, fileError } from "../wire/answers.ts";
import { grepSchema } from "../wire/schemas.ts";
import { LARGE_TEXTS, LIST } from "./script-texts.ts";
import type { Scripts } from "./scripts.ts";
import { type ListedEntry, parseEntry } from "./stats.ts";

/** More than a caller reads; filters apply afterwards. */
const GREP_LOOKED_AT_MAX = 10_000;
const COMPLETE = "complete\n";
/** A path, and what `find` prints before it. */
const WORD_MAX_CHARS = 8_192;
const WORDS_AT_ONCE = 1_000;

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
    const { entries, truncated } = await this.#entries(path, String(depth), max, isListed(path));
    return { entries: entries.map(({ stat }) => stat), truncated };
  }

  async glob(path: string, pattern: string, options: GlobOptions): Promise<GlobResult> {
    const max = limit(options.maxResults, SANDBOX_LIMITS.globDefaultResults, SANDBOX_LIMITS.globMaxResults);
    const { matches } = pathPattern(pattern);
    const isShown = isListed(path, pattern);
    const isWanted = ({ relative, stat }: ListedEntry) =>
      isShown({ relative }) && (stat.kind !== "directory" || options.includeDirectories === true) && matches(relative);
    const { entries, truncated } = await this.#entries(path, "", max, isWanted);
    return { paths: entries.map(({ stat }) => stat.path), truncated };
  }

  async grep(path: string, pattern: string, options: GrepOptions): Promise<GrepResult> {
    const { grepDefaultResults, grepMaxResults, grepFileMaxBytes, grepLineMaxChars } = SANDBOX_LIMITS;
    const max = limit(options.maxResults, grepDefaultResults, grepMaxResults);
    const glob = options.glob === undefined ? null : pathPattern(options.glob);
    const isShown = isListed(path, options.glob);
    const isWanted = (file: string) => {
      const relative = relativeTo(path, file);
      return isShown({ relative }) && (glob === null || glob.matches(relative));
    };
    // Checked first: how the server reports a missing path is undocumented, and it does not report skipped files.
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
    const first = new FirstInOrder<GrepResult["matches"][number]>(max);
    let skippedLines = 0;
    for (const { file, line_number: lineNumber, line_content } of found.matches) {
      if (!isWanted(file)) continue;
      const line = trimmed(line_content);
      if (line.length > grepLineMaxChars) skippedLines++;
      else first.add(lineOrder(file, lineNumber), { path: file, lineNumber, line: shorten(line) });
    }
    let skippedFiles = 0;
    for await (const file of wordsOf(large)) if (file !== "" && isWanted(file)) skippedFiles++;
    return { matches: first.values(), truncated: found.truncated || first.isCut, skippedFiles, skippedLines };
  }

  /** The first requested ones, and whether there are more, or may be. */
  async #entries(
    path: string,
    depth: string,
    max: number,
    isWanted: (entry: ListedEntry) => boolean,
  ): Promise<{ entries: readonly ListedEntry[]; truncated: boolean }> {
    const text = await this.#scripts.run(LIST, { P: path, DEPTH: depth }, path);
    const first = new FirstInOrder<ListedEntry>(max);
    for await (const line of wordsOf(text)) {
      const entry = parseEntry(path, line);
      if (isWanted(entry)) first.add(orderOf(entry.relative), entry);
    }
    return { entries: first.values(), truncated: first.isCut || !isComplete(text) };
  }
}

/** Whether a list or a search from `root` shows an entry. */
function isListed(root: string, pattern?: string): (entry: { readonly relative: string }) => boolean {
  const unlisted = unlistedBelow(root, pattern);
  return ({ relative }) => !unlisted.some((path) => relative === path || relative.startsWith(`${path}/`));
}

/** The last word says so. */
function isComplete(text: string): boolean {
  return text.slice(text.lastIndexOf("\0") + 1) === COMPLETE;
}

/** The words before each NUL byte. A tree has many, so other work gets its turn in between. */
async function* wordsOf(text: string): AsyncGenerator<string> {
  let at = 0;
  for (let end = text.indexOf("\0"), count = 1; end >= 0; end = text.indexOf("\0", at), count++) {
    // A longer one is no path.
    if (end - at <= WORD_MAX_CHARS) yield text.slice(at, end);
    at = end + 1;
    if (count % WORDS_AT_ONCE === 0) await nextTurn();
  }
}

function lineOrder(path: string, lineNumber: number): string {
  return `${orderOf(path)}\0\0${String(lineNumber).padStart(16, "0")}`;
}

/** At most the limit. */
function limit(asked: number | undefined, standard: number, max = standard): number {
  checkCount(asked, "maxResults", 1);
  return Math.min(asked ?? standard, max);
}

/** Unless the message says otherwise, the server refuses the pattern. */
function grepError({ file, message }: AioRefusal, path: string, pattern: string): SandlotError {
  const isAboutPath = file !== null && file.error_type !== "invalid_path" && file.error_type !== "io_error";
  return isAboutPath ? fileError(file, path) : new SandlotError("invalid_pattern", { pattern, problem: message });
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

interface Keyed<T> {
  readonly key: string;
  readonly value: T;
}

/** A directory comes before its content, and that before its neighbours. */
function orderOf(path: string): string {
  return path.replaceAll("/", "\0");
}

class FirstInOrder<T> {
  readonly #max: number;
  #held: Keyed<T>[] = [];
  #count = 0;

  constructor(max: number) {
    this.#max = max;
  }

  /** Whether some were dropped. */
  get isCut(): boolean {
    return this.#count > this.#max;
  }

  add(key: string, value: T): void {
    this.#count++;
    this.#held.push({ key, value });
    if (this.#held.length > 2 * this.#max) this.#cut();
  }

  values(): readonly T[] {
    this.#cut();
    return this.#held.map(({ value }) => value);
  }

  #cut(): void {
    this.#held.sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0));
    this.#held = this.#held.slice(0, this.#max);
  }
}
