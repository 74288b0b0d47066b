/**
 * The database of a shared store: rows in memory, on the store's host, and the same rows as tables for the checks.
 *
 * Every commit is applied to the watched tables at the moment of its effect, with the step that it belongs to.
 *
 * A database that may rewind loses its last commits now and then. The promise then has an exception. It begins with the
 * failover, if a living instance knows of a lost commit (`knowers`: the answer reached it). It ends when a new epoch
 * begins, or when no such instance lives any more. While it lasts (`isExcepted`), and until the damage of that time is
 * repaired, which is when the next recovery is over, violations are counted apart and are no failures.
 * What holds nevertheless, without an exception: no commit of an instance that knows more succeeds in the old epoch.
 */

import type { InstanceId, SandboxId } from "@sandlot/contract";
import type { SandboxRecord, Tombstone } from "../../../packages/fleet/src/store/record.ts";
import { MemoryRows } from "../../../packages/fleet/src/store/rows/memory-rows.ts";
import type { BeatBody, HomeBody, SessionBody } from "../../../packages/fleet/src/store/rows/row-body.ts";
import { GENERATION_KEY, idOf, sessionKey, tableOf } from "../../../packages/fleet/src/store/rows/row-key.ts";
import type { Commit, CommitAnswer, RowKey } from "../../../packages/fleet/src/store/rows/row-server.ts";
import type { Tables } from "../../../packages/fleet/src/store/tables.ts";
import type { Findings } from "../checks/findings.ts";
import type { Truth } from "../checks/truth.ts";
import type { Instance } from "../process/instance.ts";
import type { Trace } from "../schedule/trace.ts";
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
  readonly #acknowledged = new Map<string, Set<Instance>>();
  #step: StoreStep | null = null;
  #knowers = new Set<Instance>();
  /** The lost commits that a knower must not be able to build on. */
  #rewoundAt: number | null = null;

  constructor(parts: SimRowsParts) {
    this.#parts = parts;
    this.mayRewind = parts.mayRewind;
    const { tables, newEpoch } = parts;
    this.rows = new MemoryRows(() => tables.now(), newEpoch as () => MemoryRows["epoch"]);
    this.rows.audit = { committing: (commit) => this.#committing(commit), epochBegins: () => this.#epochBegins() };
    tables.onEmpty = () => {
      this.#closeWindow();
      this.rows.lose();
    };
  }

  /** Whether the promise has its exception now. */
  get isExcepted(): boolean {
    for (const knower of [...this.#knowers]) if (!knower.process.alive) this.#knowers.delete(knower);
    if (this.#knowers.size === 0) this.#rewoundAt = null;
    return this.#rewoundAt !== null;
  }

  commit(step: StoreStep, commit: Commit): CommitAnswer {
    const isKnower = this.isExcepted && this.#knowers.has(step.by) && commit.epoch === this.rows.epoch;
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
  acknowledged(by: Instance, id: string): void {
    const known = this.#acknowledged.get(id) ?? new Set();
    this.#acknowledged.set(id, known.add(by));
  }

  /** A failover to a replica that lacks the last `ms`. Returns whether a commit was lost. */
  rewind(ms: number): boolean {
    const lost = this.rows.rewind(ms);
    if (lost.length === 0) return false;
    const { trace, tables, truth } = this.#parts;
    for (const id of lost)
      for (const by of this.#acknowledged.get(id) ?? []) if (by.process.alive) this.#knowers.add(by);
    const names = [...this.#knowers].map(({ name }) => name);
    trace.add("store", "rewound", () => `by ${ms} ms: ${lost.length} lost, known to ${names.join()}`);
    if (this.#knowers.size > 0) this.#rewoundAt = truth.now;
    tables.replace((rows) => {
      for (const { key, body } of this.rows.existing()) if (body !== null) this.#apply(rows, key, body);
    });
    return true;
  }

  #committing(commit: Commit): void {
    const step = this.#step;
    if (step === null) throw new Error("a commit without a step");
    const { audit, tables, trace } = this.#parts;
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
    this.#parts.trace.add("store", "new epoch");
    this.#closeWindow();
    this.#parts.tables.beginEpoch();
  }

  #closeWindow(): void {
    this.#knowers = new Set();
    this.#rewoundAt = null;
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
        if (value === null) tables.deleteSession(idOf(key) as InstanceId);
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
    const { ending: _, ...session } = JSON.parse(body) as SessionBody;
    tables.putSession({ ...session, beat, lastBeatAt });
  }
}
