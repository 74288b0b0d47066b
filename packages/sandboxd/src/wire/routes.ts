/** Routes: a method and a path, and their handler. */

import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";

export type Query = Readonly<Record<string, string | undefined>>;

/** Responds, or throws the error to respond with. */
export type Handler = (request: IncomingMessage, response: ServerResponse, query: Query) => Promise<void> | void;

export type Routes = Readonly<Record<string, Handler>>;

/** Takes a connection over, or throws the error to respond with. Until then nothing was sent. */
export type Takeover = (
  request: IncomingMessage,
  connection: { readonly socket: Duplex; readonly head: Buffer },
  query: Query,
) => Promise<void>;

export type Takeovers = Readonly<Record<string, Takeover>>;
