/**
 * The calls of the Kubernetes API that a claim for each thread needs. The cluster's client implements them; every call
 * has its own deadline and reads from the API server itself, never from a cache.
 */

import type { ThreadKey } from "@sandlot/contract";

/** A PersistentVolumeClaim, as far as workspaces are concerned. */
export interface Claim {
  readonly name: string;
  readonly uid: string;
  readonly resourceVersion: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
  /** `metadata.creationTimestamp` in Unix milliseconds. */
  readonly createdAt: number;
  /** `metadata.deletionTimestamp` is set: it goes as soon as no pod uses it. */
  readonly isBeingDeleted: boolean;
}

export interface NewClaim {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
}

/** `conflict`: the version or the uid differs (409, 422). `absent`: there is no such claim (404). */
export type ClaimOutcome = "done" | "conflict" | "absent";

export interface ClaimApi {
  /** A quorum read; `null` for 404. */
  get(name: string): Promise<Claim | null>;
  /** With the storage class, size and access mode of the configuration. `exists` for 409. */
  create(claim: NewClaim): Promise<Claim | "exists">;
  /** Sets annotations of exactly this version (`metadata.uid` and `metadata.resourceVersion` in the patch). */
  annotate(
    claim: Pick<Claim, "name" | "uid" | "resourceVersion">,
    annotations: Readonly<Record<string, string>>,
  ): Promise<ClaimOutcome>;
  /** Deletes exactly this version (preconditions `uid` and `resourceVersion`). */
  remove(claim: Pick<Claim, "name" | "uid" | "resourceVersion">): Promise<ClaimOutcome>;
  /** A quorum list of the fleet's claims, in pages. */
  list(): AsyncIterable<Claim>;
}

/** `sandlot-ws-` and the thread's key: hexadecimal digits, so a valid name. */
export function claimName(thread: ThreadKey): string {
  return `sandlot-ws-${thread}`;
}
