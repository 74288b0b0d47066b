/**
 * One instance's shared store: the real `RowStore`, and a network between it and the rows that is slow, loses requests
 * and answers, and delivers some of them late. A lost answer is retried by the store itself.
 */

import { AsyncLocalStorage } from "node:async_hooks";
import { type Epoch, SandlotError } from "@sandlot/contract";
import type {
  Commit,
  CommitAnswer,
  Cursor,
  Page,
  ReadAnswer,
  RowKey,
  RowServer,
  Topic,
} from "../../../packages/fleet/src/store/rows/row-server.ts";
import { RowStore } from "../../../packages/fleet/src/store/rows/row-store.ts";
import type { BeatRequest } from "../../../packages/fleet/src/store/store.ts";
import { TransactionalStore } from "../../../packages/fleet/src/store/transactional-store.ts";
import type { Plan } from "../process/calls.ts";
import type { Instance } from "../process/instance.ts";
import type { SimRows } from "./sim-rows.ts";
import type { StoreParts, StoreStep } from "./sim-store.ts";

/** The step that a call belongs to. */
const steps = new AsyncLocalStorage<StoreStep>();

interface Sent {
  readonly at: number;
  readonly heard: Instance["storeHeard"];
}

export class SimRowStore extends RowStore {
  readonly #server: SimRowServer;

  constructor(instance: Instance, parts: StoreParts, rows: SimRows) {
    const server = new SimRowServer(instance, parts, rows);
    super({ server, world: instance.world, timeoutMs: Math.floor(parts.sessionLifetimeMs * 0.45) });
    this.#server = server;
    const { audit, scheduler, trace } = parts;
    for (const name of Object.getOwnPropertyNames(TransactionalStore.prototype)) {
      const method: unknown = Reflect.get(RowStore.prototype, name);
      if (name === "constructor" || name === "run" || typeof method !== "function") continue;
      const value = (...args: readonly unknown[]) => {
        const { skewMs } = instance.host;
        const step: StoreStep = {
          by: instance,
          method: name,
          args,
          sentAt: scheduler.now,
          skewMs,
          turn: scheduler.events,
        };
        audit.asked(step);
        return steps
          .run(step, () => method.apply(this, args) as Promise<unknown>)
          .then(
            (result) => {
              audit.answered(step, result);
              return result;
            },
            (error: unknown) => {
              audit.failed(step);
              trace.add(instance.name, "store failed", () => name);
              throw error;
            },
          );
      };
      Object.defineProperty(this, name, { value });
    }
  }

  /** The number of change listeners. */
  get watches(): number {
    return this.#server.listeners;
  }

  /** Its process is gone, and its listeners with it. */
  disconnect(): void {
    this.#server.disconnect();
  }
}

class SimRowServer implements RowServer {
  readonly kind = "simulated-rows";
  readonly promise: RowServer["promise"];
  readonly #instance: Instance;
  readonly #parts: StoreParts;
  readonly #rows: SimRows;
  readonly #unlisten = new Set<() => void>();
  /** Steps of which no further call gets through. */
  readonly #doomed = new WeakSet<StoreStep>();
  /** When each commit was first sent, and the store's clock as its sender knew it then. */
  readonly #sent = new Map<string, Sent>();

  constructor(instance: Instance, parts: StoreParts, rows: SimRows) {
    this.#instance = instance;
    this.#parts = parts;
    this.#rows = rows;
    this.promise = rows.mayRewind ? "may-rewind" : "linearizable";
  }

  get listeners(): number {
    return this.#unlisten.size;
  }

  async commit(commit: Commit, signal: AbortSignal): Promise<CommitAnswer> {
    const step = this.#step();
    const { faults, scheduler } = this.#parts;
    const first = this.#sent.get(commit.id);
    if (first !== undefined) faults.count("row-commit-retried");
    const sent = first ?? { at: scheduler.now, heard: this.#instance.storeHeard };
    this.#sent.set(commit.id, sent);
    const effect = () => {
      step.heard = sent.heard;
      return this.#rows.commit(step, commit, sent.at);
    };
    const answer = await this.#call("commit", effect, signal);
    if (answer.kind === "conflict") faults.count("row-conflict");
    if (answer.kind === "late") faults.count("row-commit-late");
    if (answer.kind === "rewound") faults.count("rewind-noticed");
    if (answer.kind === "committed" && commit.writes.size > 0) this.#rows.acknowledged(this.#instance, commit);
    return answer;
  }

  read(keys: readonly RowKey[], signal: AbortSignal): Promise<ReadAnswer> {
    return this.#call("read", () => this.#rows.rows.read(keys), signal);
  }

  async scan(since: Cursor | null, limit: number, signal: AbortSignal): Promise<Page | null> {
    // Small pages, so that rows change between them.
    const page = await this.#call("scan", () => this.#rows.rows.scan(since, Math.min(limit, 10)), signal);
    if (page === null) this.#parts.faults.count("row-cursor-too-old");
    return page;
  }

  beginEpoch(known: Epoch, next: Epoch, signal: AbortSignal): Promise<Epoch> {
    return this.#call("beginEpoch", () => this.#rows.rows.beginEpoch(known, next), signal);
  }

  subscribe(listener: (topic: Topic | "*") => void): () => void {
    const { faults, scheduler, random, partitions } = this.#parts;
    let isPending = false;
    const unlisten = this.#rows.rows.listen((topic) => {
      if (isPending || faults.hits("store-hint-lost") || partitions.isCut(this.#instance.host, "store")) return;
      isPending = true;
      scheduler.after(random.between(1, 20), () => {
        isPending = false;
        if (this.#unlisten.has(unlisten)) this.#instance.process.deliver(() => listener(topic));
      });
    });
    this.#unlisten.add(unlisten);
    return () => {
      this.#unlisten.delete(unlisten);
      unlisten();
    };
  }

  async close(): Promise<void> {
    this.disconnect();
  }

  disconnect(): void {
    for (const unlisten of this.#unlisten) unlisten();
    this.#unlisten.clear();
  }

  #step(): StoreStep {
    const step = steps.getStore();
    if (step === undefined) throw new Error("a call without a step");
    return step;
  }

  #call<T>(operation: string, effect: () => T, signal: AbortSignal): Promise<T> {
    const { scheduler, tables } = this.#parts;
    let heard = this.#instance.storeHeard;
    const read = () => {
      heard = { at: scheduler.now, clock: tables.now() };
      return effect();
    };
    return this.#instance.calls.make(this.#plan(operation, this.#step()), read, signal).then((answer) => {
      if (heard !== null && heard.at >= (this.#instance.storeHeard?.at ?? 0)) this.#instance.storeHeard = heard;
      return answer;
    });
  }

  #plan(operation: string, step: StoreStep): Plan {
    const { faults, random, sessionLifetimeMs } = this.#parts;
    const { script } = this.#instance;
    if (this.#isOut() || this.#isCutOff() || this.#doomed.has(step)) return this.#refused(operation, null);
    const { registerFails } = script;
    const isCommit = operation === "commit";
    if (isCommit && step.method === "beat" && registerFails !== null && (step.args[0] as BeatRequest).register) {
      script.registerFails = null;
      this.#doomed.add(step);
      faults.count(`store-failed-${registerFails}`);
      return this.#refused(operation, registerFails === "before-effect" ? null : random.between(0, 4));
    }
    if (step.method === "confirmBound" && faults.hits("confirm-lost")) {
      this.#doomed.add(step);
      return this.#refused(operation, null);
    }
    const isLate = script.late.delete(step.method);
    if (isLate || faults.hits(step.method === "beat" ? "store-answer-very-late" : "store-answer-late"))
      return { effectMs: random.between(0, 4), answerMs: random.between(sessionLifetimeMs / 2, 2 * sessionLifetimeMs) };
    const ms = faults.hits("store-slow") ? random.between(200, 3_000) : random.between(0, 4);
    if (faults.hits("store-failed-before-effect")) return this.#refused(operation, null);
    if (faults.hits("store-failed-after-effect")) return this.#refused(operation, ms);
    if (faults.hits("store-effect-late")) return this.#refused(operation, random.between(500, 2 * sessionLifetimeMs));
    return { effectMs: ms, answerMs: ms };
  }

  #refused(operation: string, effectMs: number | null): Plan {
    const answerMs = Math.max(this.#parts.random.between(1, 400), Math.min(effectMs ?? 0, 400));
    const problem = "simulated";
    const error = new SandlotError("store_unavailable", { operation, problem, retryAfterMs: 100 });
    return { effectMs, answerMs, error };
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
