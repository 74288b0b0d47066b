/**
 * The connection that listens for topics. It is not one of the pool: a notification belongs to the connection that asked.
 *
 * - Topics are hints. After every connect the listener reports "*", because it may have missed some before.
 * - It connects again by itself, with pauses that grow, and asks the server regularly whether it is still there: a
 *   connection that was cut without a word looks like a quiet one.
 */

import type { Timer, World } from "../../world/world.ts";
import type { Topic } from "../rows/row-server.ts";
import { connect } from "./connect.ts";
import type { Connection } from "./connection.ts";
import { topicChannel } from "./functions.ts";
import type { PostgresSettings } from "./settings.ts";

const PAUSE_MIN_MS = 100;
const PAUSE_MAX_MS = 5_000;
const PING_INTERVAL_MS = 10_000;

export class TopicListener {
  readonly #settings: PostgresSettings;
  readonly #world: World;
  readonly #listeners = new Set<(topic: Topic | "*") => void>();
  #connection: Connection | null = null;
  #timer: Timer | null = null;
  #stop = new AbortController();
  #failures = 0;

  constructor(settings: PostgresSettings, world: World) {
    this.#settings = settings;
    this.#world = world;
    void this.#connect();
  }

  subscribe(listener: (topic: Topic | "*") => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  close(): void {
    this.#stop.abort();
    this.#timer?.cancel();
    this.#connection?.destroy();
    this.#listeners.clear();
  }

  /** Never rejects: a failure is followed by another try. The calls of the store report what is wrong with the server. */
  async #connect(): Promise<void> {
    const signal = this.#deadline();
    try {
      const { connection } = await connect(this.#settings, signal, {
        onLost: () => this.#reconnect(),
        onTopics: (payload) => this.#tell(payload.split(" ")),
      });
      this.#connection = connection;
      await connection.query(`LISTEN "${topicChannel(this.#settings.schema)}"`, [], { signal });
      this.#failures = 0;
      this.#tell(["*"]);
      this.#pingLater();
    } catch {
      this.#reconnect();
    }
  }

  #pingLater(): void {
    this.#schedule(PING_INTERVAL_MS, async () => {
      try {
        await this.#connection?.query("SELECT 1", [], { signal: this.#deadline() });
        this.#pingLater();
      } catch {
        this.#reconnect();
      }
    });
  }

  #reconnect(): void {
    this.#connection?.destroy();
    this.#connection = null;
    const longest = Math.min(PAUSE_MAX_MS, PAUSE_MIN_MS * 2 ** this.#failures);
    this.#failures += 1;
    this.#schedule(longest * (0.5 + this.#world.random() / 2), () => this.#connect());
  }

  #schedule(delayMs: number, run: () => Promise<void>): void {
    this.#timer?.cancel();
    if (this.#stop.signal.aborted) return;
    this.#timer = this.#world.timer(delayMs, () => void run(), { background: true });
  }

  #deadline(): AbortSignal {
    const late = new AbortController();
    this.#world.timer(this.#settings.timeoutMs, () => late.abort(), { background: true });
    return AbortSignal.any([this.#stop.signal, late.signal]);
  }

  #tell(topics: readonly Topic[]): void {
    for (const topic of topics) for (const listener of [...this.#listeners]) listener(topic);
  }
}
