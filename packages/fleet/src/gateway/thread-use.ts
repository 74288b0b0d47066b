/**
 * Using a thread's sandbox for the length of one request: a lease is taken, used and given back, whatever happens.
 *
 * Invariants
 * - A lease of this file ends with the work it was taken for: on success, on failure and when the caller goes away.
 * - Asking about commands, terminals or ports of a thread without a sandbox makes none: there is nothing to ask about.
 */

import { GATEWAY_HEADERS, parseThreadId, type Sandbox, type SandboxSummary, SandlotError } from "@sandlot/contract";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { Fleet, Lease } from "../fleet.ts";
import type { ThreadKey } from "./thread-key.ts";

export type { ThreadKey } from "./thread-key.ts";

import { userOf } from "./guards/caller.ts";
import { TrackedLeases } from "./tracked-leases.ts";

type Use<T> = (sandbox: Sandbox, lease: Lease, signal: AbortSignal) => Promise<T>;

export class ThreadUse {
  readonly #fleet: Fleet;
  readonly #leases = new TrackedLeases();

  constructor(fleet: Fleet) {
    this.#fleet = fleet;
  }

  /** Finds or makes the thread's sandbox. */
  async with<T>(request: FastifyRequest, reply: FastifyReply, use: Use<T>): Promise<T> {
    const signal = goneSignal(reply);
    const acquired = this.#fleet.acquire({ ...threadOf(request), purpose: purposeOf(request), signal });
    const lease = this.#leases.track(await acquired);
    try {
      reply.header(GATEWAY_HEADERS.generation, lease.generation);
      return await use(lease.sandbox, lease, signal);
    } finally {
      await lease.release();
    }
  }

  /** Uses the thread's sandbox if it has one; `otherwise` answers when it has none. */
  async withExisting<T>(request: FastifyRequest, reply: FastifyReply, use: Use<T>, otherwise: () => T): Promise<T> {
    const summary = await this.find(threadOf(request));
    if (summary === null || summary.state === "stopping") return otherwise();
    return this.with(request, reply, use);
  }

  async acquire({ user, thread }: ThreadKey, purpose: string, signal?: AbortSignal): Promise<Lease> {
    const lease = await this.#fleet.acquire({ user, thread, purpose, ...(signal === undefined ? {} : { signal }) });
    return this.#leases.track(lease);
  }

  /** Resolves when no request holds a lease any more. */
  idle(): Promise<void> {
    return this.#leases.none();
  }

  find(key: ThreadKey): Promise<SandboxSummary | null> {
    return this.#fleet.find(key);
  }
}

export function threadOf(request: FastifyRequest): ThreadKey {
  const { thread } = request.params as { thread?: unknown };
  return { user: userOf(request), thread: parseThreadId(thread) };
}

export function purposeOf(request: FastifyRequest): string {
  return `gateway: ${request.route.config.purpose ?? "request"}`;
}

/** Fires when the caller is gone before it was answered. */
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
