/**
 * Output that is longer than a caller asked for: its beginning and its end, and between them how much is missing. It is cut between
 * lines, so that no half of a name is taken for one; a line that is longer than what may be shown is cut where it has to be.
 */

/** `max` 0 means everything. */
export function cut(text: string, max: number): string {
  if (max <= 0 || text.length <= max) return text;
  const half = Math.floor(max / 2);
  const lastEnd = text.lastIndexOf("\n", half - 1) + 1;
  const nextBegin = text.indexOf("\n", text.length - half - 1) + 1;
  const head = text.slice(0, lastEnd > 0 ? lastEnd : half);
  const tail = text.slice(nextBegin > 0 && nextBegin < text.length ? nextBegin : text.length - half);
  const missing = text.length - head.length - tail.length;
  return `${head}${head.endsWith("\n") ? "" : "\n"}... [${missing} characters left out] ...\n${tail}`;
}
