/**
 * Connections that are opened before their use. A waiting blank has connections before it is bound. Binding also holds
 * it in the same step, so the next attach finds its connection. This only saves time: a missing connection is opened
 * when it is needed.
 *
 * Invariant: a connection belongs to this object until a caller takes it, and is closed when none does.
 */

import type { Credentials } from "../backend/backend.ts";
import type { Timer, World } from "../world/world.ts";
import { type ConnectionPool, connectAhead, type DaemonAttachment, type DaemonTarget } from "./index.ts";

interface Bound {
  readonly attachment: DaemonAttachment;
  readonly credentials: Credentials;
  readonly timer: Timer;
}

/** A binder attaches next, and waits only for the store in between. */
const TAKEN_WITHIN_MS = 10_000;

export class PreparedConnections {
  readonly #world: World;
  readonly #waiting = new Map<string, ConnectionPool>();
  readonly #bound = new Map<string, Bound>();
  #closed = false;

  constructor(world: World) {
    this.#world = world;
  }

  /** Connects to a blank. A failure is left for the next caller to find. */
  async prepare(name: string, target: DaemonTarget): Promise<void> {
    this.#forgetEnded();
    const connections = await connectAhead(target).catch(() => null);
    if (connections === null) return;
    if (this.#closed) connections.destroy();
    else this.#waiting.set(name, connections);
  }

  /** The connections to a blank, for its binder. */
  take(name: string): ConnectionPool | undefined {
    const connections = this.#waiting.get(name);
    this.#waiting.delete(name);
    return connections;
  }

  /** Keeps a bound attachment for the attach that follows. */
  bound(name: string, { generation, token }: Credentials, attachment: DaemonAttachment): void {
    this.#letGo(name);
    const timer = this.#world.timer(TAKEN_WITHIN_MS, () => this.#letGo(name), { background: true });
    this.#bound.set(name, { attachment, credentials: { generation, token }, timer });
    if (this.#closed) this.#letGo(name);
  }

  /** The attachment that was bound with these credentials, if it is still open. */
  claim(name: string, { generation, token }: Credentials): DaemonAttachment | undefined {
    const bound = this.#bound.get(name);
    const { credentials } = bound ?? {};
    if (bound === undefined || credentials?.generation !== generation || credentials.token !== token) return undefined;
    if (!bound.attachment.isOpen) {
      this.#letGo(name);
      return undefined;
    }
    bound.timer.cancel();
    this.#bound.delete(name);
    return bound.attachment;
  }

  drop(name: string): void {
    this.take(name)?.destroy();
    this.#letGo(name);
  }

  close(): void {
    this.#closed = true;
    for (const name of new Set([...this.#waiting.keys(), ...this.#bound.keys()])) this.drop(name);
  }

  #letGo(name: string): void {
    const bound = this.#bound.get(name);
    this.#bound.delete(name);
    bound?.timer.cancel();
    void bound?.attachment.close();
  }

  /** Drops blanks that another process has ended. */
  #forgetEnded(): void {
    for (const [name, connections] of this.#waiting) if (connections.isEmpty) this.#waiting.delete(name);
  }
}
