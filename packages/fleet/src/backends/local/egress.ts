/**
 * The egress of local sandboxes that have one. It starts before the sandbox, and listens in the sandbox's network
 * namespace. Every attach makes sure that it runs.
 */

import { type EgressParts, type EgressRecord, HeldEgresses, type Network } from "../../host/egress/held-egresses.ts";
import { type Egress, startEgress } from "../../host/egress/index.ts";
import type { ObjectName } from "../../host/layout.ts";
import type { LocalObject, ProcessRecord } from "./objects/object-store.ts";

export class Egresses extends HeldEgresses<EgressParts> {
  /** For a sandbox that is about to be made; `null` when it has no egress. */
  async start(name: ObjectName, record: EgressRecord, network: Network): Promise<Egress | null> {
    if (network.mode === "none") return null;
    await this.makeRoom(record.labels.blueprintHash, network);
    const egress = await startEgress(await this.options(name, record, network));
    this.hold(name, egress);
    return egress;
  }

  /** From now on it ends with the sandbox. */
  watch(name: ObjectName, { init }: ProcessRecord): void {
    this.held(name)?.watch({ ...this.parts.world.identity, ...init });
  }

  /** Makes sure that a running sandbox has its egress. */
  async join({ name, record, process }: LocalObject): Promise<void> {
    const network = this.joinable(name, record.labels.blueprintHash);
    if (process === null || network === null) return;
    // An ordinary user has rights over the network namespace only from the user namespace of the process outside.
    const { pid } = this.parts.account === null ? (process.monitor ?? process.init) : process.init;
    const egress = await startEgress({ ...(await this.options(name, record, network)), namespace: { pid } });
    this.hold(name, egress);
    egress.watch({ ...this.parts.world.identity, ...process.init });
  }
}
