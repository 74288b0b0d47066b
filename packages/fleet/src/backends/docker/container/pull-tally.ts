/**
 * The received bytes of an image, summed up from the engine's reports for each layer, many times a second. Listeners
 * get a few reports a second at most.
 */

import { z } from "zod";
import type { Timer, World } from "../../../world/world.ts";
import type { PullProgress } from "./images.ts";

/** A person sees no more. */
const TOLD_EVERY_MS = 250;

const lineSchema = z.object({
  status: z.string().optional(),
  id: z.string().optional(),
  progressDetail: z.object({ current: z.number().optional(), total: z.number().optional() }).nullish(),
});

export class PullTally {
  readonly #image: string;
  readonly #world: World;
  readonly #onProgress: (progress: PullProgress) => void;
  readonly #layers = new Map<string, { readonly current: number; readonly total: number }>();
  #toldAt = Number.NEGATIVE_INFINITY;
  #due: Timer | null = null;

  constructor(image: string, world: World, onProgress: (progress: PullProgress) => void) {
    this.#image = image;
    this.#world = world;
    this.#onProgress = onProgress;
  }

  /** A line of the engine. Unpacking counts its own bytes, which are not received bytes. */
  add(line: unknown): void {
    const { status, id, progressDetail } = lineSchema.safeParse(line).data ?? {};
    const { current, total } = progressDetail ?? {};
    if (id === undefined || status !== "Downloading" || current === undefined) return;
    this.#layers.set(id, { current, total: total ?? current });
    const sinceMs = this.#world.monotonicMs() - this.#toldAt;
    if (sinceMs >= TOLD_EVERY_MS) this.tell("progress");
    else this.#due ??= this.#world.timer(TOLD_EVERY_MS - sinceMs, () => this.tell("progress"), { background: true });
  }

  tell(state: PullProgress["state"], problem: string | null = null): void {
    this.#due?.cancel();
    this.#due = null;
    this.#toldAt = this.#world.monotonicMs();
    const sum = (of: "current" | "total") => [...this.#layers.values()].reduce((all, layer) => all + layer[of], 0);
    const counted = { currentBytes: sum("current"), totalBytes: sum("total") };
    this.#onProgress({ image: this.#image, state, ...counted, problem });
  }
}
