/**
 * One holder's connection to a sandbox with an AIO server.
 *
 * Invariants
 * - Its HTTP connections end with it: on `close`, and when the backend learns of the sandbox's death (`lose`). Both are
 *   idempotent, and neither can fail.
 * - A later use of its sandbox fails with the one of the two that happened.
 */

import type { Generation, SandboxId } from "@sandlot/contract";
import type { World } from "../../world/world.ts";
import { AioCalls, type Knowledge } from "./calls.ts";
import { AioSandbox } from "./sandbox.ts";
import type { AioWire } from "./wire/wire.ts";

export interface AioTarget {
  readonly sandboxId: SandboxId;
  readonly generation: Generation;
  /** Variables for every command. */
  readonly environment?: Readonly<Record<string, string>>;
}

/** Short enough to go unnoticed at the end of a lease. */
const LET_GO_MS = 250;

export class AioAttachment {
  readonly sandbox: AioSandbox;
  readonly closed: Promise<void>;
  readonly #calls: AioCalls;
  #closing: Promise<void> | null = null;

  /** The attachment owns the wire from here on. */
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

  /** Asks the server to forget our sessions, without waiting for a server that does not respond. */
  async #letGo(): Promise<void> {
    const { world } = this.#calls;
    const timer = world.timer(LET_GO_MS, () => this.#calls.close());
    await this.sandbox.letGo();
    timer.cancel();
    this.#calls.close();
  }
}
