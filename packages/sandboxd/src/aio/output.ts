/**
 * Shortens output beyond the caller's limit: its beginning and its end, and between them how much is missing. It is cut
 * between lines, so that no part of a name looks like a whole; a line longer than the limit is cut inside.
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
