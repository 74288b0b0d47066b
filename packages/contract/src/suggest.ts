/**
 * Finds the known word nearest to an unknown one, for "Did you mean …?". A wrong suggestion is worse than none, so the
 * length of the word bounds the distance.
 */

import { SandlotError } from "./errors.ts";

/** Refuses an unknown option: a mistyped `thread` would otherwise silently mean something else. */
export function refuseUnknownOptions(operation: string, given: object, known: readonly string[]): void {
  for (const key of Object.keys(given)) {
    if (known.includes(key)) continue;
    const meant = nearest(key, known);
    const problem = `${operation} has no such option${meant === undefined ? `; it has ${known.join(", ")}` : `; perhaps ${meant} was meant`}`;
    throw new SandlotError("invalid_request", { field: key.slice(0, 80), problem });
  }
}

/** Case, hyphens and underscores do not count as a difference, because people misremember them. */
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

/** Edit distance; a word and its prefix (`idle`, `idleTimeoutMs`) are one apart, because people omit units first. */
function distanceBetween(a: string, b: string): number {
  if (a !== b && Math.min(a.length, b.length) >= 4 && (a.startsWith(b) || b.startsWith(a))) return 1;
  return editDistance(a, b);
}

/** How many insertions, deletions or replacements turn one word into the other. */
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
