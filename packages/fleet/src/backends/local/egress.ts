/**
 * The way out of sandboxes that have one. A process of its own carries it for each (`network/`): started before the
 * sandbox, in whose network namespace it listens, and ended with it. Whoever attaches makes sure that it is there.
 *
 * Invariant: values of secrets are in no file of this backend. A process that joins takes them from its configuration, by
 * the hash of the blueprint.
 */

import { existsSync } from "node:fs";
import { mkdir, rm, rmdir } from "node:fs/promises";
import { type BlueprintHash, type SandboxId, SandlotError } from "@sandlot/contract";
import type { Blueprint } from "../../backend/blueprint.ts";
import type { NamedBlueprint } from "../../config/settings.ts";
import {
  type Egress,
  type NetworkPolicy,
  networkProblem,
  type Refusal,
  startEgress,
  stopEgress,
} from "../../network/index.ts";
import type { World } from "../../world/world.ts";
import { egressPath, type Layout, type ObjectName } from "./objects/layout.ts";
import type { LocalObject, ProcessRecord } from "./objects/object-store.ts";
import type { Account } from "./settings.ts";

type Network = Blueprint["network"];

export interface EgressParts {
  readonly world: World;
  readonly layout: Layout;
  /** The account of sandboxes; `null` when it is the fleet's own. */
  readonly account: Account | null;
  readonly blueprints: Readonly<Record<string, NamedBlueprint>>;
  readonly onRefused?: ((sandboxId: SandboxId, refusal: Refusal) => void) | undefined;
}

export class Egresses {
  readonly #parts: EgressParts;
  readonly #held = new Map<ObjectName, Egress>();
  readonly #made = new Map<BlueprintHash, Network>();
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
    throw new SandlotError("isolation_unavailable", { backend: "local", problem: `network ${mode}: ${problem}`, fix });
  }

  /** For a sandbox that is about to be made; `null` when it has no way out. */
  async start(name: ObjectName, labels: LocalObject["record"]["labels"], network: Network): Promise<Egress | null> {
    if (network.mode === "none") return null;
    this.#made.set(labels.blueprintHash, network);
    await mkdir(this.#parts.layout.egress, { recursive: true, mode: 0o711 });
    const egress = await startEgress(this.#options(name, labels.sandboxId, network));
    this.#held.set(name, egress);
    return egress;
  }

  /** From now on it ends with the sandbox. */
  watch(name: ObjectName, { init }: ProcessRecord): void {
    this.#held.get(name)?.watch({ ...this.#parts.world.identity, ...init });
  }

  /** Makes sure that a sandbox which runs has its way out. */
  async join({ name, record, process }: LocalObject): Promise<void> {
    const { labels } = record;
    const network = this.#networkOf(labels.blueprintHash);
    if (process === null || this.#held.has(name) || !existsSync(egressPath(this.#parts.layout, name))) return;
    if (network === null || network.mode === "none") return;
    // An ordinary user has rights over the namespace only from the user namespace that the process outside is in.
    const { pid } = this.#parts.account === null ? (process.monitor ?? process.init) : process.init;
    const egress = await startEgress({ ...this.#options(name, labels.sandboxId, network), namespace: { pid } });
    this.#held.set(name, egress);
    void egress.closed.then(() => this.#held.get(name) === egress && this.#held.delete(name));
    egress.watch({ ...this.#parts.world.identity, ...process.init });
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
    return configured?.blueprint.network ?? this.#made.get(hash) ?? null;
  }

  #options(name: ObjectName, sandboxId: SandboxId, network: Network) {
    const { layout, world, account, onRefused } = this.#parts;
    return {
      sandboxId,
      policy: policyOf(network),
      directory: egressPath(layout, name),
      way: "namespace" as const,
      world,
      ...(account !== null && { account: proxyAccount(account) }),
      ...(onRefused !== undefined && { onRefused: (refusal: Refusal) => onRefused(sandboxId, refusal) }),
    };
  }
}

function policyOf({ mode, allow, secrets = [] }: Network): NetworkPolicy {
  return { mode, allow, secrets };
}

/** What reads the sandbox's requests must not be what the sandbox is: the one before it in number. */
function proxyAccount({ uid, gid }: Account): Account {
  return { uid: uid - 1, gid: gid - 1 };
}
