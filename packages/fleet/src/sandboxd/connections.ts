/**
 * Connections to one daemon, kept for whoever asks next.
 *
 *   `agent`   node:http, for answers that are read as they come
 *   `ask`     a question whose answer is taken whole, on a plain connection (`@sandlot/contract/short-calls`)
 *   `engage`  a question whose answer is a stream without an end, on a plain connection that is the asker's from then on
 *
 * Invariants
 * - A connection carries one question at a time. One on which anything unexpected has come, or whose asker has gone away,
 *   is closed and never used again.
 * - What comes from the daemon is not trusted: the head of an answer is short, and its body has a length that is announced
 *   and allowed.
 */

import { Agent } from "node:http";
import { connect } from "node:net";
import { SandlotError } from "@sandlot/contract";
import {
  ConnectionLost,
  type Engaged,
  KeptLines,
  type LineAddress,
  type Question,
  StrangeAnswer,
} from "@sandlot/contract/short-calls";
import { systemTimer } from "../world/system-world.ts";
import type { World } from "../world/world.ts";

export { ConnectionLost, type Engaged, type Question } from "@sandlot/contract/short-calls";

export type DaemonAddress = LineAddress;

export interface Answer {
  readonly status: number;
  readonly body: Buffer;
}

/** Connections kept for later; each costs both sides a few kilobytes. */
const IDLE_MAX = 16;

export interface ConnectionsOptions {
  /** With `false` each question has one of its own, and nobody has to close them. */
  readonly keep?: boolean;
  /** Of every deadline; default the machine's. */
  readonly timer?: World["timer"];
}

export class Connections {
  readonly agent: Agent;
  readonly timer: World["timer"];
  readonly #lines: KeptLines;

  constructor({ keep = true, timer = systemTimer }: ConnectionsOptions = {}) {
    this.timer = timer;
    this.agent = new Agent({ keepAlive: keep, maxFreeSockets: IDLE_MAX, scheduling: "lifo" });
    this.#lines = new KeptLines({ connect, peer: "the daemon", idleMax: keep ? IDLE_MAX : 0, timer });
  }

  /** Whether none is left of those that were kept. */
  get isEmpty(): boolean {
    const { freeSockets, sockets } = this.agent;
    return this.#lines.isEmpty && Object.keys(freeSockets).length === 0 && Object.keys(sockets).length === 0;
  }

  /** Rejects with `ConnectionLost`, or with the reason of an abort. */
  async ask(address: DaemonAddress, question: Question): Promise<Answer> {
    try {
      const { status, body } = await this.#lines.ask(address, question);
      return { status, body };
    } catch (error) {
      throw told(error);
    }
  }

  /** Likewise. What is engaged is not closed with these. */
  async engage(address: DaemonAddress, question: Question): Promise<Answer | Engaged> {
    try {
      return await this.#lines.engage(address, question);
    } catch (error) {
      throw told(error);
    }
  }

  destroy(): void {
    this.agent.destroy();
    this.#lines.destroy();
  }
}

/** A daemon answers plainly. One that does not has lost its way, or somebody else is there. */
function told(error: unknown): unknown {
  if (!(error instanceof StrangeAnswer)) return error;
  if (error.isTooLong) return new SandlotError("bad_sandbox_response", { problem: error.message });
  return lost(error, { hadBegun: true });
}

export function lost(cause: Error, facts: { readonly hadBegun?: boolean } = {}): ConnectionLost {
  return new ConnectionLost(cause.message, { cause, ...facts });
}
