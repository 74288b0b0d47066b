/**
 * Containers that the engine pauses while their files are read.
 *
 *   frozen/<containerId>     who has it frozen: there before the pause, gone after the unpause
 *
 * Invariants
 * - A container has at most one freeze, of one process. Another one waits for its end.
 * - A pause with a mark belongs to its freeze: as long as that process lives, no other one undoes it. Whoever finds the
 *   mark of a dead process unpauses the container, and removes the mark.
 * - A container that was paused before stays paused.
 */

import { linkSync, mkdirSync, readdirSync, readFileSync, unlinkSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import type { Thaw } from "../../backend/backend.ts";
import { once } from "../../backend/frozen.ts";
import { errnoOf, statIfThere, unlessMissing } from "../../world/disk-trouble.ts";
import { draftName } from "../../world/drafts.ts";
import { sleep } from "../../world/waiting.ts";
import type { ProcessIdentity, World } from "../../world/world.ts";
import type { Engine } from "./engine/engine.ts";
import { isRefusal } from "./engine/trouble.ts";

interface ContainerFreezesParts {
  readonly world: World;
  readonly engine: Pick<Engine, "pause" | "unpause" | "inspect">;
  /** Of all processes of the fleet on this machine. */
  readonly directory: string;
}

const LOOK_MS = 200;
const RETRY_MS = 1_000;
const identitySchema = z.object({
  pid: z.int(),
  startTime: z.string(),
  bootId: z.string(),
  pidNamespace: z.string(),
});
/** A living holder renews its mark: where processes cannot see each other, its age tells whether it lives. */
const RENEW_MS = 5_000;
const RENEWED_WITHIN_MS = 60_000;

interface Freeze {
  /** The engine has said that it is paused, so that a later word of it running means this pause. */
  isSeen: boolean;
  isBroken: boolean;
}

export class ContainerFreezes {
  readonly #parts: ContainerFreezesParts;
  /** Freezes of this process, and whether something ran meanwhile. */
  readonly #mine = new Map<string, Freeze>();

  constructor(parts: ContainerFreezesParts) {
    this.#parts = parts;
  }

  /** Of the container, by a living process. */
  isHeld(containerId: string): boolean {
    return this.#stateOf(containerId) === "held";
  }

  /** Marks of processes that have died. */
  left(): readonly string[] {
    const names = unlessMissing(() => readdirSync(this.#parts.directory)) ?? [];
    return names.filter((name) => /^[0-9a-f]+$/.test(name) && this.#stateOf(name) === "left");
  }

  /** The engine says that it is paused. */
  heardPaused(containerId: string): void {
    const mine = this.#mine.get(containerId);
    if (mine !== undefined) mine.isSeen = true;
  }

  /** The engine says that it runs. */
  heardRunning(containerId: string): void {
    const mine = this.#mine.get(containerId);
    if (mine !== undefined) mine.isBroken = mine.isSeen;
  }

  /** The container is running again, whoever has paused it: a dead process's mark means nothing any more. */
  forgetLeft(containerId: string): void {
    if (!this.isHeld(containerId)) this.#unmark(containerId);
  }

  async freeze(containerId: string, signal: AbortSignal): Promise<Thaw> {
    const { world, engine } = this.#parts;
    while (!this.#mark(containerId)) {
      if (this.isHeld(containerId)) await sleep(world, LOOK_MS, signal);
      else await this.thawLeft(containerId);
    }
    const mine = { isSeen: false, isBroken: false };
    this.#mine.set(containerId, mine);
    this.#renewLater(containerId, mine);
    try {
      const isOurs = await this.#pause(containerId);
      return once(async () => {
        try {
          const found = await engine.inspect(containerId);
          return !mine.isBroken && found?.State.Status !== "running";
        } finally {
          await this.#end(containerId, isOurs);
        }
      });
    } catch (error) {
      // The pause may have happened although its answer was lost.
      await this.#end(containerId, true).catch(() => {});
      throw error;
    }
  }

  /** Ends the freeze of a dead process. */
  async thawLeft(containerId: string): Promise<void> {
    if (this.#stateOf(containerId) !== "left") return;
    await unpaused(this.#parts.engine, containerId);
    this.forgetLeft(containerId);
  }

  /** False: it was paused already, or does not run. */
  async #pause(containerId: string): Promise<boolean> {
    try {
      await this.#parts.engine.pause(containerId);
      return true;
    } catch (error) {
      if (isSettled(error)) return false;
      throw error;
    }
  }

  async #end(containerId: string, isOurs: boolean): Promise<void> {
    try {
      if (isOurs) await unpaused(this.#parts.engine, containerId);
      this.#mine.delete(containerId);
      this.#unmark(containerId);
    } catch (error) {
      // As long as this process lives, no other one unpauses it.
      this.#parts.world.timer(RETRY_MS, () => void this.#end(containerId, isOurs).catch(() => {}), {
        background: true,
      });
      throw error;
    }
  }

  /** False: there is one. */
  #mark(containerId: string): boolean {
    const { world, directory } = this.#parts;
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    const draft = join(directory, draftName(world));
    writeFileSync(draft, JSON.stringify(world.identity), { mode: 0o600 });
    try {
      linkSync(draft, join(directory, containerId));
      return true;
    } catch (error) {
      if (errnoOf(error) === "EEXIST") return false;
      throw error;
    } finally {
      unlinkSync(draft);
    }
  }

  #unmark(containerId: string): void {
    unlessMissing(() => unlinkSync(join(this.#parts.directory, containerId)));
  }

  #renewLater(containerId: string, mine: Freeze): void {
    const { world, directory } = this.#parts;
    const renew = () => {
      if (this.#mine.get(containerId) !== mine) return;
      const now = world.wallMs() / 1_000;
      unlessMissing(() => utimesSync(join(directory, containerId), now, now));
      this.#renewLater(containerId, mine);
    };
    world.timer(RENEW_MS, renew, { background: true });
  }

  #stateOf(containerId: string): "none" | "held" | "left" {
    const { world, directory } = this.#parts;
    const path = join(directory, containerId);
    const text = unlessMissing(() => readFileSync(path, "utf8"));
    if (text === undefined) return "none";
    const holder = identityIn(text);
    // Marks appear whole: this one is damaged, and belongs to no freeze.
    if (holder === null) return "left";
    const liveness = world.processLiveness(holder);
    if (liveness !== "unknown") return liveness === "alive" ? "held" : "left";
    const renewedAt = statIfThere(path)?.mtimeMs ?? 0;
    return world.wallMs() - renewedAt < RENEWED_WITHIN_MS ? "held" : "left";
  }
}

function identityIn(text: string): ProcessIdentity | null {
  try {
    return identitySchema.parse(JSON.parse(text));
  } catch {
    return null;
  }
}

async function unpaused(engine: Pick<Engine, "unpause">, containerId: string): Promise<void> {
  try {
    await engine.unpause(containerId);
  } catch (error) {
    if (!isSettled(error)) throw error;
  }
}

/** It is gone, has ended, or is already in the wanted state; an event of the other change follows. */
export function isSettled(error: unknown): boolean {
  if (isRefusal(error, 404) || isRefusal(error, 409)) return true;
  return isRefusal(error, 500) && /(not|already) paused|not running/i.test(error.message);
}
