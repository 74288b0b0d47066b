/**
 * Calls to a daemon that is held: what breaks becomes an error of the contract.
 *
 * Invariants
 * - A broken connection is `sandbox_lost` when the held one broke too, nobody answers any more and the daemon was on this
 *   machine; otherwise it is `sandbox_unreachable`, because a network may have ended instead.
 * - When another run of the daemon answers, it was restarted: what ran before is gone, the sandbox is not.
 * - An attachment whose held connection has ended stays ended: there is a new one for whoever still wants the sandbox.
 */

import { SandlotError } from "@sandlot/contract";
import type { z } from "zod";
import type { World } from "../world/world.ts";
import type { Hold } from "./hold.ts";
import { renewReplySchema } from "./replies.ts";
import { ConnectionLost, type Wire } from "./wire.ts";

/** After a broken request, how long the held connection may take to show that the daemon is gone. */
const DEATH_SHOWS_MS = 200;
/** A daemon that is being restarted answers when it is there again, or never. */
const RESTART_SHOWS_MS = 5_000;
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

  constructor(wire: Wire, hold: Hold, world: World) {
    this.wire = wire;
    this.world = world;
    this.#hold = hold;
  }

  get<T>(schema: z.ZodType<T>, path: string, signal?: AbortSignal): Promise<T> {
    return this.attempt((wire) => wire.ask(schema, { method: "GET", path, ...(signal && { signal }) }), signal);
  }

  post<T>(schema: z.ZodType<T>, path: string, fields: object, signal?: AbortSignal): Promise<T> {
    return this.attempt((wire) => wire.post(schema, path, fields, signal), signal);
  }

  async attempt<T>(work: (wire: Wire) => Promise<T>, signal?: AbortSignal): Promise<T> {
    try {
      return await this.raw(work);
    } catch (error) {
      signal?.throwIfAborted();
      throw (await this.explain(error)).error;
    }
  }

  /** Fails with whatever happened; `explain` says what that was. */
  async raw<T>(work: (wire: Wire) => Promise<T>): Promise<T> {
    if (this.#hold.ended() !== "no") throw new HoldEnded();
    return work(this.wire);
  }

  async explain(error: unknown): Promise<Failure> {
    if (error instanceof HoldEnded) return this.#whyEnded();
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

  /** The held connection has ended: by us, by a rebind to another generation, by a death, or by the network. */
  async #whyEnded(): Promise<Failure> {
    if (this.#hold.ended() === "here")
      return { error: this.#unreachable("the attachment was closed"), restarted: false };
    const { sandboxId, generation, address } = this.wire.target;
    const answer = await this.#within(RESTART_SHOWS_MS, this.#ask());
    if (answer instanceof SandlotError) return { error: answer, restarted: false };
    // On one machine nothing but its end keeps a daemon from answering.
    if (answer === "nobody" && "path" in address)
      return {
        error: new SandlotError("sandbox_lost", { sandboxId, generation, reason: "crashed" }),
        restarted: false,
      };
    const restarted = typeof answer === "object" && answer.run !== this.#hold.run;
    const problem = restarted ? "its daemon was restarted" : "the connection has ended";
    return { error: this.#unreachable(problem), restarted };
  }

  async #ask(): Promise<{ run: string } | SandlotError | "nobody"> {
    try {
      return await this.wire.post(renewReplySchema, "/sandlot/renew", {});
    } catch (error) {
      return error instanceof SandlotError ? error : "nobody";
    }
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

/** Nothing was sent, because the held connection had ended before. */
export class HoldEnded extends Error {
  override readonly name = "HoldEnded";
}
