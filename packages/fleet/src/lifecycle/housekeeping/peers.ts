/**
 * Peers: detects dead instances, takes over their work, and ends the recovery of a lost store (rules 3, 6, 12).
 *
 * Invariants
 * - Only an instance that may judge declares a peer dead: after seeing the same beat for a full lifetime with an
 *   unbroken view, or when the peer's process is known to be gone. The store then compares the beat.
 * - A peer whose process is known to be alive gets several lifetimes: its event loop may be blocked.
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
  /** Whether this instance is creating the sandbox. */
  readonly isMaking: (sandboxId: SandboxId) => boolean;
  readonly lifetimeMs: number;
}

/** How many lifetimes a silent peer gets while its process is known to be alive. */
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
    await this.endDeadSessions();
    await this.#takeOver();
  }

  /** Ends the sessions of dead peers. True if there were any: their holds are then gone. */
  async endDeadSessions(): Promise<boolean> {
    const { world, store, membership, bus, lifetimeMs } = this.#parts;
    if (!membership.mayJudge()) return false;
    const sessions = await store.sessions();
    if (!membership.mayJudge()) return false;
    const beats = sessions.map(({ instance, beat }) => [instance, beat] as const);
    const since = membership.sightSince();
    const silentFor = this.#beats.observe(beats, world.monotonicMs(), since);
    let ended = false;
    for (const { instance, beat, identity } of sessions) {
      if (instance === membership.instance) continue;
      const liveness = world.processLiveness(identity);
      // The host knows that the process runs: a long turn or a debugger may hold it up, and it may come back.
      const patienceMs = liveness === "alive" ? ALIVE_LIFETIMES * lifetimeMs : lifetimeMs;
      if (liveness !== "dead" && (silentFor.get(instance) ?? 0) < patienceMs) continue;
      // The store may have failed while the previous session was being ended.
      if (!membership.mayJudge() || membership.sightSince() !== since) break;
      if (!(await store.endDeadSession(instance, beat))) continue;
      ended = true;
      bus.emit({ type: "instance-buried", peer: instance });
    }
    return ended;
  }

  /** Continues what a dead instance or a lost response left in `creating` or `stopping`. */
  async #takeOver(): Promise<void> {
    const { store, membership, retirement, isMaking } = this.#parts;
    if (!membership.trusted()) return;
    const acting = await store.list({ acting: true });
    retirement.stillActing(new Set(acting.map(({ sandboxId }) => sandboxId)));
    if (acting.length === 0) return;
    const alive = new Set((await store.sessions()).map(({ instance }) => instance));
    for (const record of acting.filter((one) => membership.isOurs(one))) {
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
   * A new store serves only holders that re-register, for one session lifetime. Then the fleet adopts what the engine
   * still shows. If the engine has nothing of this fleet, recovery ends at once, so a new fleet starts without delay.
   */
  async #endRecovery(): Promise<void> {
    const { world, store, backend, membership, reconciler, bus, lifetimeMs } = this.#parts;
    const { epoch } = membership;
    if (!membership.recovering || epoch === null || !membership.trusted()) return;
    const seen = this.#recoveries.observe([["recovery", epoch]], world.monotonicMs(), membership.sightSince());
    const waited = (seen.get("recovery") ?? 0) >= lifetimeMs;
    if (waited ? !(await reconciler.recover()) : !(await this.#engineIsEmpty())) return;
    const onProblem = (problem: string) => bus.emit({ type: "housekeeping-failed", task: "recovery", problem });
    membership.sawGeneration(await backend.workspaces.latestGeneration(onProblem));
    if (!membership.trusted() || membership.epoch !== epoch) return;
    // Before anything new is given, the store's counter must pass every generation that a sandbox or a workspace shows:
    // a workspace refuses generations older than its last use, also for a purge. The wall clock may have been set back.
    await membership.renew();
    if (!membership.trusted() || membership.epoch !== epoch) return;
    await store.endRecovery(epoch, backend.engineId);
    await membership.renew();
  }

  async #engineIsEmpty(): Promise<boolean> {
    const { world, backend, lifetimeMs } = this.#parts;
    const late = () => engineSilence(backend, "to list its objects", lifetimeMs);
    const list = (signal: AbortSignal) => backend.list({ consistent: true }, signal);
    return (await within(world, lifetimeMs, undefined, late, list)).length === 0;
  }
}
