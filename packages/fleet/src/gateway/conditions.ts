/** HTTP preconditions and ranges, over a file's version. Pure. */

import type { IncomingHttpHeaders } from "node:http";
import { type FileStat, SandlotError } from "@sandlot/contract";

type Versioned = Pick<FileStat, "path" | "version" | "sizeBytes">;

/** A version may contain any character; a tag may not. */
export function etagOf({ version }: Pick<FileStat, "version">): string {
  return `"${encodeURIComponent(version.toWellFormed())}"`;
}

/** `If-Match`: 412 unless one of the tags is the file's. */
export function checkIfMatch(headers: IncomingHttpHeaders, stat: Versioned): void {
  const wanted = headers["if-match"];
  if (wanted === undefined || matches(wanted, stat)) return;
  throw new SandlotError("file_changed", { path: stat.path, expected: versionOf(wanted), actual: stat.version });
}

/** `If-None-Match` on a read: 304 when the client has this version. */
export function isNotModified(headers: IncomingHttpHeaders, stat: Versioned): boolean {
  const known = headers["if-none-match"];
  return known !== undefined && matches(known, stat);
}

/** What a write requires: that version (`If-Match`), or no file (`If-None-Match: *`). */
export function writeCondition(headers: IncomingHttpHeaders, path: string): { readonly ifVersion?: string | null } {
  const match = headers["if-match"];
  const none = headers["if-none-match"];
  if (match !== undefined && none !== undefined) throw invalid("If-Match", "it excludes If-None-Match");
  if (match !== undefined) {
    const version = versionOf(match);
    if (version === null) throw invalid("If-Match", `one entity tag is needed to write ${path}`);
    return { ifVersion: version };
  }
  if (none === undefined) return {};
  if (none.trim() !== "*") throw invalid("If-None-Match", "only * can be demanded of a write");
  return { ifVersion: null };
}

/** One range of bytes; `null` for the whole file. Several ranges get the whole file. */
export function parseRange(
  headers: IncomingHttpHeaders,
  stat: Versioned,
): { readonly offset: number; readonly length: number } | null {
  const { range } = headers;
  const unless = headers["if-range"];
  if (range === undefined || (unless !== undefined && !matches(String(unless), stat))) return null;
  const match = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(range.trim());
  if (match === null || (match[1] === "" && match[2] === "")) return null;
  const { sizeBytes } = stat;
  const first = match[1] === "" ? Math.max(0, sizeBytes - Number(match[2])) : Number(match[1]);
  const last = match[1] === "" || match[2] === "" ? sizeBytes - 1 : Math.min(Number(match[2]), sizeBytes - 1);
  if (first >= sizeBytes || last < first)
    throw new SandlotError("range_not_satisfiable", { path: stat.path, sizeBytes });
  return { offset: first, length: last - first + 1 };
}

function matches(header: string, stat: Versioned): boolean {
  if (header.trim() === "*") return true;
  const tag = etagOf(stat);
  return header.split(",").some((one) => one.trim().replace(/^W\//, "") === tag);
}

/** The version in a header that has exactly one tag. */
function versionOf(header: string): string | null {
  const [, encoded] = /^\s*"([^"]*)"\s*$/.exec(header) ?? [];
  if (encoded === undefined) return null;
  try {
    return decodeURIComponent(encoded);
  } catch {
    return null;
  }
}

function invalid(field: string, problem: string): SandlotError {
  return new SandlotError("invalid_request", { field, problem });
}
