/** Renews and releases remote leases, at any instance, also after a restart (rule 8). */

import { type LeaseId, SandlotError } from "@sandlot/contract";
import type { RemoteLeases } from "../../fleet.ts";
import type { RemoteLeaseView, Store } from "../../store/store.ts";
import type { Leases } from "./leases.ts";

export class RemoteLeaseTable implements RemoteLeases {
  readonly #store: Store;
  readonly #leases: Leases;
  readonly #onRenewed: (lease: RemoteLeaseView) => void;

  constructor(parts: { store: Store; leases: Leases; onRenewed: (lease: RemoteLeaseView) => void }) {
    this.#store = parts.store;
    this.#leases = parts.leases;
    this.#onRenewed = parts.onRenewed;
  }

  async renew(leaseId: string): Promise<{ readonly expiresInMs: number }> {
    const renewed = await this.#store.renewLease(leaseId as LeaseId);
    if (renewed === null) throw new SandlotError("lease_not_found", { leaseId });
    this.#onRenewed(renewed);
    return { expiresInMs: renewed.ttlMs };
  }

  async release(leaseId: string): Promise<boolean> {
    for (const lease of this.#leases.all()) {
      if (lease.id !== leaseId || lease.ttlMs === null) continue;
      await lease.release();
      return true;
    }
    return (await this.#store.releaseLease(leaseId as LeaseId)) !== null;
  }
}
