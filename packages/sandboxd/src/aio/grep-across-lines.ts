/**
 * Searches whole texts instead of lines: a match may begin on one line and end on another, and `.` matches a newline,
 * too.
 *
 * A match is reported at its first line, with all lines it touches. The same files are skipped as in a search by lines:
 * binary ones, and those that are too large.
 */

import { readFileSync, realpathSync, statSync } from "node:fs";
import { type GrepMatch, type GrepOptions, type GrepResult, SANDBOX_LIMITS } from "@sandlot/contract";
import { join } from "../files/paths.ts";
import { unlisted } from "../files/unlisted.ts";
import { walk } from "../files/walk.ts";
import { compileRegex, guarded } from "../patterns/guarded-regex.ts";

export async function grepAcrossLines(
  root: string,
  pattern: string,
  { literal, caseSensitive }: GrepOptions,
  max: number,
): Promise<GrepResult> {
  const source = literal === true ? pattern.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&") : pattern;
  const expression = compileRegex(source, caseSensitive === true ? "gms" : "gims");
  const matches: GrepMatch[] = [];
  let skippedFiles = 0;
  const visit = (path: string): boolean => {
    const text = textOf(path === root ? realpathSync(path) : path);
    if (text === "too large") skippedFiles++;
    else if (text !== null)
      matches.push(...matchesIn(path, text.content, pattern, expression, max + 1 - matches.length));
    return matches.length <= max;
  };
  let unreadable = 0;
  if (statSync(root).isFile()) visit(root);
  else {
    const walked = await walk(
      { root, depth: Number.POSITIVE_INFINITY, unlisted: unlisted(root) },
      ({ relative, kind }) => (kind === "file" ? visit(join(root, relative)) : true),
    );
    unreadable = walked.unreadable;
  }
  const truncated = matches.length > max || unreadable > 0;
  return { matches: matches.slice(0, max), truncated, skippedFiles, skippedLines: 0 };
}

function matchesIn(path: string, text: string, pattern: string, expression: RegExp, max: number): GrepMatch[] {
  const places = guarded(pattern, () => {
    const found: { at: number; end: number }[] = [];
    for (const match of text.matchAll(expression)) {
      found.push({ at: match.index, end: match.index + match[0].length });
      if (found.length >= max) break;
    }
    return found;
  });
  let [counted, lineNumber] = [0, 1];
  const matches: GrepMatch[] = [];
  for (const { at, end } of places) {
    for (; counted < at; counted++) if (text[counted] === "\n") lineNumber++;
    // Matches that begin on the same line are one.
    if (matches.at(-1)?.lineNumber === lineNumber) continue;
    const first = text.lastIndexOf("\n", at - 1) + 1;
    const last = text.indexOf("\n", Math.max(end - 1, at));
    matches.push({ path, lineNumber, line: text.slice(at === 0 ? 0 : first, last < 0 ? undefined : last) });
  }
  return matches;
}

/** `null`: gone meanwhile, or binary. */
function textOf(path: string): { readonly content: string } | "too large" | null {
  try {
    if (statSync(path).size > SANDBOX_LIMITS.grepFileMaxBytes) return "too large";
    const content = readFileSync(path, "utf8");
    return content.slice(0, BINARY_PROBE_CHARS).includes("\0") ? null : { content };
  } catch {
    return null;
  }
}

const BINARY_PROBE_CHARS = 8_192;
