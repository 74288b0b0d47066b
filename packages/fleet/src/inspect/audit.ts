/** Compares engine and store, and reports what only one of them has. It only reads; the reconciler acts. */

import type { AuditFinding } from "@sandlot/contract";
import type { Backend, EngineObject } from "../backend/backend.ts";
import type { SandboxRecord } from "../store/record.ts";
import type { Store } from "../store/store.ts";

export interface AuditParts {
  readonly store: Pick<Store, "list">;
  readonly backend: Pick<Backend, "list">;
  /** Whether this instance reaches the engine that has the sandbox. The engine knows nothing of others. */
  readonly isOurs: (record: SandboxRecord) => boolean;
}

/** The present differences. A running create or stop is no difference. */
export async function auditFleet(parts: AuditParts, signal: AbortSignal): Promise<readonly AuditFinding[]> {
  const findings = await compare(parts, signal);
  if (findings.length === 0) return findings;
  // The two are read at different moments: a create or stop in between looks like a difference, so compare twice.
  const again = new Set((await compare(parts, signal)).map((finding) => JSON.stringify(finding)));
  return findings.filter((finding) => again.has(JSON.stringify(finding)));
}

async function compare({ store, backend, isOurs }: AuditParts, signal: AbortSignal): Promise<readonly AuditFinding[]> {
  const objects = await backend.list({ consistent: true }, signal);
  const records = await store.list();
  return [...aboutObjects(objects, records), ...aboutRecords(objects, records.filter(isOurs))];
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
