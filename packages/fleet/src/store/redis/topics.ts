/**
 * Topics, on a connection of its own: a subscribed connection serves nothing else in older protocols, and a slow listener
 * must not delay commits.
 *
 * Redis keeps no message for a subscriber that is away. So every new subscription tells all listeners "*": topics may
 * have been missed. A `PING` finds a connection whose server is gone, as nothing else is sent on it.
 */

import { sleep } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import type { Topic } from "../rows/row-server.ts";
import { type Connection, connect } from "./connection.ts";
import type { MasterLink, MasterSession } from "./master-link.ts";
import { showEndpoint } from "./settings.ts";

/** How long a dead connection can go unnoticed, beside the timeout of its `PING`. */
const PING_MS = 5_000;
/** On average three quarters of it. A caller that waits for a topic also looks once a second. */
const RETRY_MS = 200;

type Listener = (topic: Topic | "*") => void;

export class Topics {
  readonly #link: MasterLink;
  readonly #channel: string;
  readonly #world: World;
  readonly #listeners = new Set<Listener>();
  readonly #closing = new AbortController();
  #session: MasterSession | null = null;
  #connection: Connection | null = null;
  #running: Promise<void> | null = null;

  constructor(link: MasterLink, channel: string, world: World) {
    this.#link = link;
    this.#channel = channel;
    this.#world = world;
  }

  /** The first listener opens the connection. */
  subscribe(listener: Listener): () => void {
    // An own function, so that one listener can subscribe twice.
    const tell: Listener = (topic) => listener(topic);
    this.#listeners.add(tell);
    if (this.#running === null && !this.#closing.signal.aborted) this.#start();
    return () => this.#listeners.delete(tell);
  }

  async close(): Promise<void> {
    this.#closing.abort();
    this.#connection?.destroy();
    this.#listeners.clear();
    await this.#running;
  }

  #start(): void {
    this.#link.onSession((session) => {
      const before = this.#session;
      this.#session = session;
      // Another server is the master by now: the old one publishes nothing more.
      if (before !== null && showEndpoint(before.dial.endpoint) !== showEndpoint(session.dial.endpoint))
        this.#connection?.destroy();
    });
    this.#running = this.#run();
  }

  async #run(): Promise<void> {
    const { signal } = this.#closing;
    while (!signal.aborted) {
      // A server that cannot be reached is reported by the calls of the store; here it is tried again.
      await this.#listen(signal).catch(() => undefined);
      const pauseMs = RETRY_MS * (0.5 + this.#world.random() / 2);
      // Closing ends the pause and then the loop.
      if (!signal.aborted) await sleep(this.#world, pauseMs, signal, { background: true }).catch(() => undefined);
    }
  }

  /** Listens until the connection is lost. */
  async #listen(closing: AbortSignal): Promise<void> {
    // A listener that hears "*" reads the store: that must be possible again.
    if (this.#session === null || this.#session.commands.isLost) return;
    const connection = await connect(this.#session.dial, this.#world, closing);
    // `close` looks for the connection only once.
    if (closing.aborted) return connection.destroy();
    this.#connection = connection;
    const lost = new AbortController();
    connection.onLost((reason) => lost.abort(reason));
    try {
      await connection.subscribe(this.#channel, (topic) => this.#tell(topic), lost.signal);
      this.#tell("*");
      for (;;) {
        await sleep(this.#world, PING_MS, lost.signal, { background: true });
        await connection.send(["PING"], lost.signal);
      }
    } finally {
      connection.destroy();
    }
  }

  #tell(topic: Topic | "*"): void {
    for (const listener of [...this.#listeners]) listener(topic);
  }
}
