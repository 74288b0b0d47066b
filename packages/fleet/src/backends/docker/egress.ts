/**
 * The way out of containers that have one. A container is made without a network; once it runs, the process that carries its
 * way out enters its network namespace and listens there (`network/`). It takes rights over that namespace: those of root on the
 * machine that the engine runs on.
 *
 * Invariant: nothing inside can use a network before its way out is there, because there is none.
 */

import { existsSync } from "node:fs";
import { mkdir, rm, rmdir } from "node:fs/promises";
import { type BlueprintHash, type SandboxId, SandlotError } from "@sandlot/contract";
import type { Blueprint } from "../../backend/blueprint.ts";
import type { Labels } from "../../backend/labels.ts";
import type { NamedBlueprint } from "../../config/settings.ts";
import { type Egress, type NetworkPolicy, networkProblem, startEgress, stopEgress } from "../../network/index.ts";
import { prepareDirectory } from "../../network/process/directory.ts";
import { places } from "../../network/process/egress-settings.ts";
import { sandboxNetwork } from "../../network/sandbox-side/sandbox-network.ts";
import type { World } from "../../world/world.ts";
import { identify } from "../local/engine/process-table.ts";
import type { Binding } from "../local/mounts.ts";
import { egressPath, type Layout, type ObjectName } from "../local/objects/layout.ts";
import type { Account } from "../local/settings.ts";
import type { Engine, EngineFacts } from "./engine/engine.ts";
import { createFailed } from "./engine/trouble.ts";
import type { ContainerObject } from "./objects/container-objects.ts";

type Network = Blueprint["network"];

export interface EgressParts {
  readonly world: World;
  readonly layout: Layout;
  readonly engine: Engine;
  /** The account of sandboxes. */
  readonly account: Account;
  /** Where values of secrets are taken from by a process that joins: they are in no file of this backend. */
  readonly blueprints: Readonly<Record<string, NamedBlueprint>>;
}

/** What a container with a way out needs from its start. */
export interface PreparedEgress {
  readonly environment: Readonly<Record<string, string>>;
  readonly bindings: readonly Binding[];
}

const NOTHING: PreparedEgress = { environment: {}, bindings: [] };

/** Whether containers of this engine can be given a way out at all. */
export function canGiveWayOut(facts: Pick<EngineFacts, "isOnThisHost" | "isRootless">): boolean {
  return process.getuid?.() === 0 && facts.isOnThisHost && !facts.isRootless;
}

export class Egresses {
  readonly #parts: EgressParts;
  readonly #held = new Map<ObjectName, Egress>();
  readonly #known = new Map<BlueprintHash, Network>();
  readonly #problems = new Map<Network["mode"], Promise<string | null>>();

  constructor(parts: EgressParts) {
    this.#parts = parts;
  }

  /** Throws when this machine cannot give sandboxes such a network. */
  async check({ mode }: Network): Promise<void> {
    if (mode === "none") return;
    const asked = this.#problems.get(mode) ?? networkProblem(mode, this.#parts.world);
    this.#problems.set(mode, asked);
    const problem = await asked;
    if (problem === null) return;
    // What is missing may be installed meanwhile.
    this.#problems.delete(mode);
    const fix = "do what the problem says, or use network mode none";
    throw new SandlotError("isolation_unavailable", { backend: "docker", problem: `network ${mode}: ${problem}`, fix });
  }

  /** Before the container is made. */
  async prepare(name: ObjectName, labels: Labels, network: Network): Promise<PreparedEgress> {
    if (network.mode === "none") return NOTHING;
    this.#known.set(labels.blueprintHash, network);
    await mkdir(this.#parts.layout.egress, { recursive: true, mode: 0o711 });
    const options = this.#options(name, labels.sandboxId, network);
    prepareDirectory(options);
    const { environment, mounts } = sandboxNetwork(options.policy, places(options.directory).inside, "namespace");
    const bindings = mounts.map(({ hostPath: from, sandboxPath: to }) => ({ from, to, readOnly: true }));
    return { environment, bindings };
  }

  /** Once the container runs, and before anybody uses it. */
  async start(name: ObjectName, labels: Labels, network: Network, containerId: string): Promise<void> {
    if (network.mode === "none") return;
    const pid = (await this.#parts.engine.inspect(containerId))?.State.Pid ?? 0;
    const init = pid === 0 ? null : identify(pid);
    if (init === null || init === undefined) throw createFailed("it ended before it had its way out");
    const egress = await startEgress({ ...this.#options(name, labels.sandboxId, network), namespace: { pid } });
    this.#held.set(name, egress);
    void egress.closed.then(() => this.#held.get(name) === egress && this.#held.delete(name));
    egress.watch({ ...this.#parts.world.identity, ...init });
  }

  /** Makes sure that a container which runs has its way out, whoever made it. */
  async join({ name, record, container }: ContainerObject): Promise<void> {
    const network = this.#networkOf(record.labels.blueprintHash);
    if (network === null || network.mode === "none" || container === null || this.#held.has(name)) return;
    if (!existsSync(egressPath(this.#parts.layout, name))) return;
    await this.start(name, record.labels, network, container.containerId);
  }

  async stop(name: ObjectName): Promise<void> {
    const { layout, world } = this.#parts;
    const directory = egressPath(layout, name);
    this.#held.delete(name);
    if (!existsSync(directory)) return;
    await stopEgress({ directory, world });
    await rm(directory, { recursive: true, force: true });
    // The last one takes the place along where that is not the fleet's own directory.
    if (layout.egress !== layout.sockets) await rmdir(layout.egress).catch(() => {});
  }

  close(): void {
    for (const egress of this.#held.values()) egress.detach();
    this.#held.clear();
  }

  #networkOf(hash: BlueprintHash): Network | null {
    const configured = Object.values(this.#parts.blueprints).find((named) => named.hash === hash);
    return configured?.blueprint.network ?? this.#known.get(hash) ?? null;
  }

  #options(name: ObjectName, sandboxId: SandboxId, network: Network) {
    const { layout, world, account } = this.#parts;
    const policy: NetworkPolicy = { mode: network.mode, allow: network.allow, secrets: network.secrets ?? [] };
    // What reads the sandbox's requests must not be what the sandbox is: the one before it in number.
    const proxy = { uid: account.uid - 1, gid: account.gid - 1 };
    return { sandboxId, policy, directory: egressPath(layout, name), way: "namespace" as const, world, account: proxy };
  }
}
