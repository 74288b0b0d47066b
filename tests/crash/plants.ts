/**
 * Planted violations: the proof that the harness can fail. Each is a fault in test code, of a child or of the engine,
 * that main must report; `--self-check` runs them all.
 *
 *   double         a child creates a second sandbox for a thread without the fleet, and writes in both
 *   two-threads    a child writes for one thread in the sandbox of another
 *   early-destroy  a child destroys in the engine what the store says is in use
 *   lost-write     the engine forgets a write that it has acknowledged
 *   leak           the engine keeps a slot and a marker after the sandbox is gone
 *   hang           a child has an acquire that never settles
 */

/** What main must report for each. */
export const PLANTS = {
  double: /two sandboxes for/,
  "two-threads": /two threads in one sandbox/,
  "early-destroy": /whose record is ready/,
  "lost-write": /lost writes|has lost/,
  leak: /have lost their sandbox|is left/,
  hang: /has not settled/,
} as const;
export type Plant = keyof typeof PLANTS;

export function parsePlant(text: string | undefined): Plant | null {
  if (text === undefined || text === "") return null;
  if (Object.hasOwn(PLANTS, text)) return text as Plant;
  throw new Error(`--plant takes one of ${Object.keys(PLANTS).join(", ")}, not ${text}`);
}
