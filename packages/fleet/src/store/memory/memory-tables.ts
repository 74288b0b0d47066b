/** Rows in maps, with the indexes that the transactions use. */

import type { Epoch, InstanceId, SandboxId, ThreadId, UserId } from "@sandlot/contract";
import { isBlank, isParked, type ReadyRecord, type SandboxRecord, type Tombstone } from "../record.ts";
import type { Census, ListFilter, Session, TombstoneFilter } from "../store.ts";
import type { MetaRow, Tables } from "../tables.ts";
import type { ThreadHome, TransferMark } from "../transfer/store-transfer.ts";

/** Enough to explain yesterday, and bounded. */
const TOMBSTONES_MAX = 1_000;

export class MemoryTables implements Tables {
  readonly isShared: boolean;
  readonly now: () => number;
  readonly #newEpoch: () => Epoch;
  readonly #sessions = new Map<InstanceId, Session>();
  readonly #records = new Map<SandboxId, SandboxRecord>();
  readonly #byUser = new Map<UserId, Map<ThreadId, SandboxId>>();
  readonly #heldBy = new Map<InstanceId, Set<SandboxId>>();
  readonly #blanks = new Map<string, Set<SandboxId>>();
  readonly #tombstones = new Map<SandboxId, Tombstone>();
  /** Both of a shared store only. */
  readonly #homes = new Map<UserId, Map<ThreadId, string>>();
  readonly #recovered = new Set<string>();
  readonly #awaited = new Map<string, number>();
  readonly #watchers = new Set<() => void>();
  #meta: MetaRow;
  #transfer: TransferMark | null = null;
  #generation = 0;
  /** Grows with every change, so that a step without changes wakes no waiter. */
  changeCount = 0;

  /** `isShared`: for hosts with different engines, all of which are in one process. */
  constructor(now: () => number, newEpoch: () => Epoch, isShared = false) {
    this.isShared = isShared;
    this.now = now;
    this.#newEpoch = newEpoch;
    this.#meta = this.#firstMeta();
  }

  /** Loses everything but the homes of threads and the mark of a move, which a shared store keeps over epochs. */
  empty(): void {
    this.#recovered.clear();
    this.#awaited.clear();
    const rows = [this.#sessions, this.#records, this.#tombstones];
    for (const table of [...rows, this.#byUser, this.#heldBy, this.#blanks]) table.clear();
    this.#meta = this.#firstMeta();
    if (!this.isShared) this.#transfer = null;
    this.#generation = 0;
  }

  #firstMeta(): MetaRow {
    return { epoch: this.#newEpoch(), recovering: true };
  }

  watch(hint: () => void): () => void {
    this.#watchers.add(hint);
    return () => this.#watchers.delete(hint);
  }

  hint(): void {
    for (const watcher of this.#watchers) watcher();
  }

  meta(): MetaRow {
    return this.#meta;
  }

  putMeta(meta: MetaRow): void {
    this.changeCount += 1;
    this.#meta = meta;
  }

  transfer(): TransferMark | null {
    return this.#transfer;
  }

  putTransfer(mark: TransferMark | null): void {
    this.changeCount += 1;
    this.#transfer = mark;
  }

  generation(): number {
    return this.#generation;
  }

  putGeneration(generation: number): void {
    this.changeCount += 1;
    this.#generation = generation;
  }

  isRecovering(engine: string): boolean {
    return this.isShared ? !this.#recovered.has(engine) : this.#meta.recovering;
  }

  endRecovery(engine: string): void {
    this.changeCount += 1;
    if (this.isShared) this.#recovered.add(engine);
    else this.#meta = { ...this.#meta, recovering: false };
  }

  awaitedUntil(engine: string): number | null {
    return this.#awaited.get(engine) ?? null;
  }

  awaitUntil(engine: string, at: number): void {
    this.changeCount += 1;
    this.#awaited.set(engine, at);
  }

  hasSession(instance: InstanceId): boolean {
    return this.#sessions.has(instance);
  }

  session(instance: InstanceId): Session | null {
    return this.#sessions.get(instance) ?? null;
  }

  sessions(): readonly Session[] {
    return [...this.#sessions.values()];
  }

  putSession(session: Session): void {
    this.changeCount += 1;
    this.#sessions.set(session.instance, session);
  }

  deleteSession(instance: InstanceId): void {
    this.changeCount += 1;
    this.#sessions.delete(instance);
  }

  record(sandboxId: SandboxId): SandboxRecord | null {
    return this.#records.get(sandboxId) ?? null;
  }

  recordOf(user: UserId, thread: ThreadId): SandboxRecord | null {
    const sandboxId = this.#byUser.get(user)?.get(thread);
    return sandboxId === undefined ? null : this.record(sandboxId);
  }

  records(filter?: ListFilter): readonly SandboxRecord[] {
    const all = [...this.#records.values()];
    if (filter === undefined) return all;
    if ("blankOf" in filter) return all.filter((record) => isBlank(record) && record.blueprintHash === filter.blankOf);
    if ("parked" in filter) return all.filter(isParked);
    if ("unheld" in filter) return all.filter((record) => isBlank(record) || isParked(record));
    if ("leased" in filter) return all.filter(({ leases }) => Object.keys(leases).length > 0);
    return all.filter((record) => record.state !== "ready");
  }

  recordsHeldBy(instance: InstanceId): readonly ReadyRecord[] {
    return [...(this.#heldBy.get(instance) ?? [])]
      .map((id) => this.#records.get(id))
      .filter((record) => record?.state === "ready");
  }

  recordWithLease(leaseId: string): ReadyRecord | null {
    for (const record of this.#records.values())
      if (record.state === "ready" && leaseId in record.leases) return record;
    return null;
  }

  blankIds(blueprintHash: string, engine: string): readonly SandboxId[] {
    const blanks = [...(this.#blanks.get(blueprintHash) ?? [])];
    return this.isShared ? blanks.filter((id) => this.record(id)?.engine === engine) : blanks;
  }

  countAll(): number {
    return this.#records.size;
  }

  census(user: UserId | null): Census {
    const counts = { leased: 0, parked: 0, blank: 0, creating: 0, stopping: 0 };
    for (const record of this.#records.values()) {
      if (user !== null && record.user !== user) continue;
      if (record.state !== "ready") counts[record.state] += 1;
      else if (isBlank(record)) counts.blank += 1;
      else counts[isParked(record) ? "parked" : "leased"] += 1;
    }
    return counts;
  }

  countOf(user: UserId): number {
    return this.#byUser.get(user)?.size ?? 0;
  }

  countOn(engine: string): number {
    if (!this.isShared) return this.countAll();
    let count = 0;
    for (const record of this.#records.values()) if (record.engine === engine) count += 1;
    return count;
  }

  homeOf(user: UserId, thread: ThreadId): string | null {
    return this.#homes.get(user)?.get(thread) ?? null;
  }

  homes(): readonly ThreadHome[] {
    const users = [...this.#homes];
    return users.flatMap(([user, threads]) => [...threads].map(([thread, engine]) => ({ user, thread, engine })));
  }

  putHome(user: UserId, thread: ThreadId, engine: string): void {
    if (!this.isShared || this.homeOf(user, thread) === engine) return;
    this.changeCount += 1;
    const threads = this.#homes.get(user) ?? new Map<ThreadId, string>();
    this.#homes.set(user, threads.set(thread, engine));
  }

  dropHome(user: UserId, thread: ThreadId): void {
    const threads = this.#homes.get(user);
    if (threads?.delete(thread) !== true) return;
    this.changeCount += 1;
    if (threads.size === 0) this.#homes.delete(user);
  }

  putRecord(record: SandboxRecord): void {
    this.#unindex(record.sandboxId);
    this.#records.set(record.sandboxId, record);
    if (isBlank(record)) {
      const blanks = this.#blanks.get(record.blueprintHash) ?? new Set();
      this.#blanks.set(record.blueprintHash, blanks.add(record.sandboxId));
    }
    if (record.user !== null && record.thread !== null) {
      const threads = this.#byUser.get(record.user) ?? new Map<ThreadId, SandboxId>();
      this.#byUser.set(record.user, threads.set(record.thread, record.sandboxId));
    }
    for (const holder of Object.keys(record.holders) as InstanceId[]) {
      const held = this.#heldBy.get(holder) ?? new Set();
      this.#heldBy.set(holder, held.add(record.sandboxId));
    }
  }

  deleteRecord(sandboxId: SandboxId): void {
    this.#unindex(sandboxId);
    this.#records.delete(sandboxId);
  }

  #unindex(sandboxId: SandboxId): void {
    this.changeCount += 1;
    const old = this.#records.get(sandboxId);
    if (old === undefined) return;
    const blanks = this.#blanks.get(old.blueprintHash);
    blanks?.delete(sandboxId);
    if (blanks?.size === 0) this.#blanks.delete(old.blueprintHash);
    if (old.user !== null && old.thread !== null) {
      const threads = this.#byUser.get(old.user);
      threads?.delete(old.thread);
      if (threads?.size === 0) this.#byUser.delete(old.user);
    }
    for (const holder of Object.keys(old.holders) as InstanceId[]) {
      const held = this.#heldBy.get(holder);
      held?.delete(sandboxId);
      if (held?.size === 0) this.#heldBy.delete(holder);
    }
  }

  tombstone(sandboxId: SandboxId): Tombstone | null {
    return this.#tombstones.get(sandboxId) ?? null;
  }

  tombstones(filter: TombstoneFilter, limit: number): readonly Tombstone[] {
    const matches = (tombstone: Tombstone) =>
      "idPrefix" in filter
        ? tombstone.sandboxId.startsWith(filter.idPrefix)
        : tombstone.user === filter.user && tombstone.thread === filter.thread;
    return [...this.#tombstones.values()].filter(matches).reverse().slice(0, limit);
  }

  tombstoneOf(user: UserId, thread: ThreadId): Tombstone | null {
    let last: Tombstone | null = null;
    for (const tombstone of this.#tombstones.values())
      if (tombstone.user === user && tombstone.thread === thread) last = tombstone;
    return last;
  }

  putTombstone(tombstone: Tombstone): void {
    this.#tombstones.delete(tombstone.sandboxId);
    this.#tombstones.set(tombstone.sandboxId, tombstone);
    const oldest = this.#tombstones.keys().next();
    if (this.#tombstones.size > TOMBSTONES_MAX && oldest.done !== true) this.#tombstones.delete(oldest.value);
  }
}
