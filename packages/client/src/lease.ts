/**
 * A lease that a gateway gave: kept alive by renewing it, until it is released.
 *
 * Invariants
 * - It is renewed three times in its lifetime. One failed renewal is no reason to worry; a lease that the gateway no
 *   longer knows is lost, and says so once.
 * - A release ends this lease and no other, once, and never rejects: a lease that could not be released ends by not
 *   being renewed.
 * - `sandbox` is an object of one generation. When the gateway answers from a newer one, the lease is renewed before
 *   that answer is handed on: `generation` and `recovery` then say what happened, `sandbox` is another object, and the
 *   old one answers `stale_generation`.
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
  /** What goes with the lease. */
  readonly onReleased?: (() => Promise<unknown>) | null;
}

export class ClientLease implements AsyncDisposable {
  readonly id: LeaseId;
  readonly purpose: string;
  readonly acquiredAt = wallMs();
  readonly #parts: LeaseParts;
  readonly #listeners = new Set<(loss: Loss) => void>();
  /** Open ones that `connect` gave. */
  readonly #connections = new Set<Duplex>();
  #sandboxId: SandboxId;
  #generation: Generation;
  #recovery: Recovery;
  #sandbox: RemoteSandbox | null = null;
  #released: Promise<void> | null = null;
  #renewal: Promise<void> | null = null;
  /** Why every use is refused from now on. */
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

  /** What `console.log` shows: whose right to what, and nothing of how it is kept. */
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
   * What became of the thread's state since its last use. `kind` is `same` (the sandbox of before goes on), `restored`
   * (a new sandbox with the old workspace) or `empty` (a new one with an empty workspace).
   */
  get recovery(): Recovery {
    return this.#recovery;
  }

  get sandbox(): Sandbox {
    if (this.#sandbox?.generation !== this.#generation) this.#sandbox = this.#sandboxOf(this.#generation);
    return this.#sandbox;
  }

  /**
   * A raw connection to what listens on a port of the sandbox, as the library's leases have it; in Node only. It ends with
   * the lease, and after a day. For HTTP, `linkPort` of the client has an address.
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

  /** Called when the lease or its sandbox was lost. Returns how to stop listening. */
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

  /** The sandbox was made anew. Renewing puts the lease on it, and tells what became of it. */
  async #saw(generation: Generation): Promise<void> {
    if (this.#released !== null || this.#lost !== null) return;
    await this.#renew();
    // A gateway that did not give this lease cannot tell; a crash leaves the workspace.
    if (this.#lost === null && generation > this.#generation)
      this.#moved({ generation, sandboxId: this.#sandboxId, recovery: RESTORED });
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

  /** Who asks while one is under way shares it. Never rejects. */
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
      const call = { method: "PUT", path, repeatable: true } as const;
      const { present } = await this.#parts.transport.json(leaseRenewalSchema, call);
      if (present !== undefined) this.#moved(present);
    } catch (error) {
      if (this.#released === null) this.#judge(error);
    }
  }

  /** Only what the gateway says of this lease ends it; that it could not be asked does not. */
  #judge(error: unknown): void {
    if (isSandlotError(error, "lease_not_found")) {
      this.#lost = error;
      this.#tell({ reason: "expired", generation: this.#generation });
    } else if (isSandlotError(error, "sandbox_lost") && error.details.reason === "destroyed") {
      // What was destroyed on purpose stays destroyed. After anything else the next renewal finds the next generation.
      this.#lost = error;
      this.#tell({ reason: "destroyed", generation: this.#generation });
    }
  }

  async #release(): Promise<void> {
    for (const connection of this.#connections) connection.destroy();
    const path = `/v1/leases/${encodeURIComponent(this.id)}`;
    // A gateway that cannot be reached lets the lease expire.
    await this.#parts.transport.done({ method: "DELETE", path, repeatable: true }).catch(() => undefined);
    await this.#parts.onReleased?.().catch(() => undefined);
  }

  /** A listener that throws disturbs neither the lease nor the other listeners. */
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
