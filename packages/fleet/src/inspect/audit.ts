/**
 * Engine against store: what one has and the other does not know. Only looked at; the reconciler is who acts.
 */

import type { AuditFinding } from "@sandlot/contract";
import type { Backend, EngineObject } from "../backend/backend.ts";
import type { SandboxRecord } from "../store/record.ts";
import type { Store } from "../store/store.ts";

export interface AuditParts {
  readonly store: Pick<Store, "list">;
  readonly backend: Pick<Backend, "list">;
}

/** What does not fit together at this moment. What is being made or stopped right now is in order. */
export async function auditFleet(parts: AuditParts, signal: AbortSignal): Promise<readonly AuditFinding[]> {
  const findings = await compare(parts, signal);
  if (findings.length === 0) return findings;
  // The two are not asked in the same moment: what was made or ended in between fits only once it is asked again.
  const again = new Set((await compare(parts, signal)).map((finding) => JSON.stringify(finding)));
  return findings.filter((finding) => again.has(JSON.stringify(finding)));
}

async function compare({ store, backend }: AuditParts, signal: AbortSignal): Promise<readonly AuditFinding[]> {
  const objects = await backend.list({ consistent: true }, signal);
  const records = await store.list();
  return [...aboutObjects(objects, records), ...aboutRecords(objects, records)];
}

function* aboutObjects(objects: readonly EngineObject[], records: readonly SandboxRecord[]): Generator<AuditFinding> {
  const known = new Map(records.map((record) => [record.sandboxId, record]));
  for (const { labels, ref, liveness } of objects) {
    const { sandboxId } = labels;
    const record = known.get(sandboxId);
    if (record === undefined)
      yield { kind: "unknown", sandboxId, problem: `the engine has ${ref} (${liveness}), which no record knows` };
    else if (record.ref !== null && record.ref !== ref && record.state === "ready")
      yield {
        kind: "second",
        sandboxId,
        problem: `the engine has ${ref} beside ${record.ref}, which the record names`,
      };
    else if (record.state === "ready" && liveness === "dead")
      yield { kind: "gone", sandboxId, problem: `the record says ready, and the engine shows only remains of ${ref}` };
  }
}

function* aboutRecords(objects: readonly EngineObject[], records: readonly SandboxRecord[]): Generator<AuditFinding> {
  const refs = new Set(objects.map(({ ref }) => ref));
  for (const { sandboxId, state, ref } of records) {
    if (state === "ready" && ref !== null && !refs.has(ref))
      yield { kind: "gone", sandboxId, problem: `the record says ready, and the engine has no ${ref}` };
  }
}
