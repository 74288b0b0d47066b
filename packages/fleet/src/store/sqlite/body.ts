/**
 * The text of a record in its row. Most of it stays the same for as long as the sandbox lives, while holding changes
 * four fields: so the text of the others is kept and used again, and those four are appended. Everything here runs in
 * every hold and release, which is why it is spelled out: a loop over keys, or one `JSON.stringify`, costs several times
 * as much. A test changes every field there is, one by one, and finds it in the file.
 */

import type { InstanceId } from "@sandlot/contract";
import type { Hold, SandboxRecord } from "../record.ts";

/** Room for a hold or two. Larger would waste more than it saves. */
const STEP_CHARS = 256;

/** Whether two states of a record have the same `fixedText`. Values that are objects are never changed in place. */
export function isFixedSame(one: SandboxRecord, other: SandboxRecord): boolean {
  return (
    one.sandboxId === other.sandboxId &&
    one.user === other.user &&
    one.thread === other.thread &&
    one.generation === other.generation &&
    one.token === other.token &&
    one.state === other.state &&
    one.actor === other.actor &&
    one.backend === other.backend &&
    one.ref === other.ref &&
    one.blueprint === other.blueprint &&
    one.blueprintHash === other.blueprintHash &&
    one.place === other.place &&
    one.arrival === other.arrival &&
    one.boundFrom === other.boundFrom &&
    one.createdAt === other.createdAt &&
    one.purge === other.purge &&
    one.reason === other.reason
  );
}

/** Everything but the four fields, as JSON that is left open at its end. */
export function fixedText(record: SandboxRecord): string {
  const { revision, holders, leases, parkedAt, ...fixed } = record;
  return JSON.stringify(fixed).slice(0, -1);
}

/**
 * Spaces at the end, which JSON allows. A record that is held and let go then keeps its length, and SQLite writes it
 * over the old one in place instead of making room for it on the page.
 */
export function bodyText(fixed: string, record: SandboxRecord): string {
  const { revision, parkedAt } = record;
  const json = `${fixed},"revision":${revision},"holders":{${holdersText(record)}},"leases":${leasesText(record)},"parkedAt":${parkedAt}}`;
  return json.padEnd(Math.ceil(json.length / STEP_CHARS) * STEP_CHARS);
}

function holdersText({ holders }: SandboxRecord): string {
  let text = "";
  for (const instance in holders) {
    const { generation, seq, since } = holders[instance as InstanceId] as Hold;
    const comma = text === "" ? "" : ",";
    text += `${comma}${JSON.stringify(instance)}:{"generation":${generation},"seq":${seq},"since":${since}}`;
  }
  return text;
}

function leasesText({ leases }: SandboxRecord): string {
  for (const _ in leases) return JSON.stringify(leases);
  return "{}";
}
