/**
 * A unified diff of two texts, without any external program: what a sandbox planted must not run on the host.
 *
 * The search for common lines has a limit of steps, so that hostile texts cannot hold a process. Past it the lines that
 * differ are shown as removed and added as a whole, which is still true.
 */

/** Of each side. Longer ones have no diff. */
export const DIFF_TEXT_MAX_BYTES = 1024 * 1024;
/** Lines of context around a change. */
const CONTEXT = 3;
/** About 10 ms. Counted, not timed: the same texts always have the same diff. */
const STEPS_MAX = 400_000;
/** A hostile pair of texts must not answer with more than it has. */
const EDITS_MAX = 2_000;

/** `null` where one side is no text: it has a NUL, is not UTF-8, or is too long. */
export function unifiedDiff(path: string, before: Uint8Array | null, after: Uint8Array | null): string | null {
  const [old, now] = [textOf(before), textOf(after)];
  if (old === null || now === null) return null;
  const [a, b] = [linesOf(old), linesOf(now)];
  const hunks = hunksOf(editsOf(a, b), a, b);
  if (hunks.length === 0) return "";
  const from = before === null ? "/dev/null" : nameOf(`a/${path}`);
  const to = after === null ? "/dev/null" : nameOf(`b/${path}`);
  return `--- ${from}\n+++ ${to}\n${hunks.join("")}`;
}

/** A name with a line break must not add lines to the diff. */
function nameOf(path: string): string {
  return /^[^\p{Cc}"\\]*$/u.test(path) ? path : JSON.stringify(path);
}

function textOf(bytes: Uint8Array | null): string | null {
  if (bytes === null) return "";
  if (bytes.byteLength > DIFF_TEXT_MAX_BYTES || bytes.includes(0)) return null;
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return null;
  }
}

/** With their line ends, so that a missing last one is a difference. */
function linesOf(text: string): readonly string[] {
  return text === "" ? [] : (text.match(/[^\n]*\n|[^\n]+$/g) ?? []);
}

/** Lines `[a0, a1)` of the first were replaced by `[b0, b1)` of the second. */
interface Edit {
  readonly a0: number;
  readonly a1: number;
  readonly b0: number;
  readonly b1: number;
}

function editsOf(a: readonly string[], b: readonly string[]): readonly Edit[] {
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let [a1, b1] = [a.length, b.length];
  while (a1 > start && b1 > start && a[a1 - 1] === b[b1 - 1]) [a1, b1] = [a1 - 1, b1 - 1];
  if (a1 === start && b1 === start) return [];
  const whole = [{ a0: start, a1, b0: start, b1 }];
  if (a1 === start || b1 === start) return whole;
  return shortest(a.slice(start, a1), b.slice(start, b1), start) ?? whole;
}

/** Myers' algorithm. `null` past its limits. */
function shortest(a: readonly string[], b: readonly string[], offset: number): readonly Edit[] | null {
  const max = Math.min(a.length + b.length, EDITS_MAX);
  const reach = new Int32Array(2 * max + 3);
  const middle = max + 1;
  const trail: Int32Array[] = [];
  let steps = 0;
  for (let d = 0; d <= max; d += 1) {
    trail.push(reach.slice(middle - d - 1, middle + d + 2));
    for (let k = -d; k <= d; k += 2) {
      const down = k === -d || (k !== d && at(reach, middle + k - 1) < at(reach, middle + k + 1));
      let x = down ? at(reach, middle + k + 1) : at(reach, middle + k - 1) + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) {
        x += 1;
        steps += 1;
      }
      steps += 1;
      reach[middle + k] = x;
      if (x >= a.length && x - k >= b.length) return backtrack(trail, a.length, b.length, offset);
    }
    if (steps > STEPS_MAX) return null;
  }
  return null;
}

function backtrack(trail: readonly Int32Array[], aLength: number, bLength: number, offset: number): readonly Edit[] {
  const edits: Edit[] = [];
  let [x, y] = [aLength, bLength];
  for (let d = trail.length - 1; d > 0; d -= 1) {
    const before = trail[d] ?? new Int32Array();
    const k = x - y;
    const down = k === -d || (k !== d && at(before, k - 1 + d + 1) < at(before, k + 1 + d + 1));
    const fromX = at(before, (down ? k + 1 : k - 1) + d + 1);
    const fromY = fromX - (down ? k + 1 : k - 1);
    const edit = down
      ? { a0: fromX, a1: fromX, b0: fromY, b1: fromY + 1 }
      : { a0: fromX, a1: fromX + 1, b0: fromY, b1: fromY };
    edits.push(edit);
    [x, y] = [fromX, fromY];
  }
  const joined: Edit[] = [];
  for (const { a0, a1, b0, b1 } of edits.reverse()) {
    const last = joined.at(-1);
    if (last !== undefined && last.a1 === a0 + offset && last.b1 === b0 + offset)
      joined[joined.length - 1] = { ...last, a1: a1 + offset, b1: b1 + offset };
    else joined.push({ a0: a0 + offset, a1: a1 + offset, b0: b0 + offset, b1: b1 + offset });
  }
  return joined;
}

function at(row: Int32Array, index: number): number {
  return row[index] ?? 0;
}

function hunksOf(edits: readonly Edit[], a: readonly string[], b: readonly string[]): readonly string[] {
  const groups: Edit[][] = [];
  for (const edit of edits) {
    const group = groups.at(-1);
    const last = group?.at(-1);
    if (group !== undefined && last !== undefined && edit.a0 - last.a1 <= 2 * CONTEXT) group.push(edit);
    else groups.push([edit]);
  }
  return groups.map((group) => hunkOf(group, a, b));
}

function hunkOf(group: readonly Edit[], a: readonly string[], b: readonly string[]): string {
  const [first, last] = [group[0], group.at(-1)];
  if (first === undefined || last === undefined) return "";
  const a0 = Math.max(0, first.a0 - CONTEXT);
  const b0 = Math.max(0, first.b0 - CONTEXT);
  const a1 = Math.min(a.length, last.a1 + CONTEXT);
  const b1 = Math.min(b.length, last.b1 + CONTEXT);
  const lines: string[] = [];
  let next = a0;
  for (const edit of group) {
    for (const line of a.slice(next, edit.a0)) lines.push(shown(" ", line));
    for (const line of a.slice(edit.a0, edit.a1)) lines.push(shown("-", line));
    for (const line of b.slice(edit.b0, edit.b1)) lines.push(shown("+", line));
    next = edit.a1;
  }
  for (const line of a.slice(next, a1)) lines.push(shown(" ", line));
  return `@@ -${range(a0, a1)} +${range(b0, b1)} @@\n${lines.join("")}`;
}

function range(from: number, to: number): string {
  const count = to - from;
  if (count === 1) return `${from + 1}`;
  return `${count === 0 ? from : from + 1},${count}`;
}

function shown(sign: string, line: string): string {
  return line.endsWith("\n") ? `${sign}${line}` : `${sign}${line}\n\\ No newline at end of file\n`;
}
