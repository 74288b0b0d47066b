/**
 * Output that is longer than a caller asked for: its beginning and its end, and between them how much is missing.
 */

/** `max` 0 means everything. */
export function cut(text: string, max: number): string {
  if (max <= 0 || text.length <= max) return text;
  const half = Math.floor(max / 2);
  return `${text.slice(0, half)}\n... [${text.length - 2 * half} characters left out] ...\n${text.slice(-half)}`;
}
