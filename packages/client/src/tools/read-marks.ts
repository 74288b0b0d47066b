/**
 * Read before write: which files a run has seen, as a hash of the whole file; and the turns of writers of one path.
 *
 * Invariants
 * - An existing file is overwritten or edited only by a run that has seen exactly its present content. A file that
 *   another run, a command or a person has changed meanwhile must be read again, so no edit is lost unseen.
 * - Checking and writing of one path are one turn, for all runs of this process on one thread. Across processes the
 *   file's version, checked by the sandbox itself, decides.
 */

import { PathTurns } from "./path-turns.ts";
import type { SandboxSource } from "./source.ts";
import { sha256Hex } from "./thread-identity.ts";
import { ToolRefusal } from "./tool.ts";

export class ReadMarks {
  readonly #required: boolean;
  readonly #turns: PathTurns;
  readonly #hashes = new Map<string, string>();

  constructor(options: { source: SandboxSource; user: string; thread: string; required: boolean }) {
    this.#required = options.required;
    this.#turns = new PathTurns(options.source, options);
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
    return this.#turns.run(path, action);
  }
}
