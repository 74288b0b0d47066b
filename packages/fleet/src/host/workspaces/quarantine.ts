/**
 * Quarantine: content of a slot that is no thread's present workspace. It is kept for the operator, outside every
 * mount, and no code reads it again.
 *
 *   quarantine/<slot>.<random>        the slot's unchanged content
 *   quarantine/<slot>.<random>.json   when, why and whose
 */

import { readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { SandlotError } from "@sandlot/contract";
import { z } from "zod";
import { unlessMissing } from "../../world/disk-trouble.ts";
import type { World } from "../../world/world.ts";
import type { Layout } from "./layout.ts";
import type { Trash } from "./trash.ts";

const about = z.object({
  slot: z.string(),
  reason: z.string(),
  at: z.number(),
  user: z.string().nullable(),
  thread: z.string().nullable(),
});

type About = z.infer<typeof about>;

export interface Quarantined {
  readonly name: string;
  readonly path: string;
  /** `null` when a crash came before it was written. */
  readonly about: About | null;
}

/** A listing is for the operator; with more than this, look at the directory. */
const LIST_MAX = 1_000;
const NAME = /^[A-Za-z0-9_-]+\.[0-9a-f]+$/;

export class Quarantine {
  readonly #layout: Pick<Layout, "quarantine">;
  readonly #trash: Trash;
  readonly #world: Pick<World, "randomHex" | "wallMs">;

  constructor(layout: Pick<Layout, "quarantine">, trash: Trash, world: Pick<World, "randomHex" | "wallMs">) {
    this.#layout = layout;
    this.#trash = trash;
    this.#world = world;
  }

  /** Moves a slot's content here with one rename. */
  put(path: string, facts: Omit<About, "at">): void {
    const entry = join(this.#layout.quarantine, `${facts.slot}.${this.#world.randomHex(4)}`);
    renameSync(path, entry);
    writeFileSync(aboutOf(entry), JSON.stringify({ ...facts, at: this.#world.wallMs() }), { mode: 0o600 });
  }

  list(): { readonly entries: readonly Quarantined[]; readonly truncated: boolean } {
    const names = readdirSync(this.#layout.quarantine).filter((name) => NAME.test(name));
    const entries = names
      .sort()
      .slice(0, LIST_MAX)
      .map((name) => {
        const path = join(this.#layout.quarantine, name);
        return { name, path, about: readAbout(aboutOf(path)) };
      });
    return { entries, truncated: names.length > LIST_MAX };
  }

  /** Called after the operator has inspected it. */
  async remove(name: string): Promise<void> {
    if (!NAME.test(name)) throw new SandlotError("file_not_found", { path: name });
    const entry = join(this.#layout.quarantine, name);
    const owner = `quarantine-${this.#world.randomHex(8)}`;
    this.#trash.throwAway(entry, owner);
    this.#trash.throwAway(aboutOf(entry), owner);
    await this.#trash.empty(owner);
  }
}

function aboutOf(entry: string): string {
  return `${entry}.json`;
}

function readAbout(path: string): About | null {
  const text = unlessMissing(() => readFileSync(path, "utf8"));
  if (text === undefined) return null;
  try {
    return about.parse(JSON.parse(text));
  } catch {
    return null;
  }
}
