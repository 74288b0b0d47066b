/**
 * What is connected ahead of its use. To a blank that waits there are connections already when somebody binds it; and
 * whoever binds one holds it from that moment, in the same step, so that attaching next finds it done. All of it is a
 * convenience: what is not here is opened when it is needed.
 *
 * Invariant: what is here belongs to this object until it is taken, and is closed when nobody takes it.
 */

import type { Credentials } from "../backend/backend.ts";
import type { Timer, World } from "../world/world.ts";
import { type Connections, connectAhead, type DaemonAttachment, type DaemonTarget } from "./index.ts";

interface Bound {
  readonly attachment: DaemonAttachment;
  readonly credentials: Credentials;
  readonly timer: Timer;
}

/** Whoever binds attaches next, without waiting for anything but the store. */
const TAKEN_WITHIN_MS = 10_000;

export class PreparedConnections {
  readonly #world: World;
  readonly #waiting = new Map<string, Connections>();
  readonly #bound = new Map<string, Bound>();
  #closed = false;

  constructor(world: World) {
    this.#world = world;
  }

  /** Connects to a blank. One that cannot be reached is found by whoever needs it. */
  async prepare(name: string, target: DaemonTarget): Promise<void> {
    this.#forgetEnded();
    const connections = await connectAhead(target).catch(() => null);
    if (connections === null) return;
    if (this.#closed) connections.destroy();
    else this.#waiting.set(name, connections);
  }

  /** The connections to a blank, for whoever binds it. */
  take(name: string): Connections | undefined {
    const connections = this.#waiting.get(name);
    this.#waiting.delete(name);
    return connections;
  }

  /** Keeps what was bound for the attach that follows. */
  bound(name: string, { generation, token }: Credentials, attachment: DaemonAttachment): void {
    this.#letGo(name);
    const timer = this.#world.timer(TAKEN_WITHIN_MS, () => this.#letGo(name), { background: true });
    this.#bound.set(name, { attachment, credentials: { generation, token }, timer });
    if (this.#closed) this.#letGo(name);
  }

  /** What was bound with these credentials and still stands. */
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

  /** Blanks that another process has ended. */
  #forgetEnded(): void {
    for (const [name, connections] of this.#waiting) if (connections.isEmpty) this.#waiting.delete(name);
  }
}
