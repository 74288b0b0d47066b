/**
 * Using a thread's sandbox for the length of one request: a lease is taken, used and given back, whatever happens. A lease that was
 * given back is kept for the thread's next request (`thread-leases.ts`).
 *
 * Invariants
 * - A lease of this file ends with the work it was taken for: on success, on failure and when the caller goes away.
 * - A key gets no sandbox of a blueprint that it was not granted, whether it names one or not.
 * - Through a link no thread is made, also when it is purged at the same time.
 * - Asking about commands, terminals or ports of a thread without a sandbox makes none: there is nothing to ask about.
 */

import {
  GATEWAY_HEADERS,
  isSandlotError,
  type LossReason,
  parseThreadId,
  type Sandbox,
  type SandboxSummary,
  SandlotError,
  type ThreadSummary,
} from "@sandlot/contract";
import type { FastifyReply, FastifyRequest } from "fastify";
import { DEFAULT_BLUEPRINT } from "../config/defaults.ts";
import type { GatewaySettings } from "../config/gateway-settings.ts";
import type { AcquireRequest, DestroyOptions, DestroyOutcome, Fleet, Lease, ResetHomeOptions } from "../fleet.ts";
import { sleep } from "../world/waiting.ts";
import type { World } from "../world/world.ts";
import type { ThreadKey } from "./thread-key.ts";

export type { ThreadKey } from "./thread-key.ts";

import { checkBlueprint, userOf } from "./guards/caller.ts";
import { ThreadLeases } from "./thread-leases.ts";

/** One sandbox of a thread, and no later one. */
export interface OneSandbox {
  readonly sandboxId: string;
  readonly generation: number;
}

type Use<T> = (sandbox: Sandbox, lease: Lease, signal: AbortSignal) => Promise<T>;

/** How late another gateway's release may reach the store. */
const LATE_MS = 200;

export class ThreadUse {
  readonly #fleet: Fleet;
  readonly #keepLeasesMs: number;
  readonly #leases: ThreadLeases;
  readonly #world: World;

  constructor(fleet: Fleet, world: World, { keepLeasesMs }: Pick<GatewaySettings, "keepLeasesMs">) {
    this.#keepLeasesMs = keepLeasesMs;
    this.#fleet = fleet;
    this.#leases = new ThreadLeases(fleet.events, world, keepLeasesMs);
    this.#world = world;
  }

  /** Finds or creates the thread's sandbox. */
  async with<T>(request: FastifyRequest, reply: FastifyReply, use: Use<T>): Promise<T> {
    const signal = goneSignal(reply);
    const lease = await this.acquire(threadOf(request), purposeOf(request), signal);
    try {
      reply.header(GATEWAY_HEADERS.generation, lease.generation);
      return await use(lease.sandbox, lease, signal);
    } finally {
      await this.release(lease);
    }
  }

  /** Uses the thread's sandbox if it has one; otherwise returns `otherwise()`. */
  async withExisting<T>(request: FastifyRequest, reply: FastifyReply, use: Use<T>, otherwise: () => T): Promise<T> {
    const summary = await this.find(threadOf(request));
    if (summary === null || summary.state === "stopping") return otherwise();
    return this.with(request, reply, use);
  }

  /** A lease until it is given to `release`. */
  async acquire(
    key: ThreadKey,
    purpose: string,
    signal?: AbortSignal,
    { existing = false }: Pick<AcquireRequest, "existing"> = {},
  ): Promise<Lease> {
    const order = { purpose, existing, ...(signal === undefined ? {} : { signal }) };
    const lease = await this.acquireAs(key, order);
    this.#leases.began(key, lease);
    return lease;
  }

  /** A lease that its caller releases by itself, and for which a stopping gateway does not wait. */
  async acquireAs(key: ThreadKey, order: Omit<AcquireRequest, "user" | "thread">): Promise<Lease> {
    try {
      return await acquireGranted(this.#fleet, key, order);
    } catch (error) {
      const full = isSandlotError(error, "capacity_exhausted");
      // What is kept here takes room, and keeps a sandbox past its lifetime from being replaced.
      const inTheWay = full || isSandlotError(error, "sandbox_expired");
      if (!inTheWay || !(await this.#leases.releaseKept(full ? undefined : key))) throw error;
      // The first try has seeded the thread.
      const { from: _, ...again } = order;
      return await acquireGranted(this.#fleet, key, again);
    }
  }

  release(lease: Lease): Promise<void> {
    return this.#leases.release(lease);
  }

  /**
   * Ends the thread's sandbox. A lease that a gateway keeps for the thread's next request does not count as use: where
   * another gateway may keep one, this waits for its end, and tries once more. The signal ends that wait.
   */
  destroy(key: ThreadKey, options: DestroyOptions, signal?: AbortSignal): Promise<DestroyOutcome> {
    return this.ending(key, () => this.#fleet.destroy(key, options), signal);
  }

  /** Ends the thread's sandbox in the same way, and empties its home. */
  resetHome(key: ThreadKey, options: ResetHomeOptions, signal?: AbortSignal): Promise<DestroyOutcome> {
    return this.ending(key, () => this.#fleet.resetHome(key, options), signal);
  }

  /** Whatever ends the thread's sandbox: a lease that a gateway keeps is not in its way. */
  ending<T>(key: ThreadKey, end: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    return this.#leases.withoutKept(key, async () => {
      try {
        return await end();
      } catch (error) {
        if (!isSandlotError(error, "sandbox_in_use")) throw error;
        await sleep(this.#world, this.#keepLeasesMs + LATE_MS, signal);
        return end();
      }
    });
  }

  /** Refuses a thread that has neither a sandbox nor files, instead of creating it. */
  async acquireExisting(key: ThreadKey, purpose: string, signal?: AbortSignal, only?: OneSandbox): Promise<Lease> {
    if (only !== undefined) await this.#requirePresent(key, only);
    const lease = await this.acquire(key, purpose, signal, { existing: true });
    if (only === undefined || lease.sandbox.id === only.sandboxId) return lease;
    await this.release(lease);
    throw lostSandbox(only, "superseded");
  }

  /** A lease on this sandbox and on no later one of the thread, which its caller releases by itself. */
  async acquireOnly(
    key: ThreadKey,
    only: OneSandbox,
    order: Omit<AcquireRequest, "user" | "thread" | "existing">,
  ): Promise<Lease> {
    await this.#requirePresent(key, only);
    const lease = await this.acquireAs(key, { ...order, existing: true });
    if (lease.sandbox.id === only.sandboxId) return lease;
    await lease.release();
    throw lostSandbox(only, "superseded");
  }

  /** Before an acquire, which would make the thread's next sandbox. One that is held here is present. */
  async #requirePresent(key: ThreadKey, only: OneSandbox): Promise<void> {
    if (this.#fleet.get(only.sandboxId) !== undefined) return;
    const found = await this.find(key);
    if (found?.sandboxId === only.sandboxId && found.state !== "stopping") return;
    throw lostSandbox(only, found === null || found.sandboxId === only.sandboxId ? "destroyed" : "superseded");
  }

  /** Refuses a thread that has neither, also one that lives elsewhere: only there its files are known. */
  async existing({ user, thread }: ThreadKey): Promise<ThreadSummary> {
    await this.#fleet.locate({ user, thread });
    const found = await this.#fleet.findThread({ user, thread });
    if (found === null) throw new SandlotError("thread_not_found", { thread });
    return found;
  }

  /** Keeps no lease from here on. Resolves when no request holds one any more. */
  close(): Promise<void> {
    return this.#leases.close();
  }

  find(key: ThreadKey): Promise<SandboxSummary | null> {
    return this.#fleet.find(key);
  }
}

export function lostSandbox({ sandboxId, generation }: OneSandbox, reason: LossReason): SandlotError {
  return new SandlotError("sandbox_lost", { sandboxId, generation, reason });
}

/** Takes a lease if the caller's key was granted the blueprint of the thread's sandbox, present or new. */
async function acquireGranted(
  fleet: Fleet,
  { user, thread, granted = null }: ThreadKey,
  order: Omit<AcquireRequest, "user" | "thread">,
): Promise<Lease> {
  if (order.blueprint !== undefined) checkBlueprint(granted, order.blueprint);
  // If a new sandbox would be allowed, the look-up first is skipped: the result is checked below.
  else if (granted?.includes(DEFAULT_BLUEPRINT) === false) await checkThread(fleet, { user, thread, granted });
  const lease = await fleet.acquire({ ...order, user, thread });
  try {
    checkBlueprint(granted, lease.blueprint);
    return lease;
  } catch (error) {
    await lease.release();
    throw error;
  }
}

/** Refuses a thread if the caller's key was not granted the blueprint of its sandbox, present or new. */
export async function checkThread(fleet: Fleet, { user, thread, granted = null }: ThreadKey): Promise<void> {
  if (granted === null) return;
  checkBlueprint(granted, (await fleet.find({ user, thread }))?.blueprint ?? DEFAULT_BLUEPRINT);
}

export function threadOf(request: FastifyRequest): ThreadKey {
  const { thread } = request.params as { thread?: unknown };
  return { user: userOf(request), thread: parseThreadId(thread), granted: request.caller?.blueprints ?? null };
}

export function purposeOf(request: FastifyRequest): string {
  return `gateway: ${request.route.config.purpose ?? "request"}`;
}

/** Fires when the caller disconnects before its response. */
export function goneSignal(reply: FastifyReply): AbortSignal {
  const controller = new AbortController();
  const { raw } = reply;
  raw.once("close", () => {
    if (!raw.writableFinished) controller.abort(new CallerGone());
  });
  if (raw.destroyed) controller.abort(new CallerGone());
  return controller.signal;
}

export class CallerGone extends Error {
  override readonly name = "CallerGone";
  constructor() {
    super("the caller has gone away");
  }
}

export function execNotFound(execId: string): never {
  throw new SandlotError("exec_not_found", { execId });
}
