/** A command's output, from the server's byte offsets: the newest bytes up to the limit, and how many came before. */

import { SANDBOX_LIMITS } from "@sandlot/contract";

const MAX_BYTES = SANDBOX_LIMITS.execOutputMaxBytes;

export class Output {
  readonly #parts: Buffer[] = [];
  #heldBytes = 0;
  #endOffset = 0;

  /** The total size. */
  get endOffset(): number {
    return this.#endOffset;
  }

  /** `endOffset` is the server's offset after this text; undecodable text may have another length. */
  add(text: string, endOffset: number): void {
    const bytes = Buffer.from(text, "utf8");
    this.#parts.push(bytes);
    this.#heldBytes += bytes.length;
    this.#endOffset = Math.max(endOffset, this.#endOffset + (endOffset === 0 ? bytes.length : 0));
    while (this.#heldBytes > MAX_BYTES) this.#shorten(this.#heldBytes - MAX_BYTES);
  }

  /** The last `maxBytes` as text, and how much is missing before them. */
  tail(maxBytes: number): { readonly text: string; readonly droppedBytes: number; readonly omittedBytes: number } {
    const whole = Buffer.concat(this.#parts, this.#heldBytes);
    let omittedBytes = Math.max(0, whole.length - maxBytes);
    // Not from the middle of a character.
    while (omittedBytes > 0 && ((whole[omittedBytes] ?? 0) & 0xc0) === 0x80) omittedBytes++;
    const droppedBytes = Math.max(0, this.#endOffset - this.#heldBytes);
    return { text: whole.toString("utf8", omittedBytes), droppedBytes, omittedBytes };
  }

  #shorten(byBytes: number): void {
    const first = this.#parts.shift() ?? Buffer.alloc(0);
    if (first.length > byBytes) this.#parts.unshift(first.subarray(byBytes));
    this.#heldBytes -= Math.min(first.length, byBytes);
  }
}

/** The offset to read from, to get what is kept of so many bytes. */
export function keptFrom(endOffset: number): number {
  return Math.max(0, endOffset - MAX_BYTES);
}
