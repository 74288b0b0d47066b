/**
 * Remote leases (rule 8). They are rows beside the holders. A release ends them, or an observer's judgement that
 * compares the beat it saw, never a clock in the store.
 */

import type { LeaseId } from "@sandlot/contract";
import type { ReadyRecord, RemoteLease } from "../record.ts";
import type { GrantLeaseRequest, LeaseSeen, RemoteLeaseView } from "../store.ts";
import type { Tables } from "../tables.ts";
import { change, parkedAtOfHeld } from "./rows.ts";

export function grantLease(tables: Tables, request: GrantLeaseRequest): boolean {
  const record = tables.record(request.sandboxId);
  if (record === null || record.state !== "ready" || record.generation !== request.generation) return false;
  // A repeated grant is the same lease. It moves to another sandbox only when the first has ended.
  const granted = findLease(tables, request.leaseId);
  if (granted !== null) return granted.record.sandboxId === request.sandboxId;
  const { leaseId, generation, purpose, holder, ttlMs } = request;
  const lease: RemoteLease = { generation, purpose, holder, ttlMs, acquiredAt: tables.now(), beat: 1 };
  change(tables, record, { leases: { ...record.leases, [leaseId]: lease }, parkedAt: parkedAtOfHeld(record) });
  return true;
}

export function renewLease(tables: Tables, leaseId: LeaseId): RemoteLeaseView | null {
  const found = findLease(tables, leaseId);
  if (found === null) return null;
  const lease = found.record.leases[leaseId];
  if (lease === undefined) return null;
  const beat = lease.beat + 1;
  const record = change(tables, found.record, { leases: { ...found.record.leases, [leaseId]: { ...lease, beat } } });
  return { ...found, beat, record };
}

export function findLease(tables: Tables, leaseId: LeaseId): RemoteLeaseView | null {
  const record = tables.recordWithLease(leaseId);
  const lease = record?.leases[leaseId];
  if (record === null || lease === undefined) return null;
  return { leaseId, beat: lease.beat, ttlMs: lease.ttlMs, record };
}

export function releaseLease(tables: Tables, leaseId: LeaseId): ReadyRecord | null {
  const record = tables.recordWithLease(leaseId);
  return record === null ? null : dropLease(tables, record, leaseId);
}

export function expireLease(tables: Tables, leaseId: LeaseId, seen: LeaseSeen): boolean {
  const record = tables.recordWithLease(leaseId);
  const lease = record?.leases[leaseId];
  // A lease that is granted again on the next generation begins with its first beat.
  if (record === null || lease?.beat !== seen.beat || lease.generation !== seen.generation) return false;
  dropLease(tables, record, leaseId);
  return true;
}

function dropLease(tables: Tables, record: ReadyRecord, leaseId: LeaseId): ReadyRecord {
  const { [leaseId]: _, ...leases } = record.leases;
  return change(tables, record, { leases, parkedAt: tables.now() });
}
