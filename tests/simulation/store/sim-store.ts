/**
 * One instance's store: the real transactions over the shared rows, behind a network that is slow, loses requests and
 * responses, and delivers some responses after their caller has given up.
 */

import { SandlotError } from "@sandlot/contract";
import type { BeatRequest } from "../../../packages/fleet/src/store/store.ts";
import type { Tables } from "../../../packages/fleet/src/store/tables.ts";
import { TransactionalStore } from "../../../packages/fleet/src/store/transactional-store.ts";
import type { Faults } from "../faults.ts";
import type { Plan } from "../process/calls.ts";
import type { Instance } from "../process/instance.ts";
import type { Partitions } from "../process/partitions.ts";
import type { Random } from "../schedule/random.ts";
import type { Scheduler } from "../schedule/scheduler.ts";
import type { Trace } from "../schedule/trace.ts";
import type { WatchedTables } from "./watched-tables.ts";

/** One call to the store: the caller, the step, and the time it was sent. */
export interface StoreStep {
  readonly by: Instance;
  readonly method: string;
  readonly args: readonly unknown[];
  readonly sentAt: number;
  /** The difference between the sender's wall clock and its monotonic one at the time of sending. */
  readonly skewMs: number;
  /** How many events had run by then: it orders what happens in one millisecond. */
  readonly turn: number;
  /** The store's clock as the sender knew it when it decided on what takes effect now; absent: as it knows it now. */
  heard?: Instance["storeHeard"];
}

export interface StoreAudit {
  /** The request is in transit. */
  asked(step: StoreStep): void;
  /** The step takes effect now; its row changes follow. */
  began(step: StoreStep): void;
  ended(step: StoreStep, result: unknown): void;
  /** The response reaches the caller. */
  answered(step: StoreStep, result: unknown): void;
  failed(step: StoreStep): void;
}

/** While the store is out, calls of these instances fail; `null`: of all instances. */
export interface Outage {
  of: ReadonlySet<string> | null;
  until: number;
}

export interface StoreParts {
  readonly tables: WatchedTables;
  readonly audit: StoreAudit;
  readonly faults: Faults;
  readonly random: Random;
  readonly scheduler: Scheduler;
  readonly trace: Trace;
  readonly outage: Outage;
  readonly partitions: Partitions;
  readonly sessionLifetimeMs: number;
}

/** Steps that act on an earlier observation, which may be outdated when they arrive. */
const DECISIONS = new Set([
  "endDeadSession",
  "expireLease",
  "takeOver",
  "stop",
  "adopt",
  "claimForRemoval",
  "endRecovery",
  "publish",
  "remove",
]);
const READS = new Set([
  "sessions",
  "meta",
  "locate",
  "get",
  "find",
  "list",
  "census",
  "tombstone",
  "tombstones",
  "findLease",
]);

export class SimStore extends TransactionalStore {
  readonly kind = "simulated";
  readonly isShared: boolean;
  readonly #instance: Instance;
  readonly #parts: StoreParts;
  readonly #unwatch = new Set<() => void>();
  #closed = false;
  /** The arguments of the present call; a method reaches `run` before it returns. */
  #args: readonly unknown[] = [];

  constructor(instance: Instance, parts: StoreParts) {
    super();
    this.#instance = instance;
    this.#parts = parts;
    this.isShared = parts.tables.isShared;
    for (const name of Object.getOwnPropertyNames(TransactionalStore.prototype)) {
      const method: unknown = Reflect.get(TransactionalStore.prototype, name);
      if (name === "constructor" || typeof method !== "function") continue;
      const value = (...args: readonly unknown[]) => {
        this.#args = args;
        return method.apply(this, args) as unknown;
      };
      Object.defineProperty(this, name, { value });
    }
  }

  protected run<T>(operation: string, _access: "read" | "write", step: (tables: Tables) => T): Promise<T> {
    const { tables, audit, trace, scheduler } = this.#parts;
    const { skewMs } = this.#instance.host;
    const told: StoreStep = {
      by: this.#instance,
      method: operation,
      args: this.#args,
      sentAt: scheduler.now,
      skewMs,
      turn: scheduler.events,
    };
    if (this.#closed) return Promise.reject(unavailable(operation, "it is closed"));
    const effect = () => {
      audit.began(told);
      let result: T;
      try {
        result = step(tables);
      } catch (error) {
        audit.ended(told, null);
        throw error;
      }
      audit.ended(told, result);
      const write = !READS.has(operation);
      if (write) trace.add(this.#instance.name, operation, () => brief(told.args, result));
      if (write) tables.hint();
      return result;
    };
    audit.asked(told);
    return this.#instance.calls.make(this.#plan(operation), effect).then(
      (result) => {
        audit.answered(told, result);
        return result;
      },
      (error: unknown) => {
        audit.failed(told);
        trace.add(this.#instance.name, "store failed", () => operation);
        throw error;
      },
    );
  }

  watch(hint: () => void): () => void {
    const { tables, faults, scheduler, random, partitions } = this.#parts;
    let pending = false;
    const unwatch = tables.watch(() => {
      if (pending || faults.hits("store-hint-lost") || partitions.isCut(this.#instance.host, "store")) return;
      pending = true;
      scheduler.after(random.between(1, 20), () => {
        pending = false;
        if (this.#unwatch.has(unwatch)) this.#instance.process.deliver(hint);
      });
    });
    this.#unwatch.add(unwatch);
    return () => {
      this.#unwatch.delete(unwatch);
      unwatch();
    };
  }

  /** The number of change listeners. */
  get watches(): number {
    return this.#unwatch.size;
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.disconnect();
  }

  /** Its process is gone, and its listeners with it. */
  disconnect(): void {
    for (const unwatch of this.#unwatch) unwatch();
    this.#unwatch.clear();
  }

  #plan(operation: string): Plan {
    const { faults, random, sessionLifetimeMs } = this.#parts;
    const { script } = this.#instance;
    if (this.#isOut() || this.#isCutOff()) return this.#refused(operation, null);
    const { registerFails } = script;
    if (operation === "beat" && registerFails !== null && (this.#args[0] as BeatRequest).register) {
      script.registerFails = null;
      faults.count(`store-failed-${registerFails}`);
      return this.#refused(operation, registerFails === "before-effect" ? null : random.between(0, 4));
    }
    if (operation === "confirmBound" && faults.hits("confirm-lost")) return this.#refused(operation, null);
    // A heartbeat response that arrives too old to rely on.
    if (operation === "beat" && faults.hits("store-answer-very-late"))
      return { effectMs: random.between(0, 4), answerMs: random.between(sessionLifetimeMs / 2, 2 * sessionLifetimeMs) };
    // Any other late response: the caller may have given up or doubt itself.
    if (script.late.delete(operation) || (operation !== "beat" && faults.hits("store-answer-late")))
      return { effectMs: random.between(0, 4), answerMs: random.between(sessionLifetimeMs / 2, 2 * sessionLifetimeMs) };
    const late = DECISIONS.has(operation) && faults.hits("store-decision-slow");
    const slow = late || faults.hits("store-slow");
    const ms = slow ? random.between(200, 3_000) : random.between(0, 4);
    if (faults.hits("store-failed-before-effect")) return this.#refused(operation, null);
    if (faults.hits("store-failed-after-effect")) return this.#refused(operation, ms);
    // A request that sat in a queue: its sender has long seen it fail.
    if (faults.hits("store-effect-late")) return this.#refused(operation, random.between(500, 2 * sessionLifetimeMs));
    return { effectMs: ms, answerMs: ms };
  }

  #refused(operation: string, effectMs: number | null): Plan {
    const answerMs = Math.max(this.#parts.random.between(1, 400), Math.min(effectMs ?? 0, 400));
    return { effectMs, answerMs, error: unavailable(operation, "simulated") };
  }

  #isCutOff(): boolean {
    const { partitions, faults } = this.#parts;
    if (!partitions.isCut(this.#instance.host, "store")) return false;
    faults.count("partition-host-store");
    return true;
  }

  #isOut(): boolean {
    const { outage, scheduler } = this.#parts;
    return scheduler.now < outage.until && (outage.of === null || outage.of.has(this.#instance.name));
  }
}

function unavailable(operation: string, problem: string): SandlotError {
  return new SandlotError("store_unavailable", { operation, problem, retryAfterMs: 100 });
}

function brief(args: readonly unknown[], result: unknown): string {
  return `${JSON.stringify(args)} → ${JSON.stringify(result)}`.slice(0, 700);
}
