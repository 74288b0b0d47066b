/**
 * Notices the commits of other processes. Only ever a hint.
 *
 * The directory watch on the WAL is fast, but it fires when bytes are written, which is before the commit is visible.
 * So it looks at once and again a few milliseconds later. It also polls `data_version` every 250 ms, because a watch
 * can be missing (no inotify handles left) or silent (a WAL that was there before).
 */

import { type FSWatcher, watch } from "node:fs";
import { basename, dirname } from "node:path";
import type { Timer, World } from "../../world/world.ts";

const POLL_MS = 250;
const SECOND_LOOK_MS = 5;

export class ChangeWatch {
  readonly #path: string;
  readonly #world: World;
  /** Changes when another connection has committed; `null` when it cannot be read. */
  readonly #version: () => unknown;
  readonly #listeners = new Set<() => void>();
  #watcher: FSWatcher | null = null;
  #poll: Timer | null = null;
  #second: Timer | null = null;
  #seen: unknown = null;

  constructor(options: { path: string; world: World; version: () => unknown }) {
    this.#path = options.path;
    this.#world = options.world;
    this.#version = options.version;
  }

  add(hint: () => void): () => void {
    // Wrappers, so that the same function can listen twice and stop once.
    const listener = () => hint();
    this.#listeners.add(listener);
    if (this.#listeners.size === 1) this.#start();
    return () => {
      if (this.#listeners.delete(listener) && this.#listeners.size === 0) this.close();
    };
  }

  /** Notifies the listeners that something may have changed. */
  hint(): void {
    for (const listener of this.#listeners) listener();
  }

  close(): void {
    this.#listeners.clear();
    this.#watcher?.close();
    this.#poll?.cancel();
    this.#second?.cancel();
    this.#watcher = this.#poll = this.#second = null;
  }

  #start(): void {
    this.#seen = this.#version();
    this.#schedulePoll();
    const wal = `${basename(this.#path)}-wal`;
    try {
      this.#watcher = watch(dirname(this.#path), { persistent: false }, (_, name) => {
        if (name === wal) this.#lookTwice();
      });
      // If the watch fails later, the poll remains.
      this.#watcher.on("error", () => this.#watcher?.close());
    } catch {
      // As above: no handles left.
    }
  }

  #schedulePoll(): void {
    const again = () => {
      this.#look();
      if (this.#listeners.size > 0) this.#schedulePoll();
    };
    this.#poll = this.#world.timer(POLL_MS, again, { background: true });
  }

  /** Many writes in a row cause one second look. */
  #lookTwice(): void {
    this.#look();
    this.#second ??= this.#world.timer(
      SECOND_LOOK_MS,
      () => {
        this.#second = null;
        this.#look();
      },
      { background: true },
    );
  }

  #look(): void {
    const version = this.#version();
    if (version === this.#seen) return;
    this.#seen = version;
    this.hint();
  }
}
