/** Shared entries in a map: for tests with several fleets in one process. They stand alone, without a transfer mark. */

import { checkEntry, ENTRIES_MAX, type PutAnswer, type SharedEntries, type SharedEntry } from "../entries.ts";

export class MemoryEntries implements SharedEntries {
  readonly #entries = new Map<string, SharedEntry>();
  readonly #max: number;
  #seq = 0;

  constructor(max = ENTRIES_MAX) {
    this.#max = max;
  }

  async get(name: string): Promise<SharedEntry | null> {
    return this.#entries.get(name) ?? null;
  }

  async list(prefix: string): Promise<readonly SharedEntry[]> {
    return [...this.#entries.values()].filter(({ name }) => name.startsWith(prefix));
  }

  async put(name: string, body: string, expected: number | null): Promise<PutAnswer> {
    checkEntry(name, body);
    const present = this.#entries.get(name);
    if ((present?.seq ?? null) !== expected) return { kind: "changed" };
    if (present === undefined && this.#entries.size >= this.#max) return { kind: "full", max: this.#max };
    this.#seq += 1;
    this.#entries.set(name, { name, body, seq: this.#seq });
    return { kind: "put", seq: this.#seq };
  }

  async delete(name: string, expected: number): Promise<boolean> {
    return this.#entries.get(name)?.seq === expected && this.#entries.delete(name);
  }
}
