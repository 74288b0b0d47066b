/**
 * What comes with a request of the AIO API. Its clients send files as base64 in JSON, and look only at the status of the answer:
 * what is too large is no failed operation, but an HTTP error.
 */

import type { IncomingMessage } from "node:http";

/** A file of 100 MiB, the most that clients move, in base64 and with some words around it. */
const BODY_MAX_BYTES = 140 * 1024 * 1024;

export class BodyTooLarge extends Error {
  override readonly name = "BodyTooLarge";
}

/** The rest of what is too large is read and thrown away, so that the connection stays usable. */
export function readBody(request: IncomingMessage): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    let chunks: Buffer[] = [];
    let size = 0;
    request.on("data", (chunk: Buffer) => {
      size += chunk.length;
      if (size > BODY_MAX_BYTES) chunks = [];
      else chunks.push(chunk);
    });
    request.on("end", () => {
      if (size > BODY_MAX_BYTES) reject(new BodyTooLarge(`the request has more than ${BODY_MAX_BYTES} bytes`));
      else resolve(Buffer.concat(chunks, size));
    });
    request.on("error", reject);
    request.on("close", () => reject(new Error("the request was broken off")));
  });
}
