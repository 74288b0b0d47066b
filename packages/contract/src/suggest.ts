/**
 * The nearest of several known words to one that is not known, for "Did you mean …?".
 * A wrong suggestion is worse than none, so distance is bounded by the length of the word.
 */

import { SandlotError } from "./errors.ts";

/** Refuses an option that does not exist: a mistyped `thread` would otherwise mean something else without a word. */
export function refuseUnknownOptions(operation: string, given: object, known: readonly string[]): void {
  for (const key of Object.keys(given)) {
    if (known.includes(key)) continue;
    const meant = nearest(key, known);
    const problem = `${operation} has no such option${meant === undefined ? `; it has ${known.join(", ")}` : `; perhaps ${meant} was meant`}`;
    throw new SandlotError("invalid_request", { field: key.slice(0, 80), problem });
  }
}

/** Case, hyphens and underscores are how people misremember a key, so they do not count as a difference. */
export function nearest(word: string, known: Iterable<string>): string | undefined {
  const wanted = plain(word);
  let best: string | undefined;
  let bestDistance = Math.max(2, Math.floor(wanted.length / 3)) + 1;
  for (const candidate of known) {
    const distance = distanceBetween(wanted, plain(candidate));
    if (distance < bestDistance) [best, bestDistance] = [candidate, distance];
  }
  return best;
}

function plain(word: string): string {
  return word.toLowerCase().replaceAll(/[-_]/g, "");
}

/** Edit distance; a word and its beginning (`idle`, `idleTimeoutMs`) are one apart, because units are left out first. */
function distanceBetween(a: string, b: string): number {
  if (a !== b && Math.min(a.length, b.length) >= 4 && (a.startsWith(b) || b.startsWith(a))) return 1;
  return editDistance(a, b);
}

/** How many characters must be inserted, deleted or replaced to make one of the other. */
export function editDistance(a: string, b: string): number {
  let previous = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (const [row, left] of [...a].entries()) {
    const current = [row + 1];
    for (const [column, right] of [...b].entries()) {
      const replaced = (previous[column] ?? 0) + (left === right ? 0 : 1);
      current.push(Math.min(replaced, (previous[column + 1] ?? 0) + 1, (current[column] ?? 0) + 1));
    }
    previous = current;
  }
  return previous[b.length] ?? 0;
}
