/**
 * The rows of the one store, with somebody looking over its shoulder: every change of a row is told before it happens,
 * with the row as it was and as it will be. Rows are frozen, so that nobody changes one behind the store's back.
 */

import type { Epoch, InstanceId, SandboxId } from "@sandlot/contract";
import { MemoryTables } from "../../../packages/fleet/src/store/memory/memory-tables.ts";
import type { SandboxRecord } from "../../../packages/fleet/src/store/record.ts";
import type { Session } from "../../../packages/fleet/src/store/store.ts";
import { type ClockRow, clockOfBoot, readClock } from "../../../packages/fleet/src/store/store-clock.ts";
import type { MetaRow } from "../../../packages/fleet/src/store/tables.ts";
import type { Host } from "../process/host.ts";

export interface TablesAudit {
  recordPut(before: SandboxRecord | null, after: SandboxRecord): void;
  recordDeleted(before: SandboxRecord): void;
  sessionPut(before: Session | null, after: Session): void;
  sessionDeleted(before: Session): void;
  metaPut(before: MetaRow, after: MetaRow): void;
  emptied(): void;
}

export class WatchedTables extends MemoryTables {
  #audit: TablesAudit | null = null;
  readonly #clock: { row: ClockRow };

  /** The machine that the store is on: its clock is that one's. */
  readonly host: Host;

  constructor(host: Host, newEpoch: () => string) {
    const clock = { row: clockOfBoot(host, null, 0) };
    super(
      () => readClock(host, clock.row),
      () => newEpoch() as Epoch,
    );
    this.host = host;
    this.#clock = clock;
  }

  watchedBy(audit: TablesAudit): void {
    this.#audit = audit;
  }

  /** Another store is in its place: it knows nothing, not even what time the former took it to be. */
  override empty(): void {
    this.#clock.row = clockOfBoot(this.host, null, 0);
    super.empty();
    this.#audit?.emptied();
  }

  override putMeta(meta: MetaRow): void {
    this.#audit?.metaPut(this.meta(), meta);
    super.putMeta(meta);
  }

  override putSession(session: Session): void {
    this.#audit?.sessionPut(this.session(session.instance), session);
    super.putSession(Object.freeze(session));
  }

  override deleteSession(instance: InstanceId): void {
    const before = this.session(instance);
    if (before !== null) this.#audit?.sessionDeleted(before);
    super.deleteSession(instance);
  }

  override putRecord(record: SandboxRecord): void {
    this.#audit?.recordPut(this.record(record.sandboxId), record);
    Object.freeze(record.holders);
    Object.freeze(record.leases);
    super.putRecord(Object.freeze(record));
  }

  override deleteRecord(sandboxId: SandboxId): void {
    const before = this.record(sandboxId);
    if (before !== null) this.#audit?.recordDeleted(before);
    super.deleteRecord(sandboxId);
  }
}
