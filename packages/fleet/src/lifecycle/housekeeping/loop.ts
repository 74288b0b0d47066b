/** A loop repeats a task. It reports a failure and continues; two runs never overlap. */

import { type EventBus, problemOf } from "../../observe/event-bus.ts";
import type { Timer, World } from "../../world/world.ts";

export class Loop {
  readonly #name: string;
  readonly #intervalMs: number;
  readonly #task: () => Promise<void>;
  readonly #world: World;
  readonly #bus: EventBus;
  #timer: Timer | null = null;
  #running: Promise<void> | null = null;
  #again = false;
  #stopped = false;

  constructor(parts: { name: string; intervalMs: number; task: () => Promise<void>; world: World; bus: EventBus }) {
    this.#name = parts.name;
    this.#intervalMs = parts.intervalMs;
    this.#task = parts.task;
    this.#world = parts.world;
    this.#bus = parts.bus;
  }

  start(): void {
    // Jitter, so that instances started together do not all look at once.
    const delayMs = this.#intervalMs * (0.9 + this.#world.random() / 5);
    this.#timer = this.#world.timer(delayMs, () => void this.#run(), { background: true });
  }

  /** Runs the task now, or once more if it is running. */
  poke(): void {
    if (this.#stopped) return;
    if (this.#running !== null) {
      this.#again = true;
      return;
    }
    this.#timer?.cancel();
    void this.#run();
  }

  /** Prevents further runs; resolves when the present one has ended. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#timer?.cancel();
    await this.#running;
  }

  async #run(): Promise<void> {
    if (this.#stopped || this.#running !== null) return;
    this.#running = this.#once();
    await this.#running;
    this.#running = null;
    if (this.#stopped) return;
    if (!this.#again) return this.start();
    this.#again = false;
    this.poke();
  }

  async #once(): Promise<void> {
    try {
      await this.#task();
    } catch (error) {
      this.#bus.emit({ type: "housekeeping-failed", task: this.#name, problem: problemOf(error) });
    }
  }
}
