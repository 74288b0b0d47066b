/**
 * The engine's side of the backend contract: each call takes its time, passes the traps, takes effect on the ledger and
 * gets its response. Like any engine it completes a request also when its caller is gone.
 */

import { appendFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import type { SandlotError } from "@sandlot/contract";
import type { EngineEvent } from "../../../packages/fleet/src/backend/backend.ts";
import type { Store } from "../../../packages/fleet/src/store/store.ts";
import { EngineLedger, type SimObject } from "../../simulation/engine/ledger.ts";
import { Random } from "../../simulation/schedule/random.ts";
import type { Plant } from "../plants.ts";
import { FLEET } from "../settings.ts";
import type { EngineCalls, EngineDump, Method } from "../wire.ts";
import { Announcements } from "./announcements.ts";
import { Checks } from "./checks.ts";
import { effectsOf } from "./effects.ts";
import { Faults, faultOf } from "./faults.ts";
import { isLostRemoval, lastEnded } from "./lost-removals.ts";
import type { AttachmentOf, Peer } from "./peer.ts";
import { RewindWindow } from "./rewind-window.ts";
import { Traps } from "./traps.ts";

export interface EngineOptions {
  readonly store: Store;
  readonly sessionLifetimeMs: number;
  readonly seed: number;
  readonly plant: Plant | null;
  readonly logPath: string;
  readonly onHeld: (held: number, name: string, method: Method) => void;
  readonly onViolation: (what: string) => void;
}

export class Engine {
  readonly ledger = new EngineLedger(() => performance.now());
  readonly announcements = new Announcements();
  readonly attachments = new Map<number, AttachmentOf>();
  readonly peers = new Set<Peer>();
  readonly checks: Checks;
  readonly plant: Plant | null;
  readonly random: Random;
  readonly #faults: Faults;
  readonly traps: Traps;
  readonly #effects: ReturnType<typeof effectsOf>;
  readonly #counts: Record<string, number> = {};
  readonly #logPath: string;
  readonly #sessionLifetimeMs: number;
  #log: string[] = [];

  constructor(options: EngineOptions) {
    const { seed, plant, store, onHeld, onViolation, logPath } = options;
    this.plant = plant;
    this.#logPath = logPath;
    this.#sessionLifetimeMs = options.sessionLifetimeMs;
    this.random = new Random(seed, 1);
    this.#faults = new Faults(new Random(seed, 2));
    this.traps = new Traps((held, name, method) => {
      this.note(`held ${name} ${method}`);
      onHeld(held, name, method);
    });
    const violated = (what: string) => {
      this.note(`VIOLATION ${what}`);
      this.flush();
      onViolation(what);
    };
    const excused = (kind: string, what: string) => {
      this.note(`EXCUSED ${what}`);
      this.#counts[`excused: ${kind}`] = (this.#counts[`excused: ${kind}`] ?? 0) + 1;
    };
    const { ledger, announcements, attachments } = this;
    const window = new RewindWindow({
      now: () => performance.now(),
      epoch: async () => (await store.meta()).epoch,
      recorded: async () => (await store.list()).map(({ sandboxId }) => sandboxId),
      sessionLifetimeMs: this.#sessionLifetimeMs,
      ...{ violated, excused },
    });
    this.checks = new Checks({ ledger, store, announcements, attachments, violated, window });
    this.#effects = effectsOf(this);
    ledger.onDied((object) => this.#tellDeath(object));
    setInterval(() => this.flush(), 500).unref();
  }

  async perform<M extends Method>(
    peer: Peer,
    method: M,
    args: Parameters<EngineCalls[M]>,
  ): Promise<ReturnType<EngineCalls[M]>> {
    const plan = this.#faults.plan(method);
    const effect = this.#effects[method] as (
      peer: Peer,
      ...args: Parameters<EngineCalls[M]>
    ) => ReturnType<EngineCalls[M]>;
    peer.underWay += 1;
    try {
      // The planted one must be found by its use.
      if (method === "create" && this.plant !== "double")
        await this.checks.createAsked(peer, ...(args as Parameters<EngineCalls["create"]>));
      if (plan.delayMs > 0) await sleep(plan.delayMs);
      if ((await this.traps.pass("before", peer.name, method)) === "drop") return await dropped(peer);
      if (plan.failsBefore) throw faultOf(method);
      const result = await effect(peer, ...args);
      this.#counts[method] = (this.#counts[method] ?? 0) + 1;
      if ((await this.traps.pass("after", peer.name, method)) === "drop") return await dropped(peer);
      if (plan.failsAfter) throw faultOf(method);
      this.note(`${peer.name} ${method} ${JSON.stringify(args)} -> ${JSON.stringify(result)}`);
      return result;
    } catch (error) {
      const { code, message } = error as SandlotError;
      this.note(`${peer.name} ${method} ${JSON.stringify(args)} failed: ${code ?? ""} ${message}`);
      throw error;
    } finally {
      peer.underWay -= 1;
    }
  }

  peerGone(peer: Peer): void {
    peer.isOpen = false;
    this.announcements.gone(peer);
    for (const { id, object, onDeath } of peer.attachments.values()) {
      object.connections.delete(onDeath);
      this.attachments.delete(id);
    }
    peer.attachments.clear();
    this.note(`${peer.name} is gone`);
  }

  paused(name: string): void {
    for (const peer of this.#named(name)) {
      peer.pausedAt = performance.now();
      peer.disturbedAt = peer.pausedAt;
    }
    this.note(`${name} is stopped`);
  }

  resumed(name: string): void {
    for (const peer of this.#named(name)) {
      const now = performance.now();
      // Below this it cannot have been declared dead; above, its holds are in doubt until it has asked the store.
      if (peer.pausedAt !== null && now - peer.pausedAt > this.#sessionLifetimeMs / 3) peer.doubt();
      peer.pausedAt = null;
      peer.disturbedAt = now;
    }
    this.note(`${name} goes on`);
  }

  async heal(): Promise<void> {
    this.#faults.heal();
    this.traps.heal();
    const isBusy = () => [...this.peers].some((peer) => !peer.isOpen && peer.underWay > 0);
    while (isBusy()) await sleep(10);
    this.note("healed");
  }

  dump(): EngineDump {
    const { ledger } = this;
    const attached = (object: SimObject) => [...this.attachments.values()].filter((at) => at.object === object).length;
    const inSlots = [...ledger.slots].flatMap(([where, { workspace }]) =>
      workspace === null ? [] : [{ where, workspace }],
    );
    const homes = [...ledger.homes.values()].map((workspace) => ({ where: "home", workspace }));
    return {
      objects: [...ledger.objects.values()].map((object) => ({
        ref: object.ref,
        sandboxId: object.labels.sandboxId,
        alive: object.alive,
        attachments: attached(object),
      })),
      slots: [...ledger.slots.keys()],
      markers: [...ledger.markers.keys()],
      workspaces: [...inSlots, ...homes].map(({ where, workspace: { owner, tokens } }) => ({
        owner,
        where,
        tokens: [...tokens],
      })),
      lostRemovals: [...lastEnded(ledger)]
        .filter(([, sandbox]) => isLostRemoval(sandbox, this.checks.window.losses, this.#sessionLifetimeMs))
        .map(([owner]) => owner),
      purgedTokens: [...this.checks.purgedTokens],
      counts: this.#counts,
    };
  }

  /** Every effect is logged: a violation is analysed from the events before it. */
  note(text: string): void {
    this.#log.push(`${Date.now() % 10_000_000} ${text}\n`);
  }

  flush(): void {
    if (this.#log.length === 0) return;
    appendFileSync(this.#logPath, this.#log.join(""));
    this.#log = [];
  }

  #named(name: string): readonly Peer[] {
    return [...this.peers].filter((peer) => peer.isOpen && peer.name === name);
  }

  #tellDeath({ ref, labels }: SimObject): void {
    if (labels.fleet !== FLEET) return;
    const { sandboxId } = labels;
    for (const peer of this.peers) {
      if (!peer.isOpen || this.#faults.losesEvent()) continue;
      const event: EngineEvent = this.random.chance(0.1) ? { type: "resync" } : { type: "died", ref, sandboxId };
      peer.send({ push: "event", event });
    }
  }
}

/** A lost call never gets a response, and healing does not wait for it. */
function dropped(peer: Peer): Promise<never> {
  peer.underWay -= 1;
  return new Promise(() => {});
}
