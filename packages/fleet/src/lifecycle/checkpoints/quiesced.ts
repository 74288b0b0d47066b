/**
 * A checkpoint of a sandbox that stands still: frozen before the first file is read, thawed after the last.
 *
 * Invariants
 * - The sandbox is thawed however the checkpoint ends: also when its taker is killed, late, or ignores its signal.
 * - A checkpoint during which something ran is removed again, and taken anew. After a few rounds the call fails.
 * - Freezes of one sandbox by this process come one after the other: a second one would undo the first.
 */

import { type SandboxId, SandlotError } from "@sandlot/contract";
import type { Backend } from "../../backend/backend.ts";
import type { TakenCheckpoint } from "../../fleet.ts";
import type { SandboxRecord } from "../../store/record.ts";
import { abortable } from "../../world/waiting.ts";

const ROUNDS_MAX = 3;
const RETRY_AFTER_MS = 2_000;

export class Quiescence {
  readonly #backend: Backend;
  readonly #last = new Map<SandboxId, Promise<unknown>>();

  constructor(backend: Backend) {
    this.#backend = backend;
  }

  /** Throws `capability_missing` where the backend cannot freeze. */
  async taken(
    record: SandboxRecord | null,
    signal: AbortSignal,
    take: () => Promise<TakenCheckpoint>,
    remove: (taken: TakenCheckpoint) => Promise<void>,
  ): Promise<TakenCheckpoint> {
    const { name: backend, capabilities } = this.#backend;
    if (this.#backend.freeze === undefined || !capabilities.has("pause"))
      throw new SandlotError("capability_missing", {
        ...{ backend, capability: "pause", neededBy: "`quiesce` of a checkpoint" },
      });
    // Without a sandbox nothing runs.
    if (record?.state !== "ready") return take();
    return this.#inTurn(record.sandboxId, signal, async () => {
      for (let round = 0; round < ROUNDS_MAX; round++) {
        const { taken, stood } = await this.#still(record.ref, signal, take);
        if (stood) return taken;
        if (taken.isNew) await remove(taken);
      }
      const problem = "its processes did not stand still while the checkpoint was taken";
      const { sandboxId } = record;
      throw new SandlotError("sandbox_unreachable", { sandboxId, problem, retryAfterMs: RETRY_AFTER_MS });
    });
  }

  async #still<T>(
    ref: Parameters<NonNullable<Backend["freeze"]>>[0],
    signal: AbortSignal,
    take: () => Promise<T>,
  ): Promise<{ readonly taken: T; readonly stood: boolean }> {
    const freezing = this.#backend.freeze?.(ref, signal);
    const thaw = (await freezing) ?? (async () => true);
    try {
      return { taken: await abortable(take(), signal), stood: await thaw() };
    } finally {
      await thaw();
    }
  }

  async #inTurn<T>(sandboxId: SandboxId, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    const before = this.#last.get(sandboxId) ?? Promise.resolve();
    const mine = abortable(before, signal).then(work);
    // The next one waits for all before it, also where this one gives up early.
    const ended = Promise.allSettled([before, mine]);
    this.#last.set(sandboxId, ended);
    try {
      return await mine;
    } finally {
      void ended.then(() => {
        if (this.#last.get(sandboxId) === ended) this.#last.delete(sandboxId);
      });
    }
  }
}
