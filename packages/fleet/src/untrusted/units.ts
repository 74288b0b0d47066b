/**
 * Reads a stream of units (frames or lines) from a sandbox: a unit that has begun must end in time, and many small ones
 * do not block the event loop. Silence between two units is unlimited.
 */

import type { Readable } from "node:stream";
import { SandlotError } from "@sandlot/contract";
import { nextTurn } from "../world/system-world.ts";
import type { Timer, World } from "../world/world.ts";
import { STREAM_LIMITS } from "./limits.ts";

export class UnitGuard {
  readonly #source: Readable;
  readonly #timer: World["timer"];
  #deadline: Timer | null = null;
  #count = 0;

  constructor(source: Readable, timer: World["timer"]) {
    this.#source = source;
    this.#timer = timer;
  }

  /** More data is awaited, with or without a part of a unit here. */
  waits(hasPart: boolean): void {
    if (!hasPart) this.stop();
    else this.#deadline ??= this.#timer(STREAM_LIMITS.unitMs, () => this.#late());
  }

  /** A unit is complete. */
  async passed(): Promise<void> {
    this.stop();
    if (++this.#count % STREAM_LIMITS.unitsAtOnce === 0) await nextTurn();
  }

  stop(): void {
    this.#deadline?.cancel();
    this.#deadline = null;
  }

  #late(): void {
    const problem = `its daemon began something and did not end it within ${STREAM_LIMITS.unitMs} ms`;
    this.#source.destroy(new SandlotError("bad_sandbox_response", { problem }));
  }
}
