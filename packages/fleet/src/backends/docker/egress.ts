/**
 * The egress of containers that have one. A container is made without a network; once it runs, its egress process
 * enters its network namespace and listens there (`host/egress/`). This needs rights over that namespace: those of root
 * on the engine's machine.
 *
 * Invariant: a container has no network until its egress listens.
 */

import { type EgressParts, type EgressRecord, HeldEgresses, type Network } from "../../host/egress/held-egresses.ts";
import { startEgress } from "../../host/egress/index.ts";
import { prepareDirectory } from "../../host/egress/process/directory.ts";
import { places } from "../../host/egress/process/egress-settings.ts";
import { sandboxNetwork } from "../../host/egress/sandbox-side/sandbox-network.ts";
import type { ObjectName } from "../../host/layout.ts";
import type { Binding } from "../../host/mounts/mounts.ts";
import { identify } from "../../host/process-table.ts";
import { mayHideSockets } from "./container/transport.ts";
import type { Engine, EngineFacts } from "./engine/engine.ts";
import { createFailed } from "./engine/trouble.ts";
import type { ContainerObject } from "./objects/container-objects.ts";
import type { DockerSettings } from "./settings.ts";

/** What a container with an egress needs from its start. */
export interface PreparedEgress {
  readonly environment: Readonly<Record<string, string>>;
  readonly bindings: readonly Binding[];
}

const NOTHING: PreparedEgress = { environment: {}, bindings: [] };

/**
 * Whether containers of this engine support an egress. Not when their processes are missing from our process table,
 * because the fleet runs in a container itself; nor when their network is not the kernel's, as with gVisor and with
 * virtual machines.
 */
export function supportsEgress(
  facts: Pick<EngineFacts, "isOnThisHost" | "isRootless" | "defaultRuntime">,
  { hostPaths, runtime }: Pick<DockerSettings["docker"], "hostPaths" | "runtime">,
): boolean {
  if (process.getuid?.() !== 0 || !facts.isOnThisHost || facts.isRootless) return false;
  return Object.keys(hostPaths).length === 0 && !mayHideSockets(runtime, facts);
}

export class Egresses extends HeldEgresses<EgressParts & { readonly engine: Engine }> {
  /** Before the container is made. */
  async prepare(name: ObjectName, record: EgressRecord, network: Network): Promise<PreparedEgress> {
    if (network.mode === "none") return NOTHING;
    await this.makeRoom(record.labels.blueprintHash, network);
    const options = await this.options(name, record, network);
    prepareDirectory(options);
    const { environment, mounts } = sandboxNetwork(options.policy, places(options.directory).inside, "namespace");
    const bindings = mounts.map(({ hostPath: from, sandboxPath: to }) => ({ from, to, readOnly: true }));
    return { environment, bindings };
  }

  /** Once the container runs, and before any caller uses it. */
  async start(name: ObjectName, record: EgressRecord, network: Network, containerId: string): Promise<void> {
    if (network.mode === "none") return;
    const pid = (await this.parts.engine.inspect(containerId))?.State.Pid ?? 0;
    const init = pid === 0 ? null : identify(pid);
    if (init === null || init === undefined) throw createFailed("it ended before it had its way out");
    const egress = await startEgress({ ...(await this.options(name, record, network)), namespace: { pid } });
    this.hold(name, egress);
    egress.watch({ ...this.parts.world.identity, ...init });
  }

  /** Makes sure that a running container has its egress, also one that another process made. */
  async join({ name, record, container }: ContainerObject): Promise<void> {
    const network = this.joinable(name, record.labels.blueprintHash);
    if (container === null || network === null) return;
    await this.start(name, record, network, container.containerId);
  }
}
