/**
 * The text of a record in its row. Most of it stays the same for as long as the sandbox lives, while holding changes
 * four fields: so the text of the others is kept and used again, and those four are appended.
 */

import type { SandboxRecord } from "../record.ts";

type Hot = "revision" | "holders" | "leases" | "parkedAt";

/** A field that is missing here does not compile. */
const FIXED = Object.keys({
  sandboxId: true,
  user: true,
  thread: true,
  generation: true,
  token: true,
  state: true,
  actor: true,
  backend: true,
  ref: true,
  blueprint: true,
  blueprintHash: true,
  place: true,
  arrival: true,
  boundFrom: true,
  createdAt: true,
  purge: true,
  reason: true,
} satisfies Record<Exclude<keyof SandboxRecord, Hot>, true>) as readonly Exclude<keyof SandboxRecord, Hot>[];

/** Room for a hold or two. Larger would waste more than it saves. */
const STEP_CHARS = 256;

/** Whether two states of a record have the same `fixedText`. Values that are objects are never changed in place. */
export function isFixedSame(one: SandboxRecord, other: SandboxRecord): boolean {
  for (const key of FIXED) if (one[key] !== other[key]) return false;
  return true;
}

/** Everything but the hot fields, as JSON that is left open at its end. */
export function fixedText(record: SandboxRecord): string {
  const { revision, holders, leases, parkedAt, ...fixed } = record;
  return JSON.stringify(fixed).slice(0, -1);
}

/**
 * Spaces at the end, which JSON allows. A record that is held and let go then keeps its length, and SQLite writes it
 * over the old one in place instead of making room for it on the page.
 */
export function bodyText(fixed: string, { revision, holders, leases, parkedAt }: SandboxRecord): string {
  const json = `${fixed},"revision":${revision},"holders":${textOf(holders)},"leases":${textOf(leases)},"parkedAt":${parkedAt}}`;
  return json.padEnd(Math.ceil(json.length / STEP_CHARS) * STEP_CHARS);
}

function textOf(map: object): string {
  for (const _ in map) return JSON.stringify(map);
  return "{}";
}
