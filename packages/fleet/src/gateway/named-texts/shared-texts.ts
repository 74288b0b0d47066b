/** Named texts as entries of the store, which every gateway of the store reads. */

import type { SharedEntries } from "../../fleet.ts";
import { type NamedTexts, noRoom } from "./named-texts.ts";

export class SharedTexts implements NamedTexts {
  readonly #entries: SharedEntries;
  readonly #kind: string;

  /** `kind` is the first part of the entries' names. */
  constructor(entries: SharedEntries, kind: string) {
    this.#entries = entries;
    this.#kind = kind;
  }

  async read(name: string): Promise<string | null> {
    return (await this.#entries.get(this.placeOf(name)))?.body ?? null;
  }

  async create(name: string, text: string): Promise<boolean> {
    const answer = await this.#entries.put(this.placeOf(name), text, null);
    if (answer.kind === "full") throw noRoom("entries", answer.max);
    return answer.kind === "put";
  }

  remove(name: string): Promise<boolean> {
    return this.removeIf(name, () => true);
  }

  /** Texts are never replaced, so an entry with another number is another text of a caller that was faster. */
  async removeIf(name: string, isMeant: (text: string) => boolean): Promise<boolean> {
    const present = await this.#entries.get(this.placeOf(name));
    return present !== null && isMeant(present.body) && (await this.#entries.delete(present.name, present.seq));
  }

  async names(): Promise<readonly string[]> {
    return [...(await this.all()).keys()];
  }

  async all(): Promise<ReadonlyMap<string, string>> {
    const prefix = this.placeOf("");
    const entries = await this.#entries.list(prefix);
    return new Map(entries.map(({ name, body }) => [name.slice(prefix.length), body]));
  }

  placeOf(name: string): string {
    return `${this.#kind}/${name}`;
  }
}

/** The text that all gateways share under this name: the first one to ask makes it. */
export async function sharedText(entries: SharedEntries, name: string, make: () => string): Promise<string> {
  const present = await entries.get(name);
  if (present !== null) return present.body;
  const made = make();
  const answer = await entries.put(name, made, null);
  if (answer.kind === "put") return made;
  if (answer.kind === "full") throw noRoom("entries", answer.max);
  const first = await entries.get(name);
  if (first === null) return sharedText(entries, name, make);
  return first.body;
}
