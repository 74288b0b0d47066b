/**
 * Leases on provisioned sandboxes, so that neither the idle timeout nor a full fleet ends one that its client counts on.
 *
 * A lease is a row of the store with a time to live. Every request that names or shows a sandbox renews it, and so does
 * every use of its URL. A client that is gone for that long loses the lease; from then on the sandbox is like any other:
 * the next use leases it again, and otherwise the fleet's idle timeout ends it.
 *
 * Invariants
 * - A gateway keeps its own lease and forgets it when it ends; after a restart the next look takes another one. The end
 *   of a sandbox ends all of them.
 * - No request waits for a renewal, and a sandbox costs the store at most four renewals in a time to live.
 * - A lease makes no sandbox: it is taken on the record's own only.
 */

import { isSandlotError } from "@sandlot/contract";
import type { FastifyBaseLogger } from "fastify";
import type { Fleet, Lease } from "../../fleet.ts";
import { problemOf } from "../../observe/event-bus.ts";
import type { World } from "../../world/world.ts";
import type { ThreadUse } from "../thread-use.ts";
import type { ProvisionedSandbox } from "./provisioned-sandboxes.ts";

export interface LeaseParts {
  readonly fleet: Pick<Fleet, "remoteLeases">;
  readonly threads: Pick<ThreadUse, "acquireOnly">;
  readonly world: World;
  readonly ttlMs: number;
  readonly logger: FastifyBaseLogger;
  readonly draining: AbortSignal;
}

/** What a lease needs of a record. */
export type LeasedSandbox = Pick<ProvisionedSandbox, "nonce" | "sandboxId" | "user" | "thread">;

interface Kept {
  readonly leaseId: string;
  /** On the monotonic clock. */
  renewedAt: number;
}

const RENEWALS_PER_LIFETIME = 4;

export class ProvisionedLeases {
  readonly #parts: LeaseParts;
  readonly #kept = new Map<string, Kept>();
  readonly #busy = new Set<string>();

  constructor(parts: LeaseParts) {
    this.#parts = parts;
  }

  get ttlMs(): number {
    return this.#parts.ttlMs;
  }

  /** The lease that the sandbox was made with. */
  keep({ nonce }: LeasedSandbox, lease: Lease): void {
    const kept = { leaseId: lease.id, renewedAt: this.#parts.world.monotonicMs() };
    this.#kept.set(nonce, kept);
    lease.onLost(() => {
      if (this.#kept.get(nonce) === kept) this.#kept.delete(nonce);
    });
  }

  /** Renews in the background, where it is time. */
  renew(record: LeasedSandbox): void {
    const { world, ttlMs, draining, logger } = this.#parts;
    const { nonce } = record;
    const kept = this.#kept.get(nonce);
    const isFresh = kept !== undefined && world.monotonicMs() - kept.renewedAt < ttlMs / RENEWALS_PER_LIFETIME;
    if (isFresh || draining.aborted || this.#busy.has(nonce)) return;
    this.#busy.add(nonce);
    void this.#renew(record, kept)
      .catch((error: unknown) =>
        logger.debug({ sandbox: record.sandboxId, problem: problemOf(error) }, "a provisioned sandbox has no lease"),
      )
      .finally(() => this.#busy.delete(nonce));
  }

  async #renew(record: LeasedSandbox, kept: Kept | undefined): Promise<void> {
    const { fleet, threads, world, ttlMs } = this.#parts;
    if (kept !== undefined) {
      try {
        await fleet.remoteLeases.renew(kept.leaseId);
        kept.renewedAt = world.monotonicMs();
        return;
      } catch (error) {
        if (!isSandlotError(error, "lease_not_found")) throw error;
        this.#kept.delete(record.nonce);
      }
    }
    const { user, thread, sandboxId } = record;
    this.keep(record, await threads.acquireOnly({ user, thread }, sandboxId, { purpose: PURPOSE, ttlMs }));
  }
}

/** As the list of holders shows it. */
export const PURPOSE = "gateway: provisioned";
