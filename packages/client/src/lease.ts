/**
 * A lease from a gateway: renewed until it is released.
 *
 * Invariants
 * - It is renewed three times in its lifetime. One failed renewal is harmless; a lease that the gateway no longer knows
 *   is lost, and reports this once.
 * - A release ends only this lease, once, and never rejects: a lease that could not be released expires.
 * - `sandbox` is an object of one generation. When a response comes from a newer one, the lease is renewed before that
 *   response is passed on: `generation` and `recovery` then describe the change, `sandbox` is another object, and the
 *   old one fails with `stale_generation`.
 */

import type { Duplex } from "node:stream";
import {
  type Generation,
  isSandlotError,
  type LeaseId,
  type LeaseRenewal,
  type LeaseReply,
  LINK_TTL_MAX_MS,
  type LossReason,
  leaseRenewalSchema,
  portLinkSchema,
  RESTORED,
  type Recovery,
  type Sandbox,
  type SandboxId,
  SandlotError,
} from "@sandlot/contract";
import { RemoteSandbox } from "./remote/remote-sandbox.ts";
import { SHOWN } from "./shown.ts";
import { later, wallMs } from "./wire/clock.ts";
import type { Transport } from "./wire/transport.ts";
import { openTunnel } from "./wire/tunnel.ts";

type Loss = { readonly reason: LossReason; readonly generation: Generation };

export interface LeaseParts {
  readonly transport: Transport;
  readonly thread: string;
  readonly purpose: string;
  readonly ttlMs: number;
  readonly reply: LeaseReply;
  /** Called with the release. */
  readonly onReleased?: (() => Promise<unknown>) | null;
}

export class ClientLease implements AsyncDisposable {
  readonly id: LeaseId;
  readonly purpose: string;
  readonly acquiredAt = wallMs();
  readonly #parts: LeaseParts;
  readonly #listeners = new Set<(loss: Loss) => void>();
  /** Open connections from `connect`. */
  readonly #connections = new Set<Duplex>();
  #sandboxId: SandboxId;
  #generation: Generation;
  #recovery: Recovery;
  #sandbox: RemoteSandbox | null = null;
  #released: Promise<void> | null = null;
  #renewal: Promise<void> | null = null;
  /** Why every further use is refused. */
  #lost: SandlotError | null = null;
  #stopRenewing: () => void = () => undefined;

  constructor(parts: LeaseParts) {
    const { reply, purpose } = parts;
    this.#parts = parts;
    this.id = reply.leaseId as LeaseId;
    this.purpose = purpose;
    this.#recovery = reply.recovery;
    this.#sandboxId = reply.sandboxId as SandboxId;
    this.#generation = reply.generation as Generation;
    this.#renewLater();
  }

  /** What `console.log` shows: the lease's thread and sandbox, without internals. */
  [SHOWN](): string {
    const { thread, transport } = this.#parts;
    const whose = `${transport.user === null ? "" : `user: '${transport.user}', `}thread: '${thread}'`;
    const what = `sandbox: '${this.#sandboxId}', recovery: '${this.#recovery.kind}'`;
    return `Lease { id: '${this.id}', purpose: ${JSON.stringify(this.purpose)}, ${whose}, ${what} }`;
  }

  get generation(): Generation {
    return this.#generation;
  }

  /**
   * What happened to the thread's state since its last use. `kind` is `same` (the previous sandbox goes on), `restored`
   * (a new sandbox with the old workspace) or `empty` (a new one with an empty workspace). With `restored`, `checkpoint`
   * is the thread's newest one, and says whether files have changed since.
   */
  get recovery(): Recovery {
    return this.#recovery;
  }

  get sandbox(): Sandbox {
    if (this.#sandbox?.generation !== this.#generation) this.#sandbox = this.#sandboxOf(this.#generation);
    return this.#sandbox;
  }

  /**
   * A raw connection to a port of the sandbox, as with the library's leases; in Node only. It ends with the lease, and
   * after a day. For HTTP, the client's `linkPort` returns a URL.
   */
  async connect(port: number, options: { readonly signal?: AbortSignal } = {}): Promise<Duplex> {
    this.#check(this.#generation);
    const { transport, thread } = this.#parts;
    const { signal } = options;
    const path = `/v1/threads/${encodeURIComponent(thread)}/ports/${port}/links`;
    const json = { ttlMs: LINK_TTL_MAX_MS };
    const call = { method: "POST", path, json, repeatable: true, signal } as const;
    const connection = await openTunnel(await transport.json(portLinkSchema, call), signal);
    try {
      this.#check(this.#generation);
    } catch (error) {
      connection.destroy();
      throw error;
    }
    this.#connections.add(connection);
    connection.once("close", () => this.#connections.delete(connection));
    return connection;
  }

  release(): Promise<void> {
    this.#stopRenewing();
    this.#released ??= this.#release();
    return this.#released;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.release();
  }

  /** Called when the lease or its sandbox was lost. Returns a cancel function. */
  onLost(listener: (loss: Loss) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #sandboxOf(generation: Generation): RemoteSandbox {
    const { transport, thread } = this.#parts;
    return new RemoteSandbox(this.#sandboxId, generation, {
      transport: transport.noticing((seen) => (seen > this.#generation ? this.#saw(seen as Generation) : null)),
      thread,
      check: () => this.#check(generation),
    });
  }

  #check(generation: Generation): void {
    if (this.#released !== null) throw new SandlotError("lease_released", { leaseId: this.id });
    if (this.#lost !== null) throw this.#lost;
    if (generation === this.#generation) return;
    throw new SandlotError("stale_generation", { sandboxId: this.#sandboxId, generation, current: this.#generation });
  }

  /** The sandbox was recreated. A renewal moves the lease to it, and reports what happened. */
  async #saw(generation: Generation): Promise<void> {
    if (this.#released !== null || this.#lost !== null) return;
    await this.#renew();
    // A gateway that did not give this lease does not know; a crash leaves the workspace.
    if (this.#lost === null && generation > this.#generation)
      this.#moved({ generation, sandboxId: this.#sandboxId, recovery: workspaceLeft() });
  }

  #moved({ generation, sandboxId, recovery }: NonNullable<LeaseRenewal["present"]>): void {
    if (generation <= this.#generation) return;
    const lost = this.#generation;
    this.#generation = generation as Generation;
    this.#sandboxId = sandboxId as SandboxId;
    this.#recovery = recovery;
    this.#tell({ reason: "crashed", generation: lost });
  }

  #renewLater(): void {
    this.#stopRenewing();
    if (this.#released !== null || this.#lost !== null) return;
    this.#stopRenewing = later(this.#parts.ttlMs / 3, () => void this.#renew());
  }

  /** Concurrent callers share one renewal. Never rejects. */
  #renew(): Promise<void> {
    this.#renewal ??= this.#renewNow().finally(() => {
      this.#renewal = null;
      this.#renewLater();
    });
    return this.#renewal;
  }

  async #renewNow(): Promise<void> {
    const path = `/v1/leases/${encodeURIComponent(this.id)}`;
    try {
      // The gateway that gave the lease knows what became of a sandbox that crashed.
      const call = { method: "PUT", path, thread: this.#parts.thread, repeatable: true } as const;
      const { present } = await this.#parts.transport.json(leaseRenewalSchema, call);
      if (present !== undefined) this.#moved(present);
    } catch (error) {
      if (this.#released === null) this.#judge(error);
    }
  }

  /** Only the gateway's response about this lease ends it; an unreachable gateway does not. */
  #judge(error: unknown): void {
    if (isSandlotError(error, "lease_not_found")) {
      this.#lost = error;
      this.#tell({ reason: "expired", generation: this.#generation });
    } else if (isSandlotError(error, "sandbox_lost") && error.details.reason === "destroyed") {
      // A destroyed sandbox stays destroyed. After any other loss the next renewal finds the next generation.
      this.#lost = error;
      this.#tell({ reason: "destroyed", generation: this.#generation });
    }
  }

  async #release(): Promise<void> {
    for (const connection of this.#connections) connection.destroy();
    const path = `/v1/leases/${encodeURIComponent(this.id)}`;
    // If the gateway is unreachable, the lease expires.
    const { transport, thread } = this.#parts;
    await transport.done({ method: "DELETE", path, thread, repeatable: true }).catch(() => undefined);
    await this.#parts.onReleased?.().catch(() => undefined);
  }

  /** A listener that throws affects neither the lease nor the other listeners. */
  #tell(loss: Loss): void {
    for (const listener of this.#listeners) {
      try {
        listener(loss);
      } catch (error) {
        queueMicrotask(() => {
          throw error;
        });
      }
    }
  }
}

/** Whether the home was kept depends on the blueprint. Made when it is used: programs that only run commands load less. */
function workspaceLeft(): Recovery {
  return { ...RESTORED, survived: ["workspace"] };
}
