/**
 * Gives each blueprint with a setup its environment: finds it, or builds it once.
 *
 *   ensure ─▶ ok? ─▶ tree                    failed lately? ─▶ the same error
 *          └▶ lock ─▶ look again ─▶ build in a draft ─▶ rename ─▶ tree
 *
 * Invariants
 * - One build of a hash at a time, over all processes of the home. The others wait for its end, each with its own signal.
 * - A build goes on when its callers give up; the next caller finds it under way or done. It ends with this fleet.
 * - A failure is kept, with its log, and answers later callers until `retryAfterMs`, a changed setup, or a rebuild.
 */

import { SandlotError } from "@sandlot/contract";
import type { NamedBlueprint } from "../backend/blueprint.ts";
import type { World } from "../world/world.ts";
import { type Basis, type EnvironmentPlan, FileSums, planOf } from "./environment-hash.ts";
import { type EnvironmentEntry, type EnvironmentFacts, EnvironmentStore, type Use } from "./environment-store.ts";

/** Runs a setup with `tree` at /opt/env. Resolves with facts, rejects with `environment_failed`. */
export type Builder = (
  plan: EnvironmentPlan,
  draft: { readonly directory: string; readonly tree: string },
  signal: AbortSignal,
) => Promise<Omit<EnvironmentFacts, "builtAt" | "buildMs">>;

export interface EnvironmentsOptions {
  readonly home: string;
  readonly world: World;
  readonly basis: Basis;
  readonly build: Builder;
  readonly limits: EnvironmentLimits;
}

/** The section `environments` of the configuration. */
export interface EnvironmentLimits {
  readonly retryAfterMs: number;
  readonly maxAgeDays: number;
  readonly maxTotalBytes: number;
}

/** The sandboxes that an engine has, by `<sandboxId>-<generation>` as they were made. */
export interface Living {
  readonly engine: string;
  readonly sandboxes: ReadonlySet<string>;
}

const DAY_MS = 86_400_000;
const LOOK_AGAIN_MS = 250;
/** Longer than any engine takes to make a sandbox. */
const MAKING_MS = 600_000;

export class Environments {
  readonly store: EnvironmentStore;
  readonly #options: EnvironmentsOptions;
  readonly #limits: EnvironmentLimits;
  readonly #sums = new FileSums();
  readonly #building = new Map<string, Promise<void>>();
  readonly #ending = new AbortController();

  constructor(options: EnvironmentsOptions) {
    this.#options = options;
    this.#limits = options.limits;
    this.store = new EnvironmentStore(options.home, options.world);
    this.store.make();
  }

  plan(named: NamedBlueprint, signal: AbortSignal): Promise<EnvironmentPlan | null> {
    return planOf(named, this.#options.basis, this.#sums, signal);
  }

  /** The environment, built where it is missing, with the use of this sandbox noted. `null`: no setup. */
  async use(
    named: NamedBlueprint,
    sandbox: string,
    where: Omit<Use, "id">,
    signal: AbortSignal,
  ): Promise<{ tree: string; facts: EnvironmentFacts } | null> {
    const plan = await this.plan(named, signal);
    if (plan === null) return null;
    for (;;) {
      this.store.addUse(sandbox, { ...where, id: plan.id });
      const facts = this.store.facts(plan.id);
      if (facts !== null) return { tree: this.store.tree(plan.id), facts };
      this.store.dropUse(sandbox);
      await this.ensure(plan, signal);
    }
  }

  async ensure(plan: EnvironmentPlan, signal: AbortSignal): Promise<void> {
    if (this.store.facts(plan.id) !== null) return;
    const building = this.#building.get(plan.id) ?? this.#begin(plan);
    await abortable(building, signal);
  }

  /** Builds it although it failed lately. */
  async rebuild(plan: EnvironmentPlan, signal: AbortSignal): Promise<void> {
    await abortable(this.#building.get(plan.id) ?? this.#begin(plan, true), signal);
  }

  async close(): Promise<void> {
    this.#ending.abort(
      new SandlotError("create_failed", { backend: "environments", problem: "the fleet ended during a build" }),
    );
    await Promise.allSettled(this.#building.values());
  }

  entries(): readonly EnvironmentEntry[] {
    return this.store.entries();
  }

  /** Throws `environment_in_use` where a sandbox has it mounted. */
  async remove(id: string, living: Living): Promise<void> {
    this.forget(living);
    const lock = await this.#lock(id, this.#ending.signal);
    try {
      if (await this.store.remove(id)) return;
      const count = this.entries().find((entry) => entry.id === id)?.uses.length ?? 1;
      throw new SandlotError("environment_in_use", { environment: id, count });
    } finally {
      lock.release();
    }
  }

  /**
   * Drops the uses of sandboxes that are gone. One that is being made is not in the engine's list yet. What another
   * engine has is not known here: its uses go by age.
   */
  forget({ engine, sandboxes }: Living): void {
    const nowMs = this.#options.world.wallMs();
    for (const use of this.store.uses()) {
      const graceMs = use.engine === engine ? MAKING_MS : this.#limits.maxAgeDays * DAY_MS;
      if (!sandboxes.has(use.sandbox) && nowMs - use.at >= graceMs) this.store.dropUse(use.sandbox);
    }
  }

  /** Removes what is old or too much, never what is mounted or in `keep`. */
  async prune(living: Living, keep: ReadonlySet<string>): Promise<readonly string[]> {
    this.forget(living);
    await this.store.removeAbandoned();
    const nowMs = this.#options.world.wallMs();
    const entries = [...this.entries()].sort((a, b) => a.usedAt - b.usedAt);
    let totalBytes = entries.reduce((sum, { facts }) => sum + (facts?.sizeBytes ?? 0), 0);
    const removed: string[] = [];
    for (const { id, facts, usedAt, uses } of entries) {
      const isDue = nowMs - usedAt > this.#limits.maxAgeDays * DAY_MS || totalBytes > this.#limits.maxTotalBytes;
      if (!isDue || keep.has(id) || uses.length > 0) continue;
      const lock = this.store.tryLock(id);
      if (lock === null) continue;
      try {
        if (!(await this.store.remove(id))) continue;
        removed.push(id);
        totalBytes -= facts?.sizeBytes ?? 0;
      } finally {
        lock.release();
      }
    }
    return removed;
  }

  #begin(plan: EnvironmentPlan, evenIfFailed = false): Promise<void> {
    const building = this.#buildOnce(plan, evenIfFailed).finally(() => this.#building.delete(plan.id));
    // Its callers may all have given up.
    building.catch(() => {});
    this.#building.set(plan.id, building);
    return building;
  }

  async #buildOnce(plan: EnvironmentPlan, evenIfFailed: boolean): Promise<void> {
    const { world } = this.#options;
    if (!evenIfFailed) this.#throwIfFailed(plan.id);
    const began = world.wallMs();
    const lock = await this.#lock(plan.id, this.#ending.signal);
    try {
      this.store.undoRemoval(plan.id);
      if (this.store.facts(plan.id) !== null) return;
      // Another process may have failed while this one waited.
      const failure = this.store.failure(plan.id);
      if (!evenIfFailed || (failure !== null && failure.at > began)) this.#throwIfFailed(plan.id);
      await this.#build(plan);
    } finally {
      lock.release();
    }
  }

  #throwIfFailed(id: string): void {
    const failure = this.store.failure(id);
    if (failure === null) return;
    const ageMs = this.#options.world.wallMs() - failure.at;
    // Negative where the clock was set back: the failure may be of any age.
    if (ageMs < 0 || ageMs >= this.#limits.retryAfterMs) return;
    throw new SandlotError("environment_failed", { environment: id, problem: failure.problem });
  }

  async #build(plan: EnvironmentPlan): Promise<void> {
    const { world, build } = this.#options;
    const directory = this.store.draft();
    const tree = `${directory}/tree`;
    const beganMs = world.monotonicMs();
    try {
      const facts = await build(plan, { directory, tree }, this.#ending.signal);
      await this.store.commit(plan.id, directory, {
        ...facts,
        builtAt: world.wallMs(),
        buildMs: world.monotonicMs() - beganMs,
      });
    } catch (error) {
      const isOwn = error instanceof SandlotError && error.code === "environment_failed";
      // Not a failure of the setup: the engine was away, or this process ends. The next caller tries again.
      if (!isOwn) {
        await this.store.discard(directory);
        throw error;
      }
      const problem = "problem" in error.details ? String(error.details.problem) : error.message;
      await this.store.fail(plan.id, directory, { problem, at: world.wallMs() });
      throw error;
    }
  }

  async #lock(id: string, signal: AbortSignal): Promise<{ release(): void }> {
    for (;;) {
      signal.throwIfAborted();
      const lock = this.store.tryLock(id);
      if (lock !== null) return lock;
      await new Promise<void>((resolve) => this.#options.world.timer(LOOK_AGAIN_MS, resolve));
    }
  }
}

function abortable<Value>(promise: Promise<Value>, signal: AbortSignal): Promise<Value> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason);
    const abort = (): void => reject(signal.reason);
    signal.addEventListener("abort", abort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}
