/**
 * Replaces a secret's value in a stream.
 *
 * The replacement has the same length, so length headers stay right. It holds back only bytes that could be the
 * beginning of the value, mostly none, so a stream keeps streaming.
 */

import { Transform, type TransformCallback } from "node:stream";

const MARK = "*";

export class Redactor extends Transform {
  readonly #needles: readonly Buffer[];
  #held = Buffer.alloc(0);

  constructor(values: readonly string[]) {
    super();
    this.#needles = values.filter((value) => value !== "").map((value) => Buffer.from(value, "latin1"));
  }

  override _transform(chunk: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    // A copy: the producer may still use the chunk.
    const bytes = Buffer.concat([this.#held, chunk]);
    for (const needle of this.#needles) blackOut(bytes, needle);
    const heldCount = Math.max(0, ...this.#needles.map((needle) => beginningAtEnd(bytes, needle)));
    this.#held = bytes.subarray(bytes.length - heldCount);
    done(null, bytes.subarray(0, bytes.length - heldCount));
  }

  override _flush(done: TransformCallback): void {
    done(null, this.#held);
  }
}

export function redactText(text: string, values: readonly string[]): string {
  return values.reduce((result, value) => result.replaceAll(value, MARK.repeat(value.length)), text);
}

function blackOut(bytes: Buffer, needle: Buffer): void {
  for (let at = bytes.indexOf(needle); at >= 0; at = bytes.indexOf(needle, at + needle.length)) {
    bytes.fill(MARK, at, at + needle.length);
  }
}

/** How many bytes at the end are also the beginning of the needle. */
function beginningAtEnd(bytes: Buffer, needle: Buffer): number {
  for (let count = Math.min(bytes.length, needle.length - 1); count > 0; count -= 1) {
    if (bytes.compare(needle, 0, count, bytes.length - count) === 0) return count;
  }
  return 0;
}
