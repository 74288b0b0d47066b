/**
 * What a route is: a method and a path, and the work behind it.
 */

import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";

export type Query = Readonly<Record<string, string | undefined>>;

/** Answers, or throws what the answer then is. */
export type Handler = (request: IncomingMessage, response: ServerResponse, query: Query) => Promise<void> | void;

export type Routes = Readonly<Record<string, Handler>>;

/** Takes a connection over, or throws what the answer then is. Until it has answered, nothing was sent. */
export type Takeover = (
  request: IncomingMessage,
  connection: { readonly socket: Duplex; readonly head: Buffer },
  query: Query,
) => Promise<void>;

export type Takeovers = Readonly<Record<string, Takeover>>;
