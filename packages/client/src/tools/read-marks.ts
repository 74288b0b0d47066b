/**
 * Read before write: what of which file a run has seen, as a hash of the whole file; and the turns that writers of one
 * path take.
 *
 * Invariants
 * - An existing file is overwritten or edited only by a run that has seen exactly what is there. What another
 *   run, a command or a person has changed meanwhile must be read again, so no edit is lost unseen.
 * - Checking and writing of one path are one turn, for all runs of this process on one thread. Across processes the file's
 *   version, checked by the sandbox itself, decides.
 */

import type { SandboxSource } from "./source.ts";
import { sha256Hex } from "./thread-identity.ts";
import { ToolRefusal } from "./tool.ts";

export class ReadMarks {
  readonly #required: boolean;
  readonly #turns: PathTurns;
  readonly #place: string;
  readonly #hashes = new Map<string, string>();

  constructor(options: { source: SandboxSource; user: string; thread: string; required: boolean }) {
    this.#required = options.required;
    this.#turns = turnsOf(options.source);
    this.#place = JSON.stringify([options.user, options.thread]);
  }

  /** The run has seen, or written, this content. */
  async saw(path: string, content: Uint8Array): Promise<void> {
    this.#hashes.set(path, await sha256Hex(new Uint8Array(content)));
  }

  /** The run no longer knows the content. */
  forget(path: string): void {
    this.#hashes.delete(path);
  }

  /** Refuses when this is not what the run has seen. */
  async check(path: string, content: Uint8Array): Promise<void> {
    if (!this.#required) return;
    const seen = this.#hashes.get(path);
    if (seen === (await sha256Hex(new Uint8Array(content)))) return;
    throw new ToolRefusal(
      "read_first",
      seen === undefined
        ? `${path} exists and you have not read it. Read it with read_file first, then make your change.`
        : `${path} has changed since you read it. Read it again with read_file, then make your change to what is there now.`,
    );
  }

  turn<T>(path: string, action: () => Promise<T>): Promise<T> {
    return this.#turns.run(`${this.#place}${path}`, action);
  }
}

/** One after the other for each key; nothing is kept of a key that nobody waits for. */
class PathTurns {
  readonly #last = new Map<string, Promise<unknown>>();

  run<T>(key: string, action: () => Promise<T>): Promise<T> {
    const mine = (this.#last.get(key) ?? Promise.resolve()).then(action);
    const settled = mine
      .catch(() => undefined)
      .then(() => {
        if (this.#last.get(key) === settled) this.#last.delete(key);
      });
    this.#last.set(key, settled);
    return mine;
  }
}

const TURNS = new WeakMap<SandboxSource, PathTurns>();

function turnsOf(source: SandboxSource): PathTurns {
  const turns = TURNS.get(source) ?? new PathTurns();
  TURNS.set(source, turns);
  return turns;
}
