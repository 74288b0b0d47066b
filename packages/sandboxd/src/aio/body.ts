/**
 * The body of an AIO request. Clients send files as base64 in JSON, and check only the status: a body that is too large
 * is no failed operation, but an HTTP error.
 */

import type { IncomingMessage } from "node:http";
import { readBody as readWhole } from "../wire/body.ts";

/** A file of 100 MiB, the most that clients send, in base64 with some JSON around it. */
const BODY_MAX_BYTES = 140 * 1024 * 1024;

export class BodyTooLarge extends Error {
  override readonly name = "BodyTooLarge";
}

export function readBody(request: IncomingMessage): Promise<Buffer> {
  return readWhole(request, BODY_MAX_BYTES, (problem) => new BodyTooLarge(`the request is too large: ${problem}`));
}
