/**
 * The kept output of one stream of a command: its last `maxBytes`, addressed by the byte offset since the command
 * began.
 *
 * Invariants
 * - The ring holds exactly the bytes `[startOffset, endOffset)`. `startOffset` is also the number of dropped bytes.
 * - A write never waits and never makes the ring hold more than `maxBytes`. A reader that must not lose a byte stops
 *   reading in time (`output-hold.ts`).
 * - Listeners run after each write and once more when the stream is closed.
 */

import { tornBytes } from "@sandlot/contract";

export interface HeldBytes {
  /** The offset of these bytes. Later than requested when the bytes between are dropped. */
  readonly offset: number;
  readonly bytes: Buffer;
}

/** The end of a stream, for a result. */
export interface OutputTail {
  readonly bytes: Buffer;
  /** No longer held. */
  readonly droppedBytes: number;
  /** Held, and before `bytes`. */
  readonly omittedBytes: number;
}

interface Block {
  readonly data: Buffer;
  start: number;
  end: number;
}

/** Most commands print little; a busy one is copied in larger steps. */
const FIRST_BLOCK_BYTES = 4 * 1024;
const BLOCK_BYTES = 64 * 1024;

export class OutputRing {
  #maxBytes: number;
  #blocks: Block[] = [];
  #startOffset = 0;
  #endOffset = 0;
  #closed = false;
  #retired = false;
  #frozen = false;
  readonly #listeners = new Set<() => void>();

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  get maxBytes(): number {
    return this.#maxBytes;
  }

  get startOffset(): number {
    return this.#startOffset;
  }

  get endOffset(): number {
    return this.#endOffset;
  }

  get heldBytes(): number {
    return this.#endOffset - this.#startOffset;
  }

  /** Whether the stream has ended. */
  get closed(): boolean {
    return this.#closed;
  }

  /** Copies: the caller may use its buffer again. */
  write(chunk: Uint8Array): void {
    if (this.#frozen) return;
    if (this.#retired) {
      this.#endOffset += chunk.length;
      this.#startOffset = this.#endOffset;
      this.#tell();
      return;
    }
    for (let at = 0; at < chunk.length; ) {
      const block = this.#room(chunk.length - at);
      const part = chunk.subarray(at, at + block.data.length - block.end);
      block.data.set(part, block.end);
      block.end += part.length;
      this.#endOffset += part.length;
      at += part.length;
      this.#dropSurplus();
    }
    this.#tell();
  }

  /** Makes room for the rest in a pipe. */
  widen(extraBytes: number): void {
    this.#maxBytes += extraBytes;
  }

  /** Has no readers any more: new bytes are counted but not kept. */
  retire(): void {
    this.#retired = true;
    this.#blocks = [];
    this.#startOffset = this.#endOffset;
  }

  /** Keeps the held bytes; new ones are neither kept nor counted. */
  freeze(): void {
    this.#frozen = true;
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#tell();
  }

  /** Up to `maxBytes` of the held bytes from `offset` on. */
  read(offset: number, maxBytes: number): HeldBytes {
    const from = Math.min(Math.max(offset, this.#startOffset), this.#endOffset);
    const parts: Buffer[] = [];
    let blockOffset = this.#startOffset;
    let left = Math.min(maxBytes, this.#endOffset - from);
    for (const { data, start, end } of this.#blocks) {
      const skip = Math.max(0, from - blockOffset);
      blockOffset += end - start;
      if (skip >= end - start) continue;
      if (left <= 0) break;
      const part = data.subarray(start + skip, Math.min(end, start + skip + left));
      parts.push(part);
      left -= part.length;
    }
    const [only] = parts;
    // A copy: the block that is being filled may be dropped, and the reader may be slow.
    return { offset: from, bytes: parts.length === 1 && only !== undefined ? Buffer.from(only) : Buffer.concat(parts) };
  }

  /** The held bytes as text. A character that lost its first bytes is dropped whole. */
  text(): { readonly text: string; readonly droppedBytes: number } {
    const { bytes, droppedBytes } = this.tail(this.heldBytes);
    return { text: bytes.toString("utf8"), droppedBytes };
  }

  /** The last `maxBytes` of the held bytes, from a whole character on, and how much lies before them. */
  tail(maxBytes: number): OutputTail {
    const omitted = Math.max(0, this.heldBytes - maxBytes);
    const { bytes } = this.read(this.#startOffset + omitted, maxBytes);
    const torn = this.#startOffset + omitted === 0 ? 0 : tornBytes(bytes);
    const lost = omitted === 0 ? { dropped: torn, omitted: 0 } : { dropped: 0, omitted: torn };
    return {
      bytes: bytes.subarray(torn),
      droppedBytes: this.#startOffset + lost.dropped,
      omittedBytes: omitted + lost.omitted,
    };
  }

  /** Returns a function that stops listening. */
  listen(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #tell(): void {
    for (const listener of this.#listeners) listener();
  }

  #room(wanted: number): Block {
    const last = this.#blocks.at(-1);
    if (last !== undefined && last.end < last.data.length) return last;
    const size = last === undefined && wanted <= FIRST_BLOCK_BYTES ? FIRST_BLOCK_BYTES : BLOCK_BYTES;
    const block = { data: Buffer.allocUnsafeSlow(Math.min(size, this.#maxBytes)), start: 0, end: 0 };
    this.#blocks.push(block);
    return block;
  }

  #dropSurplus(): void {
    while (this.heldBytes > this.#maxBytes) {
      const block = this.#blocks[0];
      if (block === undefined) return;
      const drop = Math.min(this.heldBytes - this.#maxBytes, block.end - block.start);
      block.start += drop;
      this.#startOffset += drop;
      if (block.start === block.data.length) this.#blocks.shift();
    }
  }
}
