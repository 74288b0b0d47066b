/**
 * Markers beside the sandboxes: one file per generation in which a sandbox was assigned to a thread.
 *
 * Invariants
 * - A marker is written only if the sandbox's directory of markers exists. It is created before the sandbox and removed
 *   after it, so no marker outlives its sandbox.
 * - A marker is never overwritten: the first one proves whose workspace is inside.
 * - A marker is complete or missing. It holds a token, so only the fleet's own account reads it.
 * - Names with a leading dot are no markers: `.ahead`, a preallocated file for the first one, and drafts. They are
 *   removed with the directory.
 */

import { linkSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, unlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Generation, type SandboxId, SandlotError } from "@sandlot/contract";
import { z } from "zod";
import type { Marker } from "../../backend/labels.ts";
import type { Markers } from "../../backend/markers.ts";
import { errnoOf, isMissing, unlessMissing } from "../../world/disk-trouble.ts";
import type { World } from "../../world/world.ts";
import type { Layout } from "./layout.ts";
import { claimPreallocated, preallocate } from "./preallocated.ts";

const AHEAD = ".ahead";

const schema = z.strictObject({
  sandboxId: z.string(),
  user: z.string(),
  thread: z.string(),
  generation: z.number().int(),
  token: z.string(),
  blueprint: z.string(),
  blueprintHash: z.string(),
});

export class MarkerFiles {
  readonly #layout: Layout;
  readonly #world: Pick<World, "randomHex">;

  constructor(layout: Layout, world: Pick<World, "randomHex">) {
    this.#layout = layout;
    this.#world = world;
  }

  /** Creates the directory for a sandbox's markers. Returns whether there was none. */
  open(sandboxId: SandboxId): boolean {
    try {
      mkdirSync(this.#layout.markersOf(sandboxId), 0o700);
      return true;
    } catch (error) {
      if (errnoOf(error) !== "EEXIST") throw error;
      return false;
    }
  }

  /** The same for a sandbox of the warm pool: also preallocates the file for its first marker. */
  openAhead(sandboxId: SandboxId): void {
    if (!this.open(sandboxId)) return;
    try {
      preallocate(join(this.#layout.markersOf(sandboxId), AHEAD));
    } catch (error) {
      this.close(sandboxId);
      throw error;
    }
  }

  write(marker: Marker): void {
    const { sandboxId, user, thread, generation, token, blueprint, blueprintHash } = marker;
    const directory = this.#layout.markersOf(sandboxId);
    const text = JSON.stringify({ sandboxId, user, thread, generation, token, blueprint, blueprintHash });
    let draft = this.#draftOf(directory, generation);
    try {
      if (!claimPreallocated(join(directory, AHEAD), draft, text)) {
        draft = this.#draftOf(directory, generation);
        writeFileSync(draft, text, { mode: 0o600, flag: "wx" });
      }
      this.#publish(draft, fileOf(directory, generation), text);
    } catch (error) {
      if (isMissing(error)) throw new SandlotError("file_not_found", { path: `markers:${sandboxId}` });
      throw error;
    }
  }

  /** A link, unlike a rename, fails on an existing file. The same marker may be written again. */
  #publish(draft: string, path: string, text: string): void {
    try {
      linkSync(draft, path);
    } catch (error) {
      if (errnoOf(error) !== "EEXIST") throw error;
      if (unlessMissing(() => readFileSync(path, "utf8")) !== text) throw new SandlotError("file_exists", { path });
    } finally {
      unlinkSync(draft);
    }
  }

  read(sandboxId: SandboxId): readonly Marker[] {
    const directory = this.#layout.markersOf(sandboxId);
    const names = unlessMissing(() => readdirSync(directory)) ?? [];
    return names
      .filter((name) => /^\d+\.json$/.test(name))
      .flatMap((name) => parse(unlessMissing(() => readFileSync(join(directory, name), "utf8"))))
      .sort((a, b) => a.generation - b.generation);
  }

  drop(sandboxId: SandboxId, generation: Generation): void {
    unlessMissing(() => unlinkSync(fileOf(this.#layout.markersOf(sandboxId), generation)));
  }

  /** The sandbox is gone: removes the directory for its markers. */
  close(sandboxId: SandboxId): void {
    const directory = this.#layout.markersOf(sandboxId);
    // Renamed first: a marker that is being written at this moment must fail, not keep the directory alive.
    const gone = join(this.#layout.markers, `.gone-${this.#world.randomHex(8)}`);
    unlessMissing(() => renameSync(directory, gone));
    rmSync(gone, { recursive: true, force: true });
  }

  sandboxes(): readonly SandboxId[] {
    return readdirSync(this.#layout.markers).filter((name) => !name.startsWith(".")) as SandboxId[];
  }

  /** Removes what a crash left of a `close`. */
  sweep(): void {
    for (const name of readdirSync(this.#layout.markers))
      if (name.startsWith(".gone-")) rmSync(join(this.#layout.markers, name), { recursive: true, force: true });
  }

  /** A name unique to this writer. */
  #draftOf(directory: string, generation: Generation): string {
    return join(directory, `.${generation}.${this.#world.randomHex(4)}`);
  }
}

/** The same as a backend gives them out. */
export function markersIn(files: MarkerFiles): Markers {
  return {
    write: async (marker) => files.write(marker),
    list: async (sandboxId) => files.read(sandboxId),
    drop: async (sandboxId, generation) => files.drop(sandboxId, generation),
  };
}

function fileOf(directory: string, generation: Generation): string {
  return join(directory, `${generation}.json`);
}

/** A power cut leaves a half-written marker, which proves nothing. */
function parse(text: string | undefined): readonly Marker[] {
  if (text === undefined) return [];
  let content: unknown;
  try {
    content = JSON.parse(text);
  } catch {
    return [];
  }
  const parsed = schema.safeParse(content);
  return parsed.success ? [parsed.data as Marker] : [];
}
