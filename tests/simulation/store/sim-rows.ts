/**
 * The database of a shared store: rows in memory, on the store's host, and the same rows as tables for the checks.
 *
 * Every commit is applied to the watched tables at the moment of its effect, with the step that it belongs to.
 *
 * A database that may rewind loses its last commits now and then. An instance that lives and was answered to a lost
 * commit is a knower. The window in which exclusivity has an exception (`rewind-exceptions.ts`) ends with the new epoch
 * that the next commit of a knower begins, or when no knower lives any more.
 */

import type { InstanceId, LeaseId, SandboxId, ThreadId, UserId } from "@sandlot/contract";
import { isHeld, type SandboxRecord, type Tombstone } from "../../../packages/fleet/src/store/record.ts";
import { MemoryRows } from "../../../packages/fleet/src/store/rows/memory-rows.ts";
import type { BeatBody, HomeBody, SessionBody } from "../../../packages/fleet/src/store/rows/row-body.ts";
import {
  GENERATION_KEY,
  idOf,
  recordKey,
  sessionKey,
  tableOf,
} from "../../../packages/fleet/src/store/rows/row-key.ts";
import type { Commit, CommitAnswer, RowKey } from "../../../packages/fleet/src/store/rows/row-server.ts";
import type { Tables } from "../../../packages/fleet/src/store/tables.ts";
import type { Findings } from "../checks/findings.ts";
import type { Truth } from "../checks/truth.ts";
import type { Instance } from "../process/instance.ts";
import type { Trace } from "../schedule/trace.ts";
import { RewindExceptions } from "./rewind-exceptions.ts";
import type { StoreAudit, StoreStep } from "./sim-store.ts";
import type { WatchedTables } from "./watched-tables.ts";

export interface SimRowsParts {
  readonly tables: WatchedTables;
  readonly audit: StoreAudit;
  readonly findings: Findings;
  readonly truth: Truth;
  readonly trace: Trace;
  readonly newEpoch: () => string;
  readonly mayRewind: boolean;
}

export class SimRows {
  readonly rows: MemoryRows;
  readonly mayRewind: boolean;
  readonly #parts: SimRowsParts;
  readonly #acknowledged = new Map<string, { readonly by: Instance; readonly at: number }>();
  #step: StoreStep | null = null;
  readonly #exceptions: RewindExceptions;
  #isEmptied = false;
  /** The lost commits of which each instance has heard, and when. */
  #knowers = new Map<Instance, Map<string, number>>();
  /** When each epoch that is over began. */
  readonly #begunAt = new Map<string, number>();
  /** The lost commits that a knower must not be able to build on. */
  #rewoundAt: number | null = null;

  constructor(parts: SimRowsParts) {
    this.#parts = parts;
    this.mayRewind = parts.mayRewind;
    const { tables, newEpoch } = parts;
    this.rows = new MemoryRows(() => tables.now(), newEpoch as () => MemoryRows["epoch"]);
    this.#exceptions = new RewindExceptions(parts.truth);
    parts.truth.staysBehind = (owner, engine) => this.#exceptions.staysBehind(owner, engine);
    parts.findings.exceptionFor = (invariant, detail) => {
      this.#isRewound();
      return this.#exceptions.clauseFor(invariant, detail);
    };
    this.rows.audit = { committing: (commit) => this.#committing(commit), epochBegins: () => this.#epochBegins() };
    // A flush keeps the homes of threads, as `WatchedTables` does.
    tables.onEmpty = () => {
      this.#closeWindow();
      this.#isEmptied = true;
      this.rows.beginEpoch(this.rows.epoch, newEpoch() as MemoryRows["epoch"]);
      this.#isEmptied = false;
      this.rows.replicate();
    };
  }

  #isRewound(): boolean {
    for (const [knower, ids] of [...this.#knowers])
      if (!knower.process.alive || ids.size === 0) this.#knowers.delete(knower);
    if (this.#rewoundAt !== null && this.#knowers.size === 0) {
      this.#rewoundAt = null;
      this.#exceptions.unnoticed();
    }
    return this.#rewoundAt !== null;
  }

  /** `sentAt`: when the instance decided on the commit, and on what it names as seen. */
  commit(step: StoreStep, commit: Commit, sentAt: number): CommitAnswer {
    const knowsSince = Math.min(...(this.#knowers.get(step.by)?.values() ?? []));
    const isKnower = this.#isRewound() && knowsSince < sentAt && commit.epoch === this.rows.epoch;
    this.#step = step;
    try {
      const answer = this.rows.commit(commit);
      if (isKnower)
        this.#parts.findings.check(
          "rewind-is-noticed",
          answer.kind !== "committed",
          () => `${step.method} of ${step.by.name} succeeded although the store has lost a commit that it knows of`,
        );
      return answer;
    } finally {
      this.#step = null;
    }
  }

  /** The answer to a commit has reached an instance. */
  acknowledged(by: Instance, { id }: Pick<Commit, "id">): void {
    if (!this.#acknowledged.has(id)) this.#acknowledged.set(id, { by, at: this.#parts.truth.now });
  }

  /** A failover to a replica that lacks the last `ms`. Returns whether a commit was lost. */
  rewind(ms: number): boolean {
    const lost = this.rows.rewind(ms);
    if (lost.length === 0) return false;
    const { trace, tables, truth } = this.#parts;
    truth.rewoundAt = truth.now;
    // An earlier epoch goes on when the begin of a later one is lost.
    truth.recoveringSince = this.#begunAt.get(this.rows.epoch) ?? truth.recoveringSince;
    for (const id of lost) {
      const known = this.#acknowledged.get(id);
      // Also a commit whose epoch was lost with it: its instance knows that the present epoch was over.
      if (known?.by.process.alive !== true) continue;
      this.#knowers.set(known.by, (this.#knowers.get(known.by) ?? new Map()).set(id, known.at));
    }
    const before = new Set(tables.records().map(({ sandboxId }) => sandboxId));
    const names = [...this.#knowers.keys()].map(({ name }) => name);
    trace.add("store", "rewound", () => `by ${ms} ms: ${lost.length} lost, known to ${names.join()}`);
    const changed = tables.records().filter((record) => this.#isLost(record));
    for (const record of changed) this.#exceptions.affect(record);
    const reached = truth.reachable();
    tables.replace((rows) => {
      for (const { key, body } of this.rows.existing()) if (body !== null) this.#apply(rows, key, body);
    });
    // Records that are back: their end was lost.
    for (const record of tables.records()) if (!before.has(record.sandboxId)) this.#exceptions.affect(record);
    this.#noteSessions(reached);
    const ids = changed.map(({ sandboxId }) => sandboxId);
    this.#noteParked(ids);
    this.#noteLeases(ids);
    // Nothing but the lost rows told where these threads live.
    for (const [owner, { engine, isSettled }] of [...truth.homes]) {
      const [user, thread] = splitOwner(owner);
      const home = tables.homeOf(user, thread);
      const present = home ?? tables.recordOf(user, thread)?.engine ?? null;
      if (present === engine && isSettled === (home !== null)) continue;
      truth.homes.set(owner, { engine: present, at: truth.now, isSettled: home !== null });
      if (engine !== null && isSettled) this.#exceptions.homeLost(owner, engine, home);
    }
    // The end of a recovery may be lost as well, and the begin of the wait for it.
    truth.firstReachedAt.clear();
    truth.firstReachedClock.clear();
    for (const engine of truth.reachable()) truth.firstReachedAt.set(engine, truth.now);
    for (const engine of [...truth.recoveredAt.keys()])
      if (tables.isRecovering(engine)) truth.recoveredAt.delete(engine);
    if (this.#knowers.size > 0) this.#rewoundAt = truth.now;
    else this.#exceptions.unnoticed();
    return true;
  }

  /** Sessions that came or went with the lost commits, and the beats that are left. */
  #noteSessions(reached: ReadonlySet<string>): void {
    const { tables, truth } = this.#parts;
    const { now } = truth;
    const present = truth.reachable();
    for (const engine of new Set([...reached, ...present])) {
      if (reached.has(engine) === present.has(engine)) continue;
      const known = truth.reach.get(engine) ?? { gainedAt: -1, lostAt: -1 };
      truth.reach.set(engine, present.has(engine) ? { ...known, gainedAt: now } : { ...known, lostAt: now });
    }
    for (const { instance, beat } of tables.sessions()) {
      const peer = truth.instances.get(instance);
      const keptAt = peer?.beatsLanded.get(beat);
      if (peer !== undefined && keptAt !== undefined && keptAt < peer.beatLandedAt) peer.beatKeptAt = keptAt;
    }
  }

  /** Remote leases whose end was lost with the commits. */
  #noteLeases(changed: readonly SandboxId[]): void {
    const { tables, truth } = this.#parts;
    for (const leaseId of changed.flatMap((id) => Object.keys(tables.record(id)?.leases ?? {}) as LeaseId[])) {
      const remote = truth.remotes.get(leaseId);
      if (remote?.ended === true) Object.assign(remote, { ended: false, goneAt: null });
    }
  }

  /** What the store now says of sandboxes whose last holds were lost with the commits. */
  #noteParked(changed: readonly SandboxId[]): void {
    const { tables, truth } = this.#parts;
    for (const id of changed) {
      const record = tables.record(id);
      if (record?.state !== "ready" || isHeld(record) || record.parkedAt === null) continue;
      truth.parkedAtKept.set(id, truth.fromStoreClock(record.parkedAt));
    }
  }

  #isLost(record: SandboxRecord): boolean {
    const body = this.rows.read([recordKey(record.sandboxId)]).rows[0]?.body ?? null;
    return body === null || (JSON.parse(body) as SandboxRecord).revision !== record.revision;
  }

  #committing(commit: Commit): void {
    const step = this.#step;
    if (step === null) throw new Error("a commit without a step");
    const { audit, tables, trace } = this.#parts;
    // A request that was long in transit brings a lost commit back.
    for (const ids of this.#knowers.values()) ids.delete(commit.id);
    if (this.#isRewound())
      for (const [key, body] of commit.writes)
        if (tableOf(key) === "record" && body !== null) this.#exceptions.affect(JSON.parse(body) as SandboxRecord);
    audit.began(step);
    for (const [key, body] of commit.writes) this.#apply(tables, key, body, commit);
    audit.ended(step, this.#resultOf(step, commit));
    const written = () => [...commit.writes].map(([key, body]) => `${key}=${body}`).join(" ");
    trace.add(step.by.name, step.method, () => `${JSON.stringify(step.args)} → ${written()}`.slice(0, 900));
  }

  /** What the checks want to know of the result: the generation for a blank. */
  #resultOf({ method }: StoreStep, { writes }: Commit): unknown {
    const generation = writes.get(GENERATION_KEY);
    if (method !== "take" || generation === undefined) return null;
    const hasRecord = [...writes.keys()].some((key) => tableOf(key) === "record");
    return hasRecord ? null : { kind: "blank", generation: Number(generation) };
  }

  #epochBegins(): void {
    this.#begunAt.set(this.rows.epoch, this.#parts.truth.recoveringSince);
    if (this.#isEmptied) return;
    this.#parts.trace.add("store", "new epoch");
    this.#closeWindow();
    this.#parts.tables.beginEpoch();
  }

  #closeWindow(): void {
    this.#knowers = new Map();
    this.#rewoundAt = null;
    this.#exceptions.epochBegan();
  }

  #apply(tables: Tables, key: RowKey, body: string | null, commit?: Commit): void {
    const value: unknown = body === null ? null : JSON.parse(body);
    switch (tableOf(key)) {
      case "record":
        if (value === null) tables.deleteRecord(idOf(key) as SandboxId);
        else tables.putRecord(value as SandboxRecord);
        return;
      case "tombstone":
        if (value !== null) tables.putTombstone(value as Tombstone);
        return;
      case "session":
        // A session that is ending has no rights any more.
        if (value === null || (value as SessionBody).ending) tables.deleteSession(idOf(key) as InstanceId);
        return;
      case "beat":
        if (value !== null) this.#putSession(tables, value as BeatBody, commit);
        return;
      case "generation":
        tables.putGeneration(value as number);
        return;
      case "recovered":
        if (value !== null && idOf(key) !== "") tables.endRecovery(idOf(key));
        return;
      case "home": {
        const home = value as HomeBody | null;
        if (home !== null) tables.putHome(home.user as never, home.thread as never, home.engine);
        return;
      }
    }
  }

  #putSession(tables: Tables, { instance, beat, lastBeatAt }: BeatBody, commit: Commit | undefined): void {
    const key = sessionKey(instance);
    const body = commit?.writes.get(key) ?? this.rows.read([key]).rows[0]?.body;
    if (body === null || body === undefined) return;
    const { ending, ...session } = JSON.parse(body) as SessionBody;
    if (ending) return;
    tables.putSession({ ...session, beat, lastBeatAt });
  }
}

/** `user/thread`: a user has no slash in its name. */
function splitOwner(owner: string): readonly [UserId, ThreadId] {
  const at = owner.indexOf("/");
  return [owner.slice(0, at) as UserId, owner.slice(at + 1) as ThreadId];
}
