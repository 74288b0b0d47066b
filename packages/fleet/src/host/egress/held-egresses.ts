/**
 * The egress processes of a backend's sandboxes on this host: one process each (`egress/`), held by name, joined on
 * attach and ended with its sandbox. Each backend starts them in its own way.
 *
 * Invariant: no file of a backend contains the value of a secret. A process that joins takes the values from its
 * configuration, by the hash of the blueprint.
 */

import { existsSync } from "node:fs";
import { mkdir, rm, rmdir } from "node:fs/promises";
import { type BlueprintHash, type SandboxId, SandlotError } from "@sandlot/contract";
import type { Blueprint, NamedBlueprint } from "../../backend/blueprint.ts";
import type { Labels } from "../../backend/labels.ts";
import type { World } from "../../world/world.ts";
import { type Account, egressAccountOf } from "../accounts/index.ts";
import { egressPath, type Layout, type ObjectName } from "../layout.ts";
import { type Egress, networkProblem, type Refusal, stopEgress } from "./index.ts";
import { type ResolvedRegistries, resolveRegistries } from "./registries/resolve.ts";

export type Network = Blueprint["network"];

export interface EgressParts {
  /** The backend's name. */
  readonly backend: string;
  readonly world: World;
  readonly layout: Layout;
  /** The account of sandboxes; `null` when it is the fleet's own. */
  readonly account: Account | null;
  readonly blueprints: Readonly<Record<string, NamedBlueprint>>;
  readonly onRefused: (sandboxId: SandboxId, refusal: Refusal) => void;
}

/** The facts about a sandbox with egress. */
export interface EgressRecord {
  readonly labels: Labels;
  /** The sandbox's own account; `null` when it has the backend's. */
  readonly account: Account | null;
}

const UNANSWERED_MS = 60_000;

export abstract class HeldEgresses<Parts extends EgressParts> {
  protected readonly parts: Parts;
  readonly #held = new Map<ObjectName, Egress>();
  readonly #made = new Map<BlueprintHash, Network>();
  readonly #registries = new Map<string, { readonly resolved: Promise<ResolvedRegistries | null>; untilMs: number }>();
  readonly #problems = new Map<Network["mode"], Promise<string | null>>();

  constructor(parts: Parts) {
    this.parts = parts;
  }

  /** Throws when this machine cannot give sandboxes such a network. */
  async check({ mode }: Network): Promise<void> {
    if (mode === "none") return;
    const { backend, world } = this.parts;
    const asked = this.#problems.get(mode) ?? networkProblem(mode, world);
    this.#problems.set(mode, asked);
    const problem = await asked;
    if (problem === null) return;
    // The missing program may be installed meanwhile.
    this.#problems.delete(mode);
    const fix = "do what the problem says, or use network mode none";
    throw new SandlotError("isolation_unavailable", { backend, problem: `network ${mode}: ${problem}`, fix });
  }

  async stop(name: ObjectName): Promise<void> {
    const { layout, world } = this.parts;
    const directory = egressPath(layout, name);
    this.#held.delete(name);
    if (!existsSync(directory)) return;
    await stopEgress({ directory, world });
    await rm(directory, { recursive: true, force: true });
    // The last egress also removes the parent directory, unless that is the fleet's own.
    if (layout.egress !== layout.sockets) await rmdir(layout.egress).catch(() => {});
  }

  close(): void {
    for (const egress of this.#held.values()) egress.detach();
    this.#held.clear();
  }

  /** Called before anything of the egress exists. */
  protected async makeRoom(hash: BlueprintHash, network: Network): Promise<void> {
    this.#made.set(hash, network);
    await mkdir(this.parts.layout.egress, { recursive: true, mode: 0o711 });
  }

  /** Drops an egress whose process has ended, so that the next attach starts another. */
  protected hold(name: ObjectName, egress: Egress): void {
    this.#held.set(name, egress);
    void egress.closed.then(() => this.#held.get(name) === egress && this.#held.delete(name));
  }

  protected held(name: ObjectName): Egress | undefined {
    return this.#held.get(name);
  }

  /** The network of a sandbox whose egress is not held here; `null` when there is nothing to join. */
  protected joinable(name: ObjectName, hash: BlueprintHash): Network | null {
    if (this.#held.has(name) || !existsSync(egressPath(this.parts.layout, name))) return null;
    const configured = Object.values(this.parts.blueprints).find((named) => named.hash === hash);
    const network = configured?.blueprint.network ?? this.#made.get(hash) ?? null;
    return network?.mode === "none" ? null : network;
  }

  /** An index that has not answered is asked again soon; the others stay as they are, and so do running proxies. */
  async #registriesOf({ registries, mirrors }: Network): Promise<ResolvedRegistries | null> {
    const { world } = this.parts;
    const key = JSON.stringify([registries, mirrors]);
    const known = this.#registries.get(key);
    if (known !== undefined && world.monotonicMs() < known.untilMs) return known.resolved;
    const asked = {
      resolved: resolveRegistries({ registries, mirrors }, { world }),
      untilMs: Number.POSITIVE_INFINITY,
    };
    this.#registries.set(key, asked);
    try {
      const resolved = await asked.resolved;
      if (resolved?.isComplete === false) asked.untilMs = world.monotonicMs() + UNANSWERED_MS;
      return resolved;
    } catch (error) {
      this.#registries.delete(key);
      throw error;
    }
  }

  protected async options(name: ObjectName, { labels, account: own }: EgressRecord, network: Network) {
    const { layout, world, onRefused } = this.parts;
    const { sandboxId } = labels;
    const { mode, allow, secrets = [] } = network;
    const account = own ?? this.parts.account;
    const registries = (await this.#registriesOf(network))?.access;
    return {
      sandboxId,
      policy: { mode, allow, secrets, registries },
      directory: egressPath(layout, name),
      way: "namespace" as const,
      world,
      ...(account !== null && { account: egressAccountOf(account) }),
      onRefused: (refusal: Refusal) => onRefused(sandboxId, refusal),
    };
  }
}
