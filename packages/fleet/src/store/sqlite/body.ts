/**
 * The text of a record in its row. Most fields stay the same while the sandbox lives; a hold changes four. So the text
 * of the other fields is cached, and those four are appended. Every hold and release runs this code, so it is written
 * out: a loop over keys, or one `JSON.stringify`, costs several times as much. A test changes every field, one by one,
 * and finds it in the file.
 */

import type { InstanceId } from "@sandlot/contract";
import type { Hold, SandboxRecord } from "../record.ts";

/** Whether two versions of a record have the same `fixedText`. Object values are never changed in place. */
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
    one.engine === other.engine &&
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

/** Everything but the four fields, as JSON without its closing brace. */
export function fixedText(record: SandboxRecord): string {
  const { revision, holders, leases, parkedAt, ...fixed } = record;
  return JSON.stringify(fixed).slice(0, -1);
}

export function bodyText(fixed: string, record: SandboxRecord): string {
  const { revision, parkedAt } = record;
  return `${fixed},"revision":${revision},"holders":{${holdersText(record)}},"leases":${leasesText(record)},"parkedAt":${parkedAt}}`;
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
