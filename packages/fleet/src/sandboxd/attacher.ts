/**
 * Attaching to daemons and binding blanks, for every backend whose sandboxes have one. It needs only the address of a
 * daemon, which its credentials hold.
 *
 *   attach   held since it was bound, or connected ─▶ credentials noted ─▶ wrapped by the backend
 *   rebind   prepared connections ─▶ bound and held in one step ─▶ kept for the attach that follows
 *
 * Invariants
 * - Reaching a daemon that responds takes no request to the engine.
 * - When a daemon does not respond, the engine decides: only a sandbox that is dead there is lost.
 * - The backend's close closes all open attachments.
 */

import {
  type EngineRef,
  isSandlotError,
  type RebindExpectation,
  type Sandbox,
  type SandboxId,
  SandlotError,
} from "@sandlot/contract";
import type { Attachment, CreateSpec, Credentials, Target } from "../backend/backend.ts";
import type { Liveness, World } from "../world/world.ts";
import type { KnownCredentials } from "./credentials.ts";
import { DaemonAttachment } from "./index.ts";
import { PreparedConnections } from "./prepared-connections.ts";

export interface AttacherParts {
  readonly world: World;
  readonly credentials: KnownCredentials;
  probe(ref: EngineRef): Promise<Liveness>;
  /** Wraps the attachment for the caller. A failure closes the attachment. */
  dress(name: string, inner: Attachment): Promise<Attachment>;
  /** Whether a living daemon that did not respond may do so by now. Absent: no retry. */
  mayAnswerNow?(name: string, looks: number): Promise<boolean>;
}

/** How a backend reaches the daemon around one call, and what replaces the daemon. */
export interface Way {
  around?<T>(call: () => Promise<T>): Promise<T>;
  open?(): Promise<Attachment>;
  bind?(): Promise<void>;
  /** For a rebind: the file by which the daemon knows that the workspace has arrived. Late is `wait_timeout`. */
  readonly expect?: RebindExpectation;
}

/** The parts of a sandbox that reaching it needs. */
export interface Reached {
  readonly sandboxId: SandboxId;
  readonly generation: number;
  readonly ref: EngineRef;
}

export class Attacher {
  readonly #parts: AttacherParts;
  readonly #standby: PreparedConnections;
  readonly #attachments = new Set<Attachment>();

  constructor(parts: AttacherParts) {
    this.#parts = parts;
    this.#standby = new PreparedConnections(parts.world);
  }

  async attach(name: string, target: Target, signal: AbortSignal, way: Way = {}): Promise<Attachment> {
    const { credentials } = this.#parts;
    const open = () => way.open?.() ?? this.#open(name, target, signal);
    const inner = this.#standby.claim(name, target) ?? (await this.reach(name, target, () => onWay(way, open)));
    credentials.note(name, target);
    const attachment = await this.#parts.dress(name, inner);
    this.#attachments.add(attachment);
    void attachment.closed.then(() => this.#attachments.delete(attachment));
    return attachment;
  }

  async rebind(name: string, target: Target, from: Credentials, signal: AbortSignal, way: Way = {}): Promise<void> {
    const { credentials, world } = this.#parts;
    const bind = async () => {
      const before = credentials.target(name, target.sandboxId, from);
      const after = credentials.target(name, target.sandboxId, target);
      const options = { pool: this.#standby.take(name), expect: way.expect };
      this.#standby.bound(name, target, await DaemonAttachment.rebind(before, after, world, signal, options));
    };
    await this.reach(name, target, () => onWay(way, () => way.bind?.() ?? bind()));
    credentials.note(name, target);
  }

  /** Runs a call to a daemon. Rejects with `sandbox_lost` when the engine says that the sandbox is dead. */
  async reach<T>(name: string, target: Reached, call: () => Promise<T>): Promise<T> {
    const { probe, mayAnswerNow } = this.#parts;
    for (let looks = 0; ; looks++) {
      try {
        return await call();
      } catch (error) {
        if (!isSandlotError(error, "sandbox_unreachable")) throw error;
        const answer = await probe(target.ref);
        if (answer === "dead") throw lostError(target, error);
        if (answer === "unknown" || (await mayAnswerNow?.(name, looks)) !== true) throw error;
      }
    }
  }

  /** Prewarms connections to a blank that was just made: it will be bound soon. */
  prepare(name: string, spec: CreateSpec): Promise<void> {
    return this.#standby.prepare(name, this.#parts.credentials.target(name, spec.labels.sandboxId, spec));
  }

  /** The sandbox was destroyed. */
  drop(name: string): void {
    this.#standby.drop(name);
  }

  async close(): Promise<void> {
    this.#standby.close();
    await Promise.all([...this.#attachments].map((attachment) => attachment.close()));
  }

  #open(name: string, target: Target, signal: AbortSignal): Promise<Attachment> {
    const { credentials, world } = this.#parts;
    const daemon = credentials.target(name, target.sandboxId, target);
    return DaemonAttachment.open(daemon, world, signal, this.#standby.take(name));
  }
}

/** The same attachment with another view of its sandbox. */
export function withSandbox(inner: Attachment, sandbox: Sandbox): Attachment {
  if (sandbox === inner.sandbox) return inner;
  const { closed, connect } = inner;
  return { sandbox, closed, ...(connect && { connect: connect.bind(inner) }), close: () => inner.close() };
}

function onWay<T>({ around }: Way, call: () => Promise<T>): Promise<T> {
  return around === undefined ? call() : around(call);
}

function lostError({ sandboxId, generation }: Reached, cause: unknown): SandlotError {
  return new SandlotError("sandbox_lost", { sandboxId, generation, reason: "crashed" }, { cause });
}
