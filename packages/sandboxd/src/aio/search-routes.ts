/**
 * `/v1/file/{search,find,grep,glob,list}`.
 */

import { type GrepMatch, SANDBOX_LIMITS, SandlotError } from "@sandlot/contract";
import { aboutPath } from "../files/file-error.ts";
import { checkPath } from "../files/paths.ts";
import { readLines } from "../files/read.ts";
import { globPaths, grepFiles, listDirectory } from "../files/search.ts";
import { OperationProblem } from "./answers.ts";
import type { Fields } from "./fields.ts";
import { anywhere, infoOf, isHidden, isLeftOut, matchesAny, relativeTo, sorted } from "./file-info.ts";
import { patternsOf } from "./file-types.ts";
import { grepAcrossLines } from "./grep-across-lines.ts";

const GREP_MAX = 500;
const GLOB_MAX = 5_000;
const DEPTH_MAX = 1_000;
/** More than a caller reads; filters apply afterwards. */
const LOOKED_AT_MAX = 10_000;

export async function search(fields: Fields, file: string): Promise<unknown> {
  const pattern = fields.text("regex");
  fields.ignore("boolean", "sudo");
  fields.check();
  const path = checkPath(file);
  const { matches } = await aboutPath(path, () =>
    grepFiles(path, pattern, { caseSensitive: true }, SANDBOX_LIMITS.listMaxResults),
  );
  return {
    file,
    matches: await Promise.all(matches.map((match) => wholeLine(match))),
    line_numbers: matches.map(({ lineNumber }) => lineNumber),
  };
}

export async function find(fields: Fields, given: string): Promise<unknown> {
  const pattern = fields.text("glob");
  fields.check();
  const path = checkPath(given);
  const { paths } = await aboutPath(path, () => globPaths(path, anywhere(pattern), false, GLOB_MAX));
  return { path: given, files: paths };
}

export async function grep(fields: Fields, given: string): Promise<unknown> {
  const pattern = fields.text("pattern");
  const [include, exclude, type] = [fields.texts("include"), fields.texts("exclude"), fields.optionalText("type")];
  const literal = fields.flagOrNull("fixed_strings", false);
  const caseSensitive = !fields.flagOrNull("case_insensitive", false);
  const [before, after] = [fields.integer("context_before") ?? 0, fields.integer("context_after") ?? 0];
  const [max, offset] = [fields.integer("max_results") ?? GREP_MAX, fields.integer("offset") ?? 0];
  const largest = fields.optionalText("max_file_size");
  const recursive = fields.flagOrNull("recursive", true);
  const multiline = fields.flagOrNull("multiline", false);
  fields.check();
  const [ofType, maxBytes] = [patternsOf(type), bytesIn(largest)];
  const path = checkPath(given);
  const look = multiline ? grepAcrossLines : grepFiles;
  const found = await aboutPath(path, () => look(path, pattern, { literal, caseSensitive }, LOOKED_AT_MAX));
  const wanted = found.matches.filter(
    ({ path: file }) =>
      (include === null || matchesAny(include, path, file)) &&
      (ofType === null || matchesAny(ofType, path, file)) &&
      !(exclude !== null && isLeftOut(exclude, path, file)) &&
      (recursive || !relativeTo(path, file).includes("/")) &&
      infoOf(file).every(({ size }) => (size ?? 0) <= maxBytes),
  );
  const shown = wanted.slice(offset, offset + max);
  const matches = await Promise.all(
    shown.map(async (match) => ({
      ...{ file: match.path, line_number: match.lineNumber },
      line_content: multiline ? match.line : await wholeLine(match),
      context_before: before > 0 ? await lines(match.path, match.lineNumber - before, match.lineNumber - 1) : null,
      context_after: after > 0 ? await linesAfter(match, after) : null,
    })),
  );
  return {
    ...{ path: given, pattern, matches, match_count: matches.length, files_searched: null },
    files_matched: new Set(matches.map(({ file }) => file)).size,
    truncated: found.truncated || wanted.length > offset + max,
  };
}

export async function glob(fields: Fields, given: string): Promise<unknown> {
  const pattern = fields.text("pattern");
  const exclude = fields.texts("exclude");
  const [hidden, filesOnly] = [fields.flagOrNull("include_hidden", false), fields.flagOrNull("files_only", true)];
  const metadata = fields.flagOrNull("include_metadata", true);
  const max = fields.integer("max_results") ?? GLOB_MAX;
  const sortBy = fields.optionalText("sort_by") ?? "path";
  const descending = fields.flagOrNull("sort_desc", false);
  fields.check();
  const path = checkPath(given);
  const found = await aboutPath(path, () => globPaths(path, pattern, !filesOnly, GLOB_MAX));
  const paths = found.paths.filter(
    (file) => (hidden || !isHidden(relativeTo(path, file))) && !(exclude !== null && isLeftOut(exclude, path, file)),
  );
  const infos = paths.flatMap((file) => infoOf(file));
  const files = sorted(infos, sortBy, descending).map((info) => ({
    ...{ path: info.path, name: info.name, is_directory: info.is_directory },
    ...{ size: metadata ? info.size : null, modified_time: metadata ? info.modified_time : null },
  }));
  const total_count = files.length;
  return {
    ...{ path: given, pattern, files: files.slice(0, max), total_count },
    truncated: found.truncated || total_count > max,
  };
}

export async function list(fields: Fields, given: string): Promise<unknown> {
  const [recursive, hidden] = [fields.flagOrNull("recursive", false), fields.flagOrNull("show_hidden", true)];
  const types = fields.texts("file_types");
  const depth = fields.integer("max_depth");
  const withSize = fields.flagOrNull("include_size", true);
  const withPermissions = fields.flagOrNull("include_permissions", false);
  const sortBy = fields.optionalText("sort_by") ?? "name";
  const descending = fields.flagOrNull("sort_desc", false);
  fields.check();
  const path = checkPath(given);
  const levels = recursive ? (depth ?? DEPTH_MAX) : 1;
  const { entries } = await aboutPath(path, () => listDirectory(path, levels, SANDBOX_LIMITS.listMaxResults));
  const infos = entries
    .filter(({ path: file }) => hidden || !isHidden(relativeTo(path, file)))
    .flatMap(({ path: file }) => infoOf(file))
    .filter(({ extension, is_directory }) => types === null || is_directory || types.includes(extension ?? ""));
  const files = sorted(infos, sortBy, descending).map(({ size, permissions, ...info }) => ({
    ...info,
    ...{ size: withSize ? size : null, permissions: withPermissions ? permissions : null },
  }));
  const directories = files.filter((file) => file.is_directory).length;
  return {
    ...{ path: given, files, total_count: files.length },
    ...{ directory_count: directories, file_count: files.length - directories },
  };
}

const UNITS: Readonly<Record<string, number>> = { "": 1, K: 1024, M: 1024 ** 2, G: 1024 ** 3 };

/** "1M", "500K" or a number of bytes. Files beyond the daemon's own limit are never searched. */
function bytesIn(size: string | null): number {
  if (size === null) return Number.POSITIVE_INFINITY;
  const [, number, unit = ""] = /^(\d+)\s*([KMG]?)B?$/i.exec(size.trim()) ?? [];
  const factor = UNITS[unit.toUpperCase()];
  if (number === undefined || factor === undefined) throw new OperationProblem(`Not a file size: ${size}`);
  return Number(number) * factor;
}

/** Matches are shortened for display; a program gets the whole line. */
async function wholeLine(match: { readonly path: string; readonly lineNumber: number; readonly line: string }) {
  const { path, lineNumber, line } = match;
  if (line.length < SANDBOX_LIMITS.grepReportMaxChars) return line;
  return (await lines(path, lineNumber, lineNumber).catch(ifGone))[0]?.replace(/\r$/, "") ?? line;
}

/** A match in a file that changed meanwhile is reported as found. */
function ifGone(error: unknown): string[] {
  if (error instanceof SandlotError) return [];
  throw error;
}

/** A match across lines ends on a later line than it begins. */
function linesAfter({ path, lineNumber, line }: GrepMatch, count: number): Promise<string[]> {
  const last = lineNumber + line.split("\n").length - 1;
  return lines(path, last + 1, last + count);
}

async function lines(file: string, first: number, last: number): Promise<string[]> {
  if (last < 1) return [];
  const text = (await readLines(file, Math.max(first, 1), last)).toString("utf8");
  return text === "" ? [] : text.replace(/\n$/, "").split("\n");
}
