/**
 * Images: checks whether the engine has one, and pulls it when it does not.
 *
 * A pull is a separate stage with its own deadline. One image is pulled once at a time: other callers wait for the same
 * pull, and a pull without waiting callers is aborted.
 */

import { SandlotError } from "@sandlot/contract";
import { abortable, within } from "../../../world/waiting.ts";
import type { World } from "../../../world/world.ts";
import type { Engine, ImageInspection } from "../engine/engine.ts";
import { jsonLines } from "../engine/json-lines.ts";
import { EngineRefusal } from "../engine/trouble.ts";
import { PullTally } from "./pull-tally.ts";

/** The progress of a pull: at its start, while bytes arrive, and once at its end. */
export interface PullProgress {
  readonly image: string;
  readonly state: "started" | "progress" | "pulled" | "failed";
  /** Of all layers that the engine has reported: bytes received, and bytes in total. */
  readonly currentBytes: number;
  readonly totalBytes: number;
  readonly problem: string | null;
}

export interface ImagePolicy {
  readonly pull: "missing" | "never";
  readonly pullTimeoutMs: number;
}

interface Pull {
  readonly done: Promise<void>;
  readonly controller: AbortController;
  waiting: number;
}

export class Images {
  readonly #engine: Engine;
  readonly #world: World;
  readonly #policy: ImagePolicy;
  readonly #onProgress: (progress: PullProgress) => void;
  readonly #pulls = new Map<string, Pull>();

  constructor(engine: Engine, world: World, policy: ImagePolicy, onProgress: (progress: PullProgress) => void) {
    this.#engine = engine;
    this.#world = world;
    this.#policy = policy;
    this.#onProgress = onProgress;
  }

  /** The engine's image, pulled where that is allowed. Rejects with `image_unavailable`. */
  async ready(name: string, signal: AbortSignal): Promise<ImageInspection> {
    const present = await abortable(this.#engine.image(name), signal);
    if (present !== null) return usable(name, present);
    if (this.#policy.pull === "never") throw unusable(name, "the engine does not have it, and pulling is switched off");
    await this.#join(name, signal);
    const pulled = await abortable(this.#engine.image(name), signal);
    if (pulled === null) throw unusable(name, "the engine has pulled it and does not have it");
    return usable(name, pulled);
  }

  /** The engine's id of the image: a digest over all that it has. Pulls it as `ready` does. */
  async digest(name: string, signal: AbortSignal): Promise<string> {
    return (await this.ready(name, signal)).Id;
  }

  async #join(name: string, signal: AbortSignal): Promise<void> {
    const pull = this.#pulls.get(name) ?? this.#begin(name);
    pull.waiting++;
    try {
      await abortable(pull.done, signal);
    } finally {
      if (--pull.waiting === 0) pull.controller.abort(new Error("no caller waits for it any more"));
    }
  }

  #begin(name: string): Pull {
    const controller = new AbortController();
    const { pullTimeoutMs } = this.#policy;
    const late = () => unusable(name, `it was not pulled within ${pullTimeoutMs} ms`);
    const done = within(this.#world, pullTimeoutMs, controller.signal, late, (signal) => this.#pull(name, signal));
    const pull = { done, controller, waiting: 0 };
    this.#pulls.set(name, pull);
    const over = () => this.#pulls.delete(name);
    done.then(over, over);
    return pull;
  }

  async #pull(name: string, signal: AbortSignal): Promise<void> {
    const tally = new PullTally(name, this.#world, this.#onProgress);
    tally.tell("started");
    try {
      const stream = await this.#engine.pull(name, signal);
      for await (const line of jsonLines(stream, signal)) {
        const { error } = line as { error?: unknown };
        if (typeof error === "string") throw unusable(name, error);
        tally.add(line);
      }
      tally.tell("pulled");
    } catch (error) {
      const told = error instanceof EngineRefusal ? unusable(name, error.message, error) : error;
      tally.tell("failed", told instanceof Error ? told.message : String(told));
      throw told;
    }
  }
}

export function unusable(image: string, problem: string, cause?: unknown): SandlotError {
  return new SandlotError("image_unavailable", { image, problem }, { cause });
}

function usable(name: string, image: ImageInspection): ImageInspection {
  if (image.Os !== undefined && image.Os !== "" && image.Os !== "linux") throw unusable(name, `it is for ${image.Os}`);
  return image;
}

/** Variables that the image sets. */
export function imageEnvironment(image: ImageInspection): Readonly<Record<string, string>> {
  const entries = (image.Config?.Env ?? []).map((entry) => {
    const at = entry.indexOf("=");
    return at < 0 ? ([entry, ""] as const) : ([entry.slice(0, at), entry.slice(at + 1)] as const);
  });
  return Object.fromEntries(entries);
}
