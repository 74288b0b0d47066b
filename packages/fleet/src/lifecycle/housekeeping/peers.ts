/**
 * Peers: who is dead, what the dead were doing, and when a store that was lost is whole again (rules 3, 6, 12).
 *
 * Invariants
 * - A peer is held for dead only by an instance that may judge, and only after seeing the same beat for a full
 *   lifetime with its own sight unbroken, or when its process is known to be gone. The store then compares the beat.
 * - A peer whose process is known to be alive is given several lifetimes: its event loop may be blocked.
 * - Taking over needs no judgement: the store does it only if the actor has no session.
 */

import type { SandboxId } from "@sandlot/contract";
import type { Backend } from "../../backend/backend.ts";
import type { EventBus } from "../../observe/event-bus.ts";
import type { Store } from "../../store/store.ts";
import { within } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import type { Membership } from "../session/membership.ts";
import type { Retirement } from "../stop/retirement.ts";
import { engineSilence } from "./engine-silence.ts";
import { LastSeen } from "./last-seen.ts";
import type { Reconciler } from "./reconciler.ts";

export interface PeersParts {
  readonly world: World;
  readonly store: Store;
  readonly backend: Backend;
  readonly membership: Membership;
  readonly retirement: Retirement;
  readonly bus: EventBus;
  readonly reconciler: Reconciler;
  /** Whether a create of ours is under way. */
  readonly isMaking: (sandboxId: SandboxId) => boolean;
  readonly lifetimeMs: number;
}

/** How many lifetimes a silent peer is given whose process is known to be alive. */
const ALIVE_LIFETIMES = 4;

export class Peers {
  readonly #parts: PeersParts;
  readonly #beats = new LastSeen<string, number>();
  readonly #recoveries = new LastSeen<string, string>();

  constructor(parts: PeersParts) {
    this.#parts = parts;
  }

  async tend(): Promise<void> {
    await this.#endRecovery();
    await this.buryTheDead();
    await this.#takeOver();
  }

  /** Answers whether there was anybody to endDeadSession: then what they held is nobody's. */
  async buryTheDead(): Promise<boolean> {
    const { world, store, membership, bus, lifetimeMs } = this.#parts;
    if (!membership.mayJudge()) return false;
    const sessions = await store.sessions();
    if (!membership.mayJudge()) return false;
    const beats = sessions.map(({ instance, beat }) => [instance, beat] as const);
    const since = membership.sightSince();
    const silentFor = this.#beats.observe(beats, world.monotonicMs(), since);
    let buried = false;
    for (const { instance, beat, identity } of sessions) {
      if (instance === membership.instance) continue;
      const liveness = world.processLiveness(identity);
      // Its host knows that it runs: it may be held up by a long turn, or a debugger, and come back.
      const patienceMs = liveness === "alive" ? ALIVE_LIFETIMES * lifetimeMs : lifetimeMs;
      if (liveness !== "dead" && (silentFor.get(instance) ?? 0) < patienceMs) continue;
      // The store may have failed us while the one before was being buried.
      if (!membership.mayJudge() || membership.sightSince() !== since) break;
      if (!(await store.endDeadSession(instance, beat))) continue;
      buried = true;
      bus.emit({ type: "instance-buried", peer: instance });
    }
    return buried;
  }

  /** Goes on with what a dead instance, or an answer that got lost, has left in `creating` or `stopping`. */
  async #takeOver(): Promise<void> {
    const { store, membership, retirement, isMaking } = this.#parts;
    if (!membership.trusted()) return;
    const acting = await store.list({ acting: true });
    retirement.stillActing(new Set(acting.map(({ sandboxId }) => sandboxId)));
    if (acting.length === 0) return;
    const alive = new Set((await store.sessions()).map(({ instance }) => instance));
    for (const record of acting) {
      const { sandboxId, revision, actor } = record;
      if (record.state === "ready" || actor === null || !membership.trusted()) continue;
      if (actor !== membership.instance) {
        const taken = alive.has(actor)
          ? null
          : await store.takeOver({ sandboxId, revision, actor: membership.instance });
        if (taken !== null) void retirement.finishStop(taken);
      } else if (record.state === "stopping") void retirement.finishStop(record);
      else if (!isMaking(sandboxId)) void retirement.unmake(record);
    }
  }

  /**
   * A store that begins anew serves only holders that re-register, for one session lifetime; then what the engine still
   * shows is taken in. Where it has nothing of this fleet there is nothing to wait for: so a new fleet starts at once.
   */
  async #endRecovery(): Promise<void> {
    const { world, store, backend, membership, reconciler, lifetimeMs } = this.#parts;
    const { epoch } = membership;
    if (!membership.recovering || epoch === null || !membership.trusted()) return;
    const seen = this.#recoveries.observe([["recovery", epoch]], world.monotonicMs(), membership.sightSince());
    const waited = (seen.get("recovery") ?? 0) >= lifetimeMs;
    if (waited ? !(await reconciler.recover()) : !(await this.#engineIsEmpty())) return;
    membership.sawGeneration(await backend.workspaces.latestGeneration());
    if (!membership.trusted() || membership.epoch !== epoch) return;
    // Nothing new is given before the store's counter is past every generation that a sandbox or a workspace shows: a
    // workspace refuses what is older than its last use, also a purge. The wall clock may have been set back since.
    await membership.renew();
    if (!membership.trusted() || membership.epoch !== epoch) return;
    await store.endRecovery(epoch);
    await membership.renew();
  }

  async #engineIsEmpty(): Promise<boolean> {
    const { world, backend, lifetimeMs } = this.#parts;
    const late = () => engineSilence(backend, "to list its objects", lifetimeMs);
    const list = (signal: AbortSignal) => backend.list({ consistent: true }, signal);
    return (await within(world, lifetimeMs, undefined, late, list)).length === 0;
  }
}
