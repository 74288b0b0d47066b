/**
 * Calls to a held daemon: a broken connection becomes an error of the contract.
 *
 * Invariants
 * - A broken connection is `sandbox_lost` when the held one broke too, the daemon's socket has no listener, and that is
 *   certain to be the end: the engine says so, or, without an engine, the socket was on this machine. Otherwise it is
 *   `sandbox_unreachable`. A broken connection alone proves nothing: the daemon may have been killed and started again.
 * - When another run of the daemon responds, it was restarted: its commands are gone, the sandbox is not. Unsent
 *   requests go to the new run.
 * - An attachment whose held connection has ended stays ended; a caller that still wants the sandbox attaches again.
 *   Calls in between use their own connections, so that they do not end with it.
 */

import { renewReplySchema, SandlotError } from "@sandlot/contract";
import type { z } from "zod";
import type { DaemonPath } from "../untrusted/limits.ts";
import { sleep } from "../world/waiting.ts";
import type { World } from "../world/world.ts";
import { ConnectionLost, Connections } from "./connections.ts";
import type { Hold } from "./hold.ts";
import { Wire } from "./wire.ts";

/** After a broken request, how long the held connection may take to show that the daemon is gone. */
const DEATH_SHOWS_MS = 200;
/** A daemon that is being restarted responds within this time, or never. */
const RESTART_SHOWS_MS = 5_000;
const ASK_AGAIN_AFTER_MS = 20;
/** The errors of connecting to a socket without a listener, or to a missing path. */
const NOBODY: ReadonlySet<unknown> = new Set(["ECONNREFUSED", "ENOENT"]);
const RETRY_AFTER_MS = 500;

/** Why a call failed, and whether the daemon was restarted meanwhile. */
export interface Failure {
  readonly error: SandlotError;
  readonly restarted: boolean;
}

export class Calls {
  readonly wire: Wire;
  readonly world: World;
  readonly #hold: Hold;
  #afterRestart: Wire | null = null;

  constructor(wire: Wire, hold: Hold, world: World) {
    this.wire = wire;
    this.world = world;
    this.#hold = hold;
  }

  get<T>(schema: z.ZodType<T>, path: DaemonPath, signal?: AbortSignal): Promise<T> {
    return this.attempt((wire) => wire.ask(schema, { method: "GET", path, ...(signal && { signal }) }), signal);
  }

  post<T>(schema: z.ZodType<T>, path: DaemonPath, fields: object, signal?: AbortSignal, waitsMs?: number): Promise<T> {
    return this.attempt((wire) => wire.post(schema, path, fields, signal, waitsMs), signal);
  }

  async attempt<T>(work: (wire: Wire) => Promise<T>, signal?: AbortSignal): Promise<T> {
    try {
      return await this.raw(work);
    } catch (error) {
      signal?.throwIfAborted();
      throw (await this.explain(error)).error;
    }
  }

  /** Rejects with the original error; `explain` interprets it. */
  async raw<T>(work: (wire: Wire) => Promise<T>): Promise<T> {
    if (this.#hold.ended() === "no") return work(this.wire);
    const { error, restarted } = await this.#whyEnded();
    if (!restarted) throw error;
    this.#afterRestart ??= this.#unkept();
    return work(this.#afterRestart);
  }

  async explain(error: unknown): Promise<Failure> {
    if (error instanceof SandlotError) return { error, restarted: false };
    const isBroken = error instanceof ConnectionLost || (error as { code?: unknown }).code === "ECONNRESET";
    if (!isBroken) {
      const unexpected = new SandlotError("internal", { problem: String(error) }, { cause: error });
      return { error: unexpected, restarted: false };
    }
    await this.#within(DEATH_SHOWS_MS, this.#hold.closed);
    if (this.#hold.ended() !== "no") return this.#whyEnded();
    return { error: this.#unreachable((error as Error).message), restarted: false };
  }

  /** Why the held connection has ended: closed here, a rebind to another generation, a death, or the network. */
  async #whyEnded(): Promise<Failure> {
    if (this.#hold.ended() === "here")
      return { error: this.#unreachable("the attachment was closed"), restarted: false };
    const { sandboxId, generation } = this.wire.target;
    const answer = await this.#within(RESTART_SHOWS_MS, this.#ask());
    if (answer instanceof SandlotError) return { error: answer, restarted: false };
    if (answer === "nobody" && (await this.#isTheEnd()))
      return {
        error: new SandlotError("sandbox_lost", { sandboxId, generation, reason: "crashed" }),
        restarted: false,
      };
    const restarted = typeof answer === "object" && answer.run !== this.#hold.run;
    const problem = restarted ? "its daemon was restarted" : "the connection has ended";
    return { error: this.#unreachable(problem), restarted };
  }

  /** Whether a socket without a listener means that the sandbox has ended. */
  async #isTheEnd(): Promise<boolean> {
    const { isDead, address } = this.wire.target;
    return isDead === undefined ? "path" in address : isDead();
  }

  /** On new connections: a pooled one may belong to a run that has ended. */
  async #ask(): Promise<{ run: string } | SandlotError | "nobody" | "late"> {
    const wire = this.#unkept();
    const until = this.world.monotonicMs() + RESTART_SHOWS_MS;
    while (this.world.monotonicMs() < until) {
      try {
        return await wire.post(renewReplySchema, "/sandlot/renew", {});
      } catch (error) {
        if (error instanceof SandlotError) return error;
        if (NOBODY.has((error as { cause?: { code?: unknown } }).cause?.code)) return "nobody";
        await sleep(this.world, ASK_AGAIN_AFTER_MS);
      }
    }
    return "late";
  }

  #unkept(): Wire {
    return new Wire(this.wire.target, new Connections({ keep: false, timer: this.world.timer }));
  }

  async #within<T>(timeoutMs: number, work: Promise<T>): Promise<T | "late"> {
    let late = () => {};
    const timer = this.world.timer(timeoutMs, () => late());
    try {
      return await Promise.race([work, new Promise<"late">((resolve) => (late = () => resolve("late")))]);
    } finally {
      timer.cancel();
    }
  }

  #unreachable(problem: string): SandlotError {
    const { sandboxId } = this.wire.target;
    return new SandlotError("sandbox_unreachable", { sandboxId, problem, retryAfterMs: RETRY_AFTER_MS });
  }
}
