/**
 * What a route is: a method and a path, and the work behind it.
 */

import type { IncomingMessage, ServerResponse } from "node:http";

export type Query = Readonly<Record<string, string | undefined>>;

/** Answers, or throws what the answer then is. */
export type Handler = (request: IncomingMessage, response: ServerResponse, query: Query) => Promise<void> | void;

export type Routes = Readonly<Record<string, Handler>>;
