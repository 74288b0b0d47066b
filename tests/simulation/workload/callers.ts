/**
 * The callers: the code that uses a fleet. They acquire, write, read, release (sometimes twice), hand leases to remote
 * callers, destroy, and give up waiting. They report their requests and results to the checks.
 *
 * A caller lives in its instance's process: its work is delivered there, and dies with it.
 */

import { isSandlotError } from "@sandlot/contract";
import type { Fleet } from "../../../packages/fleet/src/fleet.ts";
import type { Asked, LeaseChecks } from "../checks/lease-checks.ts";
import { sinceOf } from "../checks/reach-checks.ts";
import { HeldLease, type ThreadTruth } from "../checks/truth.ts";
import { JOURNAL } from "../engine/sim-sandbox.ts";
import { DRIFT_MARGIN } from "../process/host.ts";
import type { Instance } from "../process/instance.ts";
import type { Simulation } from "../simulation.ts";
import { countListeners } from "./listeners.ts";
import { DESTROY_ERRORS } from "./named-errors.ts";
import { RemoteCallers } from "./remote-callers.ts";
import { ownerName, type ThreadName } from "./threads.ts";

export interface AcquireWish {
  /** `null`: without a thread. */
  readonly thread: ThreadName | null;
  readonly user: string;
  readonly timeoutMs: number | null;
  readonly ttlMs: number | null;
  readonly abortAfterMs: number | null;
  /** Absent: the thread's present blueprint, and the default for a new one. */
  readonly blueprint?: string | null;
}

type Expected = Parameters<LeaseChecks["used"]>[2];

/** Bounds that a caller may rely on, with room for a slow store and a slow engine. */
const RELEASE_MAX_MS = 5_500;
const DESTROY_EXTRA_MS = 6_000;
const CLOSE_STEPS = 12;

export class Callers {
  readonly #simulation: Simulation;
  readonly remote: RemoteCallers;
  /** Pending calls of living processes. */
  readonly #pending = new Map<Asked, "acquire" | "destroy" | "release" | "close">();
  #tokens = 0;

  constructor(simulation: Simulation) {
    this.#simulation = simulation;
    this.remote = new RemoteCallers(simulation);
  }

  get pending(): ReadonlyMap<Asked, "acquire" | "destroy" | "release" | "close"> {
    for (const asked of this.#pending.keys()) if (!asked.instance.process.alive) this.#pending.delete(asked);
    return this.#pending;
  }

  acquire(instance: Instance, wish: AcquireWish, then?: (held: HeldLease) => void): void {
    const { trace, scheduler } = this.#simulation;
    const owner = wish.thread === null ? null : `${wish.thread.user}/${wish.thread.thread}`;
    trace.add(instance.name, "acquire", () => JSON.stringify(wish));
    instance.process.deliver(() => {
      const { fleet } = instance;
      if (fleet === null) return;
      const { blueprint = null } = wish;
      const timeoutMs = wish.timeoutMs ?? this.#simulation.settings.acquireTimeoutMs;
      const asked = this.#ask("acquire", instance, owner, timeoutMs, blueprint);
      const controller = new AbortController();
      const listeners = countListeners(controller.signal);
      const reason = new Error("the caller gave up");
      if (wish.abortAfterMs !== null) {
        this.#simulation.faults.count("acquire-aborted");
        scheduler.after(wish.abortAfterMs, () => instance.process.deliver(() => controller.abort(reason)));
      }
      const hot = this.#isHot(instance, owner, wish);
      const made = instance.calls.made;
      const acquiring = fleet.acquire({
        ...(wish.thread ?? { user: wish.user }),
        purpose: "simulated",
        signal: controller.signal,
        ...(wish.timeoutMs === null ? {} : { timeoutMs: wish.timeoutMs }),
        ...(blueprint === null ? {} : { blueprint }),
        ...(wish.ttlMs === null ? {} : { ttlMs: wish.ttlMs }),
      });
      const quiet = instance.calls.made === made;
      acquiring.then(
        (lease) => {
          this.#settled(asked);
          this.#simulation.factChecks.answered(instance, listeners());
          const row = () => this.#simulation.truth.remotes.get(lease.id);
          const held = new HeldLease(
            { lease, instance, owner, since: scheduler.now, remote: wish.ttlMs !== null },
            row,
          );
          if (hot) this.#checkHot(asked, quiet && scheduler.now === asked.at);
          this.#took(held, asked);
          if (blueprint !== null) this.#simulation.leaseChecks.checkBlueprint(held, blueprint);
          then?.(held);
        },
        (error: unknown) => {
          this.#settled(asked);
          // The cleanup after a caller that gave up may still listen.
          if (!controller.signal.aborted) this.#simulation.factChecks.answered(instance, listeners());
          trace.add(instance.name, "refused", () => String(error));
          this.#simulation.admissionChecks.gaveUp(
            instance,
            wish.thread?.user ?? wish.user,
            wish.thread?.thread ?? null,
          );
          this.#simulation.leaseChecks.refused(error, asked, controller.signal.aborted ? reason : null);
          if (hot && !controller.signal.aborted) this.#checkHot(asked, false);
        },
      );
    });
  }

  warm(instance: Instance, name: ThreadName): void {
    this.#simulation.trace.add(instance.name, "warm", () => name.thread);
    instance.process.deliver(() => {
      const asked = this.#ask("acquire", instance, ownerName(name), this.#simulation.settings.acquireTimeoutMs);
      instance.fleet?.warm(name).then(
        () => this.#settled(asked),
        (error: unknown) => {
          this.#settled(asked);
          this.#simulation.admissionChecks.gaveUp(instance, name.user, name.thread);
          this.#simulation.leaseChecks.refused(error, asked, null);
        },
      );
      if (instance.fleet === null) {
        this.#pending.delete(asked);
        this.#stopWaiting(instance);
      }
    });
  }

  /** Writes through a lease. `stale` uses the object that was taken from it long ago. */
  write(held: HeldLease, stale = false): void {
    held.instance.process.deliver(() => {
      const sandbox = stale && held.kept !== null ? held.kept : held.lease.sandbox;
      held.kept ??= sandbox;
      this.#tokens += 1;
      const token = `w${this.#tokens}`;
      const expected = {
        released: held.releasedAt !== null,
        stale: sandbox.generation !== held.generation,
        lost: held.isToldLost,
      };
      const thread = held.owner === null ? null : this.#simulation.truth.thread(held.owner);
      const owner = held.owner ?? `lease ${held.lease.id}`;
      // A use of a lost lease makes its next generation.
      held.instance.waitingAcquires += 1;
      sandbox.files
        .append(JOURNAL, JSON.stringify({ owner, token }))
        .then(
          () => this.#wrote(held, thread, token, sandbox.generation, expected),
          (error: unknown) => this.#useFailed(held, error, expected),
        )
        .finally(() => this.#stopWaiting(held.instance));
    });
  }

  read(held: HeldLease): void {
    held.instance.process.deliver(() => {
      if (held.releasedAt !== null) return;
      const thread = held.owner === null ? null : this.#simulation.truth.thread(held.owner);
      const before = [...(thread?.acknowledged.keys() ?? [])];
      const expected = { released: false, stale: false, lost: held.isToldLost };
      held.instance.waitingAcquires += 1;
      held.lease.sandbox.files
        .readText(JOURNAL)
        .finally(() => this.#stopWaiting(held.instance))
        .then(
          (text) => {
            this.#simulation.leaseChecks.used(held, null, expected);
            const shown = JSON.parse(text) as { owner: string | null; tokens: string[] };
            this.#simulation.leaseChecks.read(held, shown, before);
          },
          (error: unknown) => this.#useFailed(held, error, expected),
        );
    });
  }

  release(held: HeldLease, times = 1): void {
    const { trace, scheduler, truth } = this.#simulation;
    held.instance.process.deliver(() => {
      for (let time = 0; time < times; time += 1) {
        held.releasedAt ??= scheduler.now;
        const remote = truth.remotes.get(held.lease.id);
        if (remote !== undefined) remote.releaseAsked = true;
        trace.add(held.instance.name, "release", () => `${held.lease.id} on ${held.sandboxId}`);
        const asked = this.#ask("release", held.instance, held.owner, RELEASE_MAX_MS);
        held.lease.release().then(
          () => this.#answered(asked, "release"),
          (error: unknown) => {
            this.#pending.delete(asked);
            this.#simulation.leaseChecks.releaseFailed(held, error);
          },
        );
      }
    });
  }

  destroy(
    instance: Instance,
    name: ThreadName,
    options: { force: boolean; purge: boolean; timeoutMs: number | null },
  ): void {
    const { trace, truth, settings, scheduler } = this.#simulation;
    const owner = ownerName(name);
    trace.add(instance.name, "destroy thread", () => `${owner} ${JSON.stringify(options)}`);
    instance.process.deliver(() => {
      if (instance.fleet === null) return;
      const thread = truth.thread(owner);
      thread.destroyAsked = true;
      if (options.force) thread.forcedBy.add(instance.name);
      if (options.purge) thread.purgeAskedAt = scheduler.now;
      const { timeoutMs, ...how } = options;
      const bound = (timeoutMs ?? settings.stopTimeoutMs) + DESTROY_EXTRA_MS;
      const asked = this.#ask("destroy", instance, owner, bound);
      instance.fleet.destroy(name, { ...how, ...(timeoutMs === null ? {} : { timeoutMs }) }).then(
        (outcome) => {
          trace.add(instance.name, "destroy answered", () => outcome);
          this.#simulation.leaseChecks.destroyed(asked, outcome);
          if (options.purge) this.#simulation.leaseChecks.purged(asked, outcome);
          this.#simulation.promiseChecks.answered(asked, outcome, options.purge);
          this.#answered(asked, "destroy");
        },
        (error: unknown) => {
          this.#answered(asked, "destroy");
          this.#simulation.reachChecks.refused(error, asked);
          const named = isSandlotError(error) && DESTROY_ERRORS.has(error.code);
          const told = () => `destroy at ${instance.name}: ${String(error)}`;
          this.#simulation.findings.check("errors-are-named", named, told);
        },
      );
    });
  }

  /** A request of another file, which must be answered in bounded time. */
  ask(instance: Instance, owner: string, timeoutMs: number): Asked {
    return this.#ask("destroy", instance, owner, timeoutMs + DESTROY_EXTRA_MS);
  }

  answered(asked: Asked): void {
    this.#answered(asked, "destroy");
  }

  /** Reads the state, as a dashboard does; must disturb nothing. */
  look(instance: Instance): void {
    instance.process.deliver(() => {
      const { fleet } = instance;
      if (fleet === null) return;
      this.#checkGet(instance, fleet);
      fleet.list().then(
        ([first]) => {
          if (first !== undefined) fleet.explain(first.sandboxId).catch(() => undefined);
        },
        () => undefined,
      );
    });
  }

  close(instance: Instance, options: { destroy: boolean; drainMs: number }, then: () => void): void {
    const { settings, trace } = this.#simulation;
    instance.process.deliver(() => {
      const { fleet } = instance;
      if (fleet === null || instance.closing) return;
      instance.closing = true;
      trace.add(instance.name, "close", () => JSON.stringify(options));
      const bound = options.drainMs + CLOSE_STEPS * settings.stopTimeoutMs;
      const asked = this.#ask("close", instance, null, bound);
      fleet.close(options).then(
        () => {
          this.#answered(asked, "close");
          this.#simulation.factChecks.closed(instance, this.#simulation.watchesOf(instance));
          then();
        },
        (error: unknown) => this.#simulation.threw(error),
      );
    });
  }

  // --- Steps

  #took(held: HeldLease, asked: Asked): void {
    const { truth, trace, leaseChecks, scheduler } = this.#simulation;
    const { lease, instance } = held;
    truth.leases.add(held);
    trace.add(
      instance.name,
      "leased",
      () => `${held.owner} ${held.sandboxId} ${held.generation} ${lease.recovery.kind}`,
    );
    lease.onLost(({ reason, generation }) => {
      // The rest of the turn in which the process was killed goes unheard.
      if (!instance.process.alive) return;
      trace.add(instance.name, "lease lost", () => `${lease.id} ${reason}`);
      leaseChecks.lost(held, reason);
      held.lost = { reason, at: scheduler.now, generation, storeFailedAt: instance.storeFailedAt };
    });
    leaseChecks.acquired(held, asked);
  }

  /** A use of a lost lease waits for room as well. */
  #useFailed(held: HeldLease, error: unknown, expected: Expected): void {
    const [user = null, thread = null] = held.owner?.split("/") ?? [];
    this.#simulation.admissionChecks.gaveUp(held.instance, user, thread);
    this.#simulation.leaseChecks.used(held, error, expected);
  }

  #wrote(held: HeldLease, thread: ThreadTruth | null, token: string, generation: number, expected: Expected): void {
    const { truth, scheduler, findings, leaseChecks } = this.#simulation;
    leaseChecks.used(held, null, expected);
    const wrote = truth.writes.get(token);
    findings.check(
      "write-is-of-its-generation",
      wrote === generation || wrote === held.generation,
      () => `${token} was written by ${wrote} through ${generation}`,
    );
    // A restart moves a lease to a later generation without a new acquire.
    if (thread !== null) thread.latestLeased = Math.max(thread.latestLeased, held.generation);
    // An acknowledgement that comes after the purge of its write promises nothing.
    const present = truth.isPresent(token);
    if (held.owner !== null && truth.staysBehind(held.owner, held.instance.engine)) {
      findings.excepted("acknowledged-writes-stay", "home lost", () => `${token} of ${held.owner}`);
      return;
    }
    if (present || !truth.purgedTokens.has(token)) thread?.acknowledged.set(token, scheduler.now);
  }

  #checkGet(instance: Instance, fleet: Fleet): void {
    for (const held of this.#simulation.truth.leases) {
      if (held.instance !== instance || !this.#simulation.truth.isUsable(held)) continue;
      const found = fleet.get(held.sandboxId);
      this.#simulation.findings.check(
        "get-shows-only-held",
        found !== undefined && found.generation === held.generation,
        () => `${instance.name} holds ${held.sandboxId} ${held.generation}, get shows ${found?.generation}`,
      );
    }
  }

  /** Whether an acquire must be served from memory: held here, renewed lately, no doubt, no special request. */
  #isHot(instance: Instance, owner: string | null, wish: AcquireWish): boolean {
    const { truth, scheduler, settings } = this.#simulation;
    if (owner === null || wish.ttlMs !== null || (wish.blueprint ?? null) !== null || instance.closing) return false;
    const { beatConfirmedSentAt: beatAt, host } = instance;
    const trustedMs = (settings.sessionLifetimeMs / 2) * (1 - DRIFT_MARGIN);
    if (scheduler.now - beatAt > trustedMs || host.steppedAt >= beatAt) return false;
    const isAgeKnown = settings.maxLifetimeMs === 0 || truth.isClockSteady;
    if (!isAgeKnown || instance.sightBrokenAt > scheduler.now - settings.sessionLifetimeMs) return false;
    for (const held of truth.leases) {
      if (held.instance !== instance || held.owner !== owner || !truth.isUsable(held)) continue;
      const record = truth.tables.record(held.sandboxId);
      const ends = settings.maxLifetimeMs === 0 ? Number.POSITIVE_INFINITY : settings.maxLifetimeMs - 5_000;
      const madeAt = record === null ? 0 : (truth.objectOf(record)?.landedAt ?? 0);
      if (record !== null && truth.awakeMs(Math.min(madeAt, truth.fromStoreClock(record.createdAt))) < ends)
        return true;
    }
    return false;
  }

  #checkHot(asked: Asked, atOnce: boolean): void {
    this.#simulation.findings.check("hot-path-without-io", atOnce, () => `${asked.owner} at ${asked.instance.name}`);
  }

  #ask(
    kind: "acquire" | "destroy" | "release" | "close",
    instance: Instance,
    owner: string | null,
    timeoutMs: number,
    blueprint: string | null = null,
  ): Asked {
    const asked: Asked = {
      ...{ instance, owner, timeoutMs, blueprint },
      at: this.#simulation.scheduler.now,
      pausedMs: instance.process.pausedMs,
    };
    const joined = { ...asked, since: sinceOf(this.#pending.keys(), asked) };
    this.#pending.set(joined, kind);
    if (kind === "acquire") instance.waitingAcquires += 1;
    return joined;
  }

  #settled(asked: Asked): void {
    this.#pending.delete(asked);
    this.#stopWaiting(asked.instance);
    this.#simulation.leaseChecks.acquireSettled(asked);
  }

  #stopWaiting(instance: Instance): void {
    instance.waitingAcquires -= 1;
    instance.waitedAt = this.#simulation.scheduler.now;
  }

  #answered(asked: Asked, kind: "destroy" | "release" | "close"): void {
    this.#pending.delete(asked);
    this.#simulation.leaseChecks.answered(kind, asked);
  }
}
