/** A process connected to the engine, and its connections to sandboxes. */

import type { Socket } from "node:net";
import type { Target } from "../../../packages/fleet/src/backend/backend.ts";
import type { SimObject } from "../../simulation/engine/ledger.ts";
import type { Answer, Push } from "../wire.ts";

export interface AttachmentOf {
  readonly id: number;
  readonly peer: Peer;
  readonly target: Target;
  readonly object: SimObject;
  readonly onDeath: () => void;
  /** A lease holder has read or written through it. */
  used: boolean;
  /** Its process may have been declared dead: it reports this itself, or it was stopped for long. */
  doubted: boolean;
}

export class Peer {
  /** The child's name, which is also its instance id. */
  name = "?";
  pid = 0;
  isOpen = true;
  pausedAt: number | null = null;
  /** When it was last stopped or continued. */
  disturbedAt = Number.NEGATIVE_INFINITY;
  underWay = 0;
  readonly attachments = new Map<number, AttachmentOf>();
  readonly #socket: Socket;

  constructor(socket: Socket) {
    this.#socket = socket;
  }

  send(message: Answer | Push): void {
    if (this.isOpen) this.#socket.write(`${JSON.stringify(message)}\n`);
  }

  doubt(): void {
    for (const attachment of this.attachments.values()) attachment.doubted = true;
  }
}
