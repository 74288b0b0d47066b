/**
 * Rows as tables: what one run of a step sees, and what it does. The view records every row that the step relies on,
 * with its number, and collects its writes; the store then sends both as one commit.
 *
 * Invariants
 * - A step sees its own writes.
 * - A row that the step has read, and every row that it writes, is in `reads`. Rows that only give a hint are not: the
 *   beats of other sessions, lists, and in a beat (`relies: "writes"`) the holds that it only looks at.
 * - `thread/`, `lease/` and `count/` rows change with the records, in the same commit.
 * - `roster` has every session with rights, so that a step can rely on which sessions there are.
 * - In a reading step lists are as of a moment after its request: without a fresh mirror they throw `MirrorNeeded`.
 */

import type { Epoch, InstanceId, LeaseId, SandboxId, ThreadId, UserId } from "@sandlot/contract";
import { threadKeyOf } from "../../backend/labels.ts";
import type { SharedEntry } from "../entries.ts";
import type { ReadyRecord, SandboxRecord, Tombstone } from "../record.ts";
import type { Census, ListFilter, Session, TombstoneFilter } from "../store.ts";
import type { MetaRow, Tables } from "../tables.ts";
import type { ThreadHome, TransferMark } from "../transfer/store-transfer.ts";
import { type BeatBody, type HomeBody, type SessionBody, type ThreadBody, toSession } from "./row-body.ts";
import {
  awaitedKey,
  beatKey,
  COUNT_ALL_KEY,
  engineCountKey,
  entryKey,
  GENERATION_KEY,
  homeKey,
  leaseKey,
  ROSTER_KEY,
  recordKey,
  recoveredKey,
  sessionKey,
  TRANSFER_KEY,
  threadRowKey,
  tombstoneKey,
  userCountKey,
} from "./row-key.ts";
import type { RowMirror } from "./row-mirror.ts";
import { MirrorNeeded, RowsNeeded } from "./row-needs.ts";
import type { RowKey, Topic } from "./row-server.ts";

export interface RowViewOptions {
  readonly mirror: RowMirror;
  readonly epoch: Epoch;
  readonly now: number;
  /** The mirror was brought up to date since the step was requested. */
  readonly isFresh: boolean;
  readonly access: "read" | "write";
  /** `writes`: only on the rows that it writes, and on its session. */
  readonly relies: "reads" | "writes";
}

export class RowView implements Tables {
  readonly isShared = true;
  readonly reads = new Map<RowKey, number>();
  /** New values; `null` deletes. */
  readonly writes = new Map<RowKey, unknown>();
  readonly topics = new Set<Topic>();
  /** Called with the number of the commit when it has taken effect. */
  onCommitted: ((seq: number) => void) | null = null;
  readonly #options: RowViewOptions;

  constructor(options: RowViewOptions) {
    this.#options = options;
  }

  now(): number {
    return this.#options.now;
  }

  meta(): MetaRow {
    return { epoch: this.#options.epoch, recovering: true };
  }

  putMeta(): void {
    throw new Error("The epoch of shared rows begins at their server, and recovery ends for each engine.");
  }

  isRecovering(engine: string): boolean {
    return this.#get(recoveredKey(engine)) === null;
  }

  endRecovery(engine: string): void {
    this.#put(recoveredKey(engine), { epoch: this.#options.epoch });
    this.topics.add(ROOM);
  }

  awaitedUntil(engine: string): number | null {
    return this.#get(awaitedKey(engine)) as number | null;
  }

  awaitUntil(engine: string, at: number): void {
    this.#put(awaitedKey(engine), at);
  }

  /** Relied on also by a beat: a registration must not overtake the mark. */
  transfer(): TransferMark | null {
    return this.#relyOn(TRANSFER_KEY) as TransferMark | null;
  }

  putTransfer(mark: TransferMark | null): void {
    this.#put(TRANSFER_KEY, mark);
  }

  generation(): number {
    return (this.#get(GENERATION_KEY) as number | null) ?? 0;
  }

  putGeneration(generation: number): void {
    this.#put(GENERATION_KEY, generation);
  }

  hasSession(instance: InstanceId): boolean {
    return this.#session(instance) !== null;
  }

  session(instance: InstanceId): Session | null {
    const session = this.#session(instance);
    // The beat may be old or unknown here. A step that writes it learns the present one by a conflict.
    const beat = this.#hint(beatKey(instance)) as BeatBody | null;
    return session === null ? null : toSession(session, beat ?? NO_BEAT);
  }

  sessions(): readonly Session[] {
    if (this.#options.access === "write") return this.#roster().map((session) => toSession(session, NO_BEAT));
    this.#needMirror("session");
    return this.#options.mirror.sessions().map(({ session, beat }) => toSession(session, beat));
  }

  putSession({ beat, lastBeatAt, ...session }: Session): void {
    const { instance } = session;
    const body: SessionBody = { ...session, ending: false };
    // Unchanged in most beats: then no hold conflicts with the beat.
    if (JSON.stringify(this.#relyOn(sessionKey(instance))) !== JSON.stringify(body)) {
      this.#put(sessionKey(instance), body);
      const others = this.#roster();
      const isListed = others.some((other) => other.instance === instance);
      const replaced = others.map((other) => (other.instance === instance ? body : other));
      this.#put(ROSTER_KEY, isListed ? replaced : [...others, body]);
    }
    this.#put(beatKey(instance), { instance, beat, lastBeatAt });
  }

  deleteSession(instance: InstanceId): void {
    this.#put(sessionKey(instance), null);
    this.#put(beatKey(instance), null);
    this.#put(ROSTER_KEY, this.#rosterWithout(instance));
  }

  /** The session if its last beat is still this one (`null`: whichever), also if it is ending. */
  sessionToEnd(instance: InstanceId, beatSeen: number | null): Session | null {
    const session = this.#anySession(instance);
    const beat = this.#relyOn(beatKey(instance)) as BeatBody | null;
    if (session === null || beat === null || (beatSeen !== null && beat.beat !== beatSeen)) return null;
    return toSession(session, beat);
  }

  /** From now on the session has no rights: every hold that is under way conflicts. */
  markEnding(instance: InstanceId): void {
    const session = this.#anySession(instance);
    if (session === null || session.ending) return;
    this.#put(sessionKey(instance), { ...session, ending: true });
    this.#put(ROSTER_KEY, this.#rosterWithout(instance));
  }

  isEnding(instance: InstanceId): boolean {
    return this.#anySession(instance)?.ending === true;
  }

  record(sandboxId: SandboxId): SandboxRecord | null {
    return this.#get(recordKey(sandboxId)) as SandboxRecord | null;
  }

  recordOf(user: UserId, thread: ThreadId): SandboxRecord | null {
    const sandboxId = this.#thread(user, thread).sandboxId;
    return sandboxId === null ? null : this.record(sandboxId);
  }

  records(filter?: ListFilter): readonly SandboxRecord[] {
    this.#needMirror("record");
    return this.#options.mirror.tables.records(filter);
  }

  recordsHeldBy(instance: InstanceId): readonly ReadyRecord[] {
    const held = this.#options.mirror.tables.recordsHeldBy(instance).map(({ sandboxId }) => this.record(sandboxId));
    return held.filter((record) => record?.state === "ready" && instance in record.holders) as ReadyRecord[];
  }

  recordWithLease(leaseId: string): ReadyRecord | null {
    const lease = this.#get(leaseKey(leaseId)) as { readonly sandboxId: SandboxId } | null;
    const record = lease === null ? null : this.record(lease.sandboxId);
    return record?.state === "ready" && leaseId in record.leases ? record : null;
  }

  /** A hint, as of the last beat or list: a look for each caller would cost a round trip where there is none. */
  blankIds(blueprintHash: string, engine: string): readonly SandboxId[] {
    if (!this.#options.mirror.isComplete) throw new MirrorNeeded();
    return this.#options.mirror.tables.blankIds(blueprintHash, engine);
  }

  countAll(): number {
    return this.#count(COUNT_ALL_KEY);
  }

  /** In a writing step a hint: a caller that is refused for lack of room asks again and again. */
  census(user: UserId | null): Census {
    this.#needMirror("record");
    return this.#options.mirror.tables.census(user);
  }

  countOf(user: UserId): number {
    return this.#count(userCountKey(user));
  }

  countOn(engine: string): number {
    return this.#count(engineCountKey(engine));
  }

  putRecord(record: SandboxRecord): void {
    const before = this.record(record.sandboxId);
    this.#put(recordKey(record.sandboxId), record);
    this.#moveKey(before, record);
    this.#moveLeases(before, record);
    if (before?.state !== record.state || before.thread !== record.thread) this.#tellThread(record);
  }

  deleteRecord(sandboxId: SandboxId): void {
    const before = this.record(sandboxId);
    if (before === null) return;
    this.#put(recordKey(sandboxId), null);
    this.#moveKey(before, null);
    this.#moveLeases(before, null);
    this.#tellThread(before);
    this.topics.add(ROOM);
  }

  homeOf(user: UserId, thread: ThreadId): string | null {
    return (this.#get(homeKey(user, thread)) as HomeBody | null)?.engine ?? null;
  }

  homes(): readonly ThreadHome[] {
    this.#needMirror("home");
    return this.#options.mirror.homes();
  }

  putHome(user: UserId, thread: ThreadId, engine: string): void {
    this.#put(homeKey(user, thread), { user, thread, engine });
  }

  dropHome(user: UserId, thread: ThreadId): void {
    this.#put(homeKey(user, thread), null);
  }

  entry(name: string): SharedEntry | null {
    const body = this.#get(entryKey(name)) as string | null;
    return body === null ? null : { name, body, seq: this.#options.mirror.seqOf(entryKey(name)) ?? 0 };
  }

  putEntry(name: string, body: string | null): void {
    this.#put(entryKey(name), body);
  }

  entries(prefix: string): readonly SharedEntry[] {
    this.#needMirror("entry");
    return this.#options.mirror.entries().filter(({ name }) => name.startsWith(prefix));
  }

  tombstone(sandboxId: SandboxId): Tombstone | null {
    return this.#get(tombstoneKey(sandboxId)) as Tombstone | null;
  }

  tombstones(filter: TombstoneFilter, limit: number): readonly Tombstone[] {
    this.#needMirror("tombstone");
    const matches = (tombstone: Tombstone) =>
      "idPrefix" in filter
        ? tombstone.sandboxId.startsWith(filter.idPrefix)
        : tombstone.user === filter.user && tombstone.thread === filter.thread;
    return this.#options.mirror.tombstones().filter(matches).reverse().slice(0, limit);
  }

  tombstoneOf(user: UserId, thread: ThreadId): Tombstone | null {
    return this.#thread(user, thread).tombstone;
  }

  putTombstone(tombstone: Tombstone): void {
    const { sandboxId, user, thread } = tombstone;
    this.#put(tombstoneKey(sandboxId), tombstone);
    if (user !== null && thread !== null)
      this.#put(threadRowKey(user, thread), { ...this.#thread(user, thread), tombstone });
    for (const oldest of this.#options.mirror.tombstones().slice(0, 1 - TOMBSTONES_MAX)) this.#forget(oldest);
  }

  /** Forgets an ended sandbox, and its thread if that has nothing else. */
  #forget({ sandboxId, user, thread }: Tombstone): void {
    if (this.tombstone(sandboxId) === null) return;
    this.#put(tombstoneKey(sandboxId), null);
    if (user === null || thread === null) return;
    const row = this.#thread(user, thread);
    if (row.tombstone?.sandboxId !== sandboxId) return;
    this.#put(threadRowKey(user, thread), row.sandboxId === null ? null : { ...row, tombstone: null });
  }

  /** The key and the counts of a record that appears, changes its thread, or goes. */
  #moveKey(before: SandboxRecord | null, after: SandboxRecord | null): void {
    if (before === null && after !== null) this.#add(COUNT_ALL_KEY, 1).#add(engineCountKey(after.engine), 1);
    if (before !== null && after === null) this.#add(COUNT_ALL_KEY, -1).#add(engineCountKey(before.engine), -1);
    if (before?.user === after?.user && before?.thread === after?.thread) return;
    if (before !== null && before.user !== null && before.thread !== null) {
      const key = threadRowKey(before.user, before.thread);
      const { tombstone } = this.#thread(before.user, before.thread);
      this.#put(key, tombstone === null ? null : { sandboxId: null, tombstone });
      this.#add(userCountKey(before.user), -1);
    }
    if (after !== null && after.user !== null && after.thread !== null) {
      const { sandboxId } = after;
      this.#put(threadRowKey(after.user, after.thread), { ...this.#thread(after.user, after.thread), sandboxId });
      this.#add(userCountKey(after.user), 1);
    }
  }

  #moveLeases(before: SandboxRecord | null, after: SandboxRecord | null): void {
    for (const leaseId of Object.keys(after?.leases ?? {}) as LeaseId[])
      if (before?.leases[leaseId] === undefined) this.#put(leaseKey(leaseId), { sandboxId: after?.sandboxId });
    for (const leaseId of Object.keys(before?.leases ?? {}) as LeaseId[]) {
      if (after?.leases[leaseId] !== undefined) continue;
      const row = this.#get(leaseKey(leaseId)) as { readonly sandboxId: SandboxId } | null;
      if (row?.sandboxId === before?.sandboxId) this.#put(leaseKey(leaseId), null);
    }
  }

  /** Callers wait for a thread's sandbox to be ready, or gone. */
  #tellThread({ user, thread }: SandboxRecord): void {
    if (user !== null && thread !== null) this.topics.add(`thread:${threadKeyOf(user, thread)}`);
  }

  #anySession(instance: InstanceId): SessionBody | null {
    return this.#relyOn(sessionKey(instance)) as SessionBody | null;
  }

  #session(instance: InstanceId): SessionBody | null {
    const session = this.#anySession(instance);
    return session === null || session.ending ? null : session;
  }

  #roster(): readonly SessionBody[] {
    return (this.#relyOn(ROSTER_KEY) as readonly SessionBody[] | null) ?? [];
  }

  #rosterWithout(instance: InstanceId): readonly SessionBody[] {
    return this.#roster().filter((session) => session.instance !== instance);
  }

  #thread(user: UserId, thread: ThreadId): ThreadBody {
    return (this.#get(threadRowKey(user, thread)) as ThreadBody | null) ?? { sandboxId: null, tombstone: null };
  }

  #count(key: RowKey): number {
    return (this.#get(key) as number | null) ?? 0;
  }

  #add(key: RowKey, by: number): this {
    const count = this.#count(key) + by;
    this.#put(key, count === 0 ? null : count);
    return this;
  }

  #get(key: RowKey): unknown {
    return this.#options.relies === "reads" ? this.#relyOn(key) : this.#hint(key);
  }

  /** The value of a row, which must be the present one when the commit takes effect. */
  #relyOn(key: RowKey): unknown {
    const { mirror } = this.#options;
    const seq = mirror.seqOf(key);
    if (seq === undefined && !mirror.isComplete) throw new RowsNeeded([key]);
    this.reads.set(key, seq ?? 0);
    return this.writes.has(key) ? this.writes.get(key) : mirror.valueOf(key);
  }

  /** The value of a row as far as it is known. */
  #hint(key: RowKey): unknown {
    const { mirror } = this.#options;
    if (this.writes.has(key)) return this.writes.get(key);
    if (mirror.seqOf(key) === undefined && !mirror.isComplete) throw new RowsNeeded([key]);
    return mirror.valueOf(key);
  }

  #put(key: RowKey, value: unknown): void {
    this.#relyOn(key);
    this.writes.set(key, value);
  }

  #needMirror(table: string): void {
    const { mirror, isFresh, access } = this.#options;
    if (!mirror.isComplete || (access === "read" && !isFresh)) throw new MirrorNeeded();
    if (access === "write") return;
    for (const [key, error] of mirror.damaged) if (key.startsWith(`${table}/`)) throw error;
  }
}

/** The roster does not change with the beats. */
const NO_BEAT = { beat: 0, lastBeatAt: 0 } as const;
/** Enough to explain yesterday, and bounded. */
const TOMBSTONES_MAX = 1_000;
/** Callers wait for room, and for the end of a recovery. */
const ROOM: Topic = "room";
