/** Callers that have only the id of a lease: they renew and release it, at any instance. */

import { isSandlotError } from "@sandlot/contract";
import type { HeldLease } from "../checks/truth.ts";
import type { Instance } from "../process/instance.ts";
import type { Simulation } from "../simulation.ts";

export class RemoteCallers {
  readonly #simulation: Simulation;

  constructor(simulation: Simulation) {
    this.#simulation = simulation;
  }

  renew(instance: Instance, held: HeldLease): void {
    const { truth, findings, scheduler } = this.#simulation;
    instance.process.deliver(() => {
      const askedAt = scheduler.now;
      instance.fleet?.remoteLeases.renew(held.lease.id).then(
        () => findings.check("remote-renewal-is-true", true, () => ""),
        (error: unknown) => {
          const remote = truth.remotes.get(held.lease.id);
          // A response may be long in transit: only a lease that lived all the while was denied wrongly.
          const lives = truth.unexpired(remote) && remote?.releaseAsked === false && remote.since <= askedAt;
          const denied = isSandlotError(error, "lease_not_found");
          findings.check(
            "remote-renewal-is-true",
            !(denied && lives),
            () => `${held.lease.id} at ${instance.name}: ${String(error)}`,
          );
        },
      );
    });
  }

  releaseRemote(instance: Instance, held: HeldLease): void {
    const remote = this.#simulation.truth.remotes.get(held.lease.id);
    instance.process.deliver(() => {
      if (instance.fleet === null) return;
      if (remote !== undefined) remote.releaseAsked = true;
      // A release that failed is left to expire, as its caller would leave it.
      instance.fleet.remoteLeases.release(held.lease.id).catch(() => undefined);
    });
  }

  /** Releases guessed ids: the numbers that local leases have. */
  releaseGuessed(instance: Instance, number: number): void {
    instance.process.deliver(() => {
      instance.fleet?.remoteLeases.release(`${instance.id}-${number}`).then(
        (released) => this.#simulation.factChecks.guessed(instance, released),
        () => undefined,
      );
    });
  }
}
