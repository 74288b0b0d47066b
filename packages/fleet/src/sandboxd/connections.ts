/**
 * Connections to one daemon, kept for the next request.
 *
 *   `agent`       node:http, for responses that are read as they arrive
 *   `send`        a request whose response is read whole, on a pooled connection
 *   `openStream`  a request whose response does not end; its connection leaves the pool and belongs to the caller
 */

import { Agent } from "node:http";
import { SandlotError } from "@sandlot/contract";
import { systemTimer } from "../world/system-world.ts";
import type { World } from "../world/world.ts";
import { ConnectionLost, ConnectionPool, type PoolAddress, type PoolRequest } from "./connection-pool.ts";
import { type OpenStream, type PoolResponse, UnexpectedResponse } from "./response-parser.ts";

export { ConnectionLost, type PoolRequest } from "./connection-pool.ts";
export type { OpenStream } from "./response-parser.ts";

export type DaemonAddress = PoolAddress;

/** Connections kept for later; each costs both sides a few kilobytes. */
const IDLE_MAX = 16;

export interface ConnectionsOptions {
  /** With `false` each request has a connection of its own, and none has to be closed. */
  readonly keep?: boolean;
  /** Of every deadline; default the machine's. */
  readonly timer?: World["timer"];
}

export class Connections {
  readonly agent: Agent;
  readonly timer: World["timer"];
  readonly #pool: ConnectionPool;

  constructor({ keep = true, timer = systemTimer }: ConnectionsOptions = {}) {
    this.timer = timer;
    this.agent = new Agent({ keepAlive: keep, maxFreeSockets: IDLE_MAX, scheduling: "lifo" });
    this.#pool = new ConnectionPool({ idleMax: keep ? IDLE_MAX : 0, timer });
  }

  /** Whether the pool is empty. */
  get isEmpty(): boolean {
    const { freeSockets, sockets } = this.agent;
    return this.#pool.isEmpty && Object.keys(freeSockets).length === 0 && Object.keys(sockets).length === 0;
  }

  /** Rejects with `ConnectionLost`, with `bad_sandbox_response`, or with the reason of an abort. */
  async send(address: DaemonAddress, request: PoolRequest): Promise<PoolResponse> {
    try {
      return await this.#pool.send(address, request);
    } catch (error) {
      throw toContractError(error);
    }
  }

  /** Likewise. `destroy` does not close an open stream. */
  async openStream(address: DaemonAddress, request: PoolRequest): Promise<PoolResponse | OpenStream> {
    try {
      return await this.#pool.openStream(address, request);
    } catch (error) {
      throw toContractError(error);
    }
  }

  destroy(): void {
    this.agent.destroy();
    this.#pool.destroy();
  }
}

/** An unexpected response means that the peer is not our daemon. */
function toContractError(error: unknown): unknown {
  if (!(error instanceof UnexpectedResponse)) return error;
  if (error.isTooLong) return new SandlotError("bad_sandbox_response", { problem: error.message });
  return lost(error, { hadBegun: true });
}

export function lost(cause: Error, facts: { readonly hadBegun?: boolean } = {}): ConnectionLost {
  return new ConnectionLost(cause.message, { cause, ...facts });
}
