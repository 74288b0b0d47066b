/**
 * Calls through a held attachment: failures become errors of the contract.
 *
 * Invariants
 * - The server knows no generation. So before every call the backend confirms that this attachment's generation is
 *   still the sandbox's.
 * - A broken connection is `sandbox_lost` when the engine says that the sandbox is dead, `sandbox_unreachable`
 *   otherwise.
 * - After `close`, every call is `sandbox_unreachable` and says that the attachment was closed.
 * - Every call has a deadline: a server that does not respond is unreachable after `ANSWER_MS`.
 */

import type { IncomingMessage } from "node:http";
import { type Generation, isSandlotError, type SandboxId, SandlotError } from "@sandlot/contract";
import type { z } from "zod";
import { abortable, within } from "../../world/waiting.ts";
import type { Liveness, World } from "../../world/world.ts";
import { AioRefusal, dataOf, ServerAway } from "./wire/answers.ts";
import { type AioCall, type AioWire, NoAnswer } from "./wire/wire.ts";

/** Facts about the sandbox that the backend knows, and its server does not. */
export interface Knowledge {
  /** Rejects with `stale_generation` when the sandbox has another generation by now. */
  checkCurrent(): Promise<void>;
  liveness(): Promise<Liveness>;
}

export interface Ask {
  readonly signal?: AbortSignal | undefined;
  /** How long the server was asked to wait before it responds. */
  readonly patienceMs?: number;
  /** The error when the server says that the operation failed. Absent: a failure is unexpected. */
  readonly onRefusal?: (refusal: AioRefusal) => Error;
}

const ANSWER_MS = 30_000;
/** How long the engine may take to report a death after a broken connection. */
const DEATH_SHOWS_MS = 1_500;
const RETRY_AFTER_MS = 500;

export class AioCalls {
  readonly sandboxId: SandboxId;
  readonly generation: Generation;
  readonly world: World;
  readonly closed: Promise<void>;
  readonly #wire: AioWire;
  readonly #knowledge: Knowledge;
  readonly #end = new AbortController();

  constructor(
    wire: AioWire,
    world: World,
    about: { readonly sandboxId: SandboxId; readonly generation: Generation },
    knowledge: Knowledge,
  ) {
    this.sandboxId = about.sandboxId;
    this.generation = about.generation;
    this.world = world;
    this.#wire = wire;
    this.#knowledge = knowledge;
    this.closed = new Promise((resolve) => this.#end.signal.addEventListener("abort", () => resolve(), { once: true }));
  }

  get<T>(schema: z.ZodType<T>, path: string, more: Ask = {}): Promise<T> {
    return this.#ask(schema, { method: "GET", path }, more);
  }

  post<T>(schema: z.ZodType<T>, path: string, fields: object, more: Ask = {}): Promise<T> {
    return this.#ask(schema, { method: "POST", path, fields }, more);
  }

  /** A response that is no JSON, with any status. */
  async open(path: string, query: Readonly<Record<string, string>>): Promise<IncomingMessage> {
    return this.attempt((signal) => this.#wire.open({ method: "GET", path, query, signal }));
  }

  /** Runs `work`, and translates its failure. */
  async attempt<T>(work: (signal: AbortSignal) => Promise<T>, { signal, patienceMs = 0 }: Ask = {}): Promise<T> {
    this.#checkOpen();
    signal?.throwIfAborted();
    const either = signal === undefined ? this.#end.signal : AbortSignal.any([signal, this.#end.signal]);
    try {
      await abortable(this.#knowledge.checkCurrent(), either);
      const late = () => new NoAnswer(`no answer within ${ANSWER_MS + patienceMs} ms`);
      return await within(this.world, ANSWER_MS + patienceMs, either, late, work);
    } catch (error) {
      signal?.throwIfAborted();
      throw await this.explain(error);
    }
  }

  async explain(error: unknown): Promise<Error> {
    this.#checkOpen();
    if (isSandlotError(error)) return error;
    const isBroken = error instanceof NoAnswer || error instanceof ServerAway;
    if (!isBroken) return new SandlotError("internal", { problem: String(error) }, { cause: error });
    await this.#deathShows();
    this.#checkOpen();
    return (await this.#knowledge.liveness()) === "dead" ? this.#lost() : this.unreachable(error.message, error);
  }

  /** Idempotent. All running calls reject. */
  close(): void {
    this.#finish(this.unreachable("the attachment was closed"));
  }

  /** The backend has learned that the sandbox is dead. */
  lose(): void {
    this.#finish(this.#lost());
  }

  #finish(why: SandlotError): void {
    if (!this.#end.signal.aborted) this.#end.abort(why);
    this.#wire.close();
  }

  #checkOpen(): void {
    if (!this.#end.signal.aborted) return;
    const { code, details } = this.#end.signal.reason as SandlotError;
    // A new error, with the stack of the present caller.
    throw new SandlotError(code, details, { cause: this.#end.signal.reason });
  }

  async #ask<T>(schema: z.ZodType<T>, call: AioCall, more: Ask): Promise<T> {
    const reply = await this.attempt((signal) => this.#wire.ask({ ...call, signal }), more);
    try {
      return await dataOf(schema, reply, call.path);
    } catch (error) {
      if (error instanceof AioRefusal) throw more.onRefusal?.(error) ?? refused(call.path, error);
      throw await this.explain(error);
    }
  }

  /** Waits a short time for the report of a death. */
  async #deathShows(): Promise<void> {
    let done = () => {};
    const late = new Promise<void>((resolve) => (done = resolve));
    const timer = this.world.timer(DEATH_SHOWS_MS, () => done());
    try {
      await Promise.race([this.closed, late]);
    } finally {
      timer.cancel();
    }
  }

  #lost(): SandlotError {
    const { sandboxId, generation } = this;
    return new SandlotError("sandbox_lost", { sandboxId, generation, reason: "crashed" });
  }

  unreachable(problem: string, cause?: unknown): SandlotError {
    const details = { sandboxId: this.sandboxId, problem, retryAfterMs: RETRY_AFTER_MS };
    return new SandlotError("sandbox_unreachable", details, { cause });
  }
}

function refused(path: string, refusal: AioRefusal): SandlotError {
  const problem = `the sandbox's server refused ${path}: ${refusal.message}`;
  return new SandlotError("internal", { problem }, { cause: refusal });
}
