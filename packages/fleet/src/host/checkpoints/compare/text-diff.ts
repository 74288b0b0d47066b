/** Unified diffs of two texts, bounded in time: a caller may wait for the answer, and the texts may be hostile. */

import { createTwoFilesPatch } from "diff";

/** Per text. More is shown without one. */
export const TEXT_MAX_BYTES = 1024 * 1024;
const EDITS_MAX = 4_000;
const TIMEOUT_MS = 1_000;
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** `null` where one side is no text. */
export function textDiff(path: string, before: Buffer | null, after: Buffer | null): string | null {
  const [a, b] = [textIn(before), textIn(after)];
  if (a === null || b === null) return null;
  const [from, to] = [before === null ? "/dev/null" : `a/${path}`, after === null ? "/dev/null" : `b/${path}`];
  const patch = createTwoFilesPatch(from, to, a, b, undefined, undefined, {
    context: 3,
    timeout: TIMEOUT_MS,
    maxEditLength: EDITS_MAX,
  });
  // Too different to be compared line by line in time: all lines of the one, then all of the other.
  return (patch ?? wholly(from, to, a, b)).replace(/^=+\n/, "");
}

function textIn(bytes: Buffer | null): string | null {
  if (bytes === null) return "";
  if (bytes.includes(0)) return null;
  try {
    return decoder.decode(bytes);
  } catch {
    return null;
  }
}

function wholly(from: string, to: string, a: string, b: string): string {
  const [before, after] = [linesOf(a), linesOf(b)];
  const range = (lines: readonly string[]) => `${lines.length === 0 ? 0 : 1},${lines.length}`;
  const marked = (mark: string, lines: readonly string[]) =>
    lines.map((line) => `${mark}${line.endsWith("\n") ? line : `${line}\n\\ No newline at end of file\n`}`).join("");
  const head = `--- ${from}\n+++ ${to}\n@@ -${range(before)} +${range(after)} @@\n`;
  return `${head}${marked("-", before)}${marked("+", after)}`;
}

function linesOf(text: string): readonly string[] {
  return text.match(/[^\n]*\n|[^\n]+$/g) ?? [];
}
