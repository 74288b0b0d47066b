/**
 * A connection pool to one server. Idle connections are closed earlier than any server does, so that a connection is
 * not reused at the moment the server closes it.
 */

import { Agent, type ClientRequestArgs } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";

/** Servers close theirs after five seconds or more. */
const IDLE_MS = 2_000;
const IDLE_CONNECTIONS_MAX = 16;

export class AioAgent extends Agent {
  readonly #connect: (() => Promise<Socket>) | null;

  /** `connect` makes connections where an address alone is not enough. */
  constructor(connect: (() => Promise<Socket>) | null) {
    // Only idle connections are closed for being idle; a pending request has its own deadline.
    super({ keepAlive: true, maxFreeSockets: IDLE_CONNECTIONS_MAX, scheduling: "lifo", timeout: IDLE_MS });
    this.#connect = connect;
  }

  override createConnection(
    options: ClientRequestArgs,
    callback?: (error: Error | null, stream: Duplex) => void,
  ): Duplex | null | undefined {
    if (this.#connect === null) return super.createConnection(options, callback);
    const tell = callback as unknown as (error: Error | null, stream?: Duplex) => void;
    this.#connect().then(
      (socket) => tell(null, socket),
      (error: Error) => tell(error),
    );
    return undefined;
  }
}
