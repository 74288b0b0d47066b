/** Uploads: through `/v1/file/write`, piece by piece, so that neither side holds more than a piece. */

import { SandlotError } from "@sandlot/contract";
import type { AioCalls } from "../calls.ts";
import { fileError } from "../wire/answers.ts";
import { fileWrittenSchema } from "../wire/schemas.ts";

/** Of one request, before encoding. */
const PIECE_BYTES = 3 * 1024 * 1024;

export class Staging {
  readonly #calls: AioCalls;

  constructor(calls: AioCalls) {
    this.#calls = calls;
  }

  /** A file in `/tmp` that the caller removes. */
  async stage(content: string | Uint8Array): Promise<string> {
    const path = `/tmp/.sandlot-${this.#calls.world.randomHex(8)}`;
    await this.fill(path, once(bytesOf(content)));
    return path;
  }

  async fill(path: string, content: AsyncIterable<Uint8Array>): Promise<void> {
    let append = false;
    for await (const piece of pieces(content)) {
      const fields = { file: path, content: piece.toString("base64"), encoding: "base64", append };
      await this.#calls.post(fileWrittenSchema, "/v1/file/write", fields, {
        onRefusal: (refusal) =>
          refusal.file === null
            ? new SandlotError("internal", { problem: `${path}: ${refusal.message}` }, { cause: refusal })
            : fileError(refusal.file, path),
      });
      append = true;
    }
  }
}

export function bytesOf(content: string | Uint8Array): Uint8Array {
  return typeof content === "string" ? Buffer.from(content, "utf8") : content;
}

export async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
}

/** In pieces of one size, and at least one. */
async function* pieces(content: AsyncIterable<Uint8Array>): AsyncGenerator<Buffer> {
  let held: Buffer = Buffer.alloc(0);
  let isFirst = true;
  for await (const chunk of content) {
    held = held.length === 0 ? Buffer.from(chunk) : Buffer.concat([held, chunk]);
    for (; held.length >= PIECE_BYTES; held = held.subarray(PIECE_BYTES), isFirst = false)
      yield held.subarray(0, PIECE_BYTES);
  }
  if (held.length > 0 || isFirst) yield held;
}
