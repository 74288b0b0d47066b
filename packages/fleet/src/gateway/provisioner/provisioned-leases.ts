/**
 * Leases on provisioned sandboxes, so that neither the idle timeout nor a full fleet ends one that its client counts on.
 *
 * A lease is a row of the store with a time to live. Every request that names or shows a sandbox renews it, and so does
 * every use of its URL. A client that is gone for that long loses the lease; from then on the sandbox is like any other:
 * the next use leases it again, and otherwise the fleet's idle timeout ends it.
 *
 * Invariants
 * - The record names the lease that its sandbox was made with, and every gateway renews that one, also after a restart.
 *   Where it has ended, a gateway takes one of its own. The end of a sandbox ends all of them.
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
export type LeasedSandbox = Pick<
  ProvisionedSandbox,
  "nonce" | "sandboxId" | "generation" | "user" | "thread" | "leaseId"
>;

interface Kept {
  readonly leaseId: string;
  /** On the monotonic clock. */
  renewedAt: number;
}

const RENEWALS_PER_LIFETIME = 4;
/** Beyond it all are forgotten, and each is renewed once more than needed. */
const KEPT_MAX = 10_000;

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
    const kept = this.#keep(nonce, lease.id);
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
    const { user, thread, nonce } = record;
    const leaseId = kept?.leaseId ?? record.leaseId;
    if (leaseId !== undefined) {
      try {
        await fleet.remoteLeases.renew(leaseId);
        if (kept === undefined) this.#keep(nonce, leaseId);
        else kept.renewedAt = world.monotonicMs();
        return;
      } catch (error) {
        if (!isSandlotError(error, "lease_not_found")) throw error;
        this.#kept.delete(nonce);
      }
    }
    this.keep(record, await threads.acquireOnly({ user, thread }, record, { purpose: PURPOSE, ttlMs }));
  }

  #keep(nonce: string, leaseId: string): Kept {
    if (this.#kept.size >= KEPT_MAX) this.#kept.clear();
    const kept = { leaseId, renewedAt: this.#parts.world.monotonicMs() };
    this.#kept.set(nonce, kept);
    return kept;
  }
}

/** As the list of holders shows it. */
export const PURPOSE = "gateway: provisioned";
