/**
 * One holder's connection to a sandbox whose server speaks AIO.
 *
 * Invariants
 * - Its HTTP connections end with it: on `close`, and when the backend hears of the sandbox's death (`lose`). Both are
 *   idempotent, and neither can fail.
 * - Whoever uses its sandbox afterwards hears which of both it was.
 */

import type { Generation, SandboxId } from "@sandlot/contract";
import type { World } from "../../world/world.ts";
import { AioCalls, type Knowledge } from "./calls.ts";
import { AioSandbox } from "./sandbox.ts";
import type { AioWire } from "./wire/wire.ts";

export interface AioTarget {
  readonly sandboxId: SandboxId;
  readonly generation: Generation;
  /** Variables of every command. */
  readonly environment?: Readonly<Record<string, string>>;
}

/** Nobody should notice it at the end of a lease. */
const LET_GO_MS = 250;

export class AioAttachment {
  readonly sandbox: AioSandbox;
  readonly closed: Promise<void>;
  readonly #calls: AioCalls;
  #closing: Promise<void> | null = null;

  /** The wire belongs to the attachment from here on. */
  constructor(wire: AioWire, world: World, target: AioTarget, knowledge: Knowledge) {
    this.#calls = new AioCalls(wire, world, target, knowledge);
    this.closed = this.#calls.closed;
    this.sandbox = new AioSandbox(this.#calls, target.environment ?? {});
  }

  lose(): void {
    this.#calls.lose();
  }

  close(): Promise<void> {
    this.#closing ??= this.#letGo();
    return this.#closing;
  }

  /** The server is told to forget our sessions, and is not waited for if it does not listen. */
  async #letGo(): Promise<void> {
    const { world } = this.#calls;
    const timer = world.timer(LET_GO_MS, () => this.#calls.close());
    await this.sandbox.letGo();
    timer.cancel();
    this.#calls.close();
  }
}
