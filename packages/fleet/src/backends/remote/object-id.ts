/**
 * The ids of a fleet's sandboxes at a provisioner, which knows no labels: everything that identifies a sandbox is in
 * its id.
 *
 *   sl-{engine}-{sandboxId}-{generation}
 *
 *   engine       ten hex digits of a hash over fleet id and engine id: two fleets, and two homes of one fleet, never
 *                have an id in common, and each sees only its own in a list
 *   generation   in base 36
 *
 * An id has at most 45 characters for the sandbox ids of a fleet: DeerFlow's service makes a name of a Kubernetes
 * Service from it, which may have 51.
 */

import { createHash } from "node:crypto";
import type { EngineRef, FleetId, Generation, SandboxId } from "@sandlot/contract";

const PREFIX_PATTERN = /^sl-[0-9a-f]{10}$/;
const REF_PREFIX = "remote:";
const REF_PATTERN = /^remote:(sl-[0-9a-f]{10})-([A-Za-z0-9]{1,64})-([0-9a-z]{1,11})$/;

export interface ObjectId {
  readonly id: string;
  readonly sandboxId: SandboxId;
  readonly generation: Generation;
}

/** What all ids of a fleet at this engine begin with. */
export function prefixOf(fleetId: FleetId, engineId: string): string {
  const digest = createHash("sha256").update(`${fleetId}\n${engineId}`).digest("hex");
  return `sl-${digest.slice(0, 10)}`;
}

export function objectId(prefix: string, sandboxId: SandboxId, generation: Generation): ObjectId {
  return { id: `${prefix}-${sandboxId}-${generation.toString(36)}`, sandboxId, generation };
}

/** `null` for an id of another fleet, or of no fleet. */
export function parseObjectId(prefix: string, id: string): ObjectId | null {
  const parsed = parseRef(refOf(id));
  return parsed?.prefix === prefix && PREFIX_PATTERN.test(prefix) ? parsed : null;
}

export function refOf(id: string): EngineRef {
  return `${REF_PREFIX}${id}` as EngineRef;
}

/** `null` for a reference of another backend. */
export function parseRef(ref: EngineRef): (ObjectId & { readonly prefix: string }) | null {
  const [, prefix, sandboxId, generation] = REF_PATTERN.exec(ref) ?? [];
  if (prefix === undefined || sandboxId === undefined || generation === undefined) return null;
  return {
    ...{ prefix, id: ref.slice(REF_PREFIX.length), sandboxId: sandboxId as SandboxId },
    generation: Number.parseInt(generation, 36) as Generation,
  };
}

/** The name of a thread at the provisioner, whose files outlive a sandbox. Valid for DeerFlow: at most 64 characters. */
export function remoteThread(prefix: string, threadKey: string): string {
  return `${prefix}-${threadKey}`;
}
