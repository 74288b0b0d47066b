/**
 * The kept output of a command: its last `maxBytes`. Older bytes are dropped and counted.
 */

import { tornBytes } from "@sandlot/contract";
import type { Sink } from "./streams.ts";

/** Makes a command wait for its followers; see `output-hold.ts`. */
export interface WriteGate {
  /** Resolves when this many more bytes drop none that a follower still wants. */
  room(bytes: number): Promise<void>;
}

const BLOCK_BYTES = 64 * 1024;
/** The largest piece for a follower. */
const PIECE_MAX_BYTES = 256 * 1024;

export class OutputRing implements Sink {
  readonly #maxBytes: number;
  /** Full blocks and a partly filled one; a write of one byte costs one byte. */
  #blocks: { readonly data: Uint8Array; start: number; end: number }[] = [];
  #held = 0;
  #dropped = 0;
  #released = false;
  #gate: WriteGate | null = null;
  readonly #wake = new Set<() => void>();

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** All bytes written so far. */
  get totalBytes(): number {
    return this.#dropped + this.#held;
  }

  get heldBytes(): number {
    return this.#held;
  }

  get maxBytes(): number {
    return this.#maxBytes;
  }

  /** From now on a write waits until it fits. */
  heldBy(gate: WriteGate): void {
    this.#gate = gate;
  }

  async write(chunk: Uint8Array): Promise<void> {
    if (this.#gate === null) return this.#take(chunk);
    for (let at = 0; at < chunk.length; at += BLOCK_BYTES) {
      const part = chunk.subarray(at, at + BLOCK_BYTES);
      await this.#gate.room(part.length);
      this.#take(part);
    }
  }

  #take(chunk: Uint8Array): void {
    if (this.#released) return;
    for (let at = 0; at < chunk.length; ) {
      let block = this.#blocks.at(-1);
      if (block === undefined || block.end === BLOCK_BYTES) {
        block = { data: new Uint8Array(BLOCK_BYTES), start: 0, end: 0 };
        this.#blocks.push(block);
      }
      const part = chunk.subarray(at, at + BLOCK_BYTES - block.end);
      block.data.set(part, block.end);
      block.end += part.length;
      this.#held += part.length;
      at += part.length;
      this.#dropSurplus();
    }
    for (const wake of this.#wake) wake();
  }

  /** A piece of the held bytes from `offset` on, and its offset: later than requested when bytes were dropped. */
  from(offset: number): { readonly offset: number; readonly bytes: Uint8Array } {
    const skip = Math.max(0, Math.min(offset - this.#dropped, this.#held));
    return { offset: this.#dropped + skip, bytes: this.#bytes(skip, PIECE_MAX_BYTES) };
  }

  /**
   * The end of the held bytes, as text, and what is missing before it. A character that lost its first bytes is left
   * out.
   */
  tail(maxBytes: number): { readonly text: string; readonly droppedBytes: number; readonly omittedBytes: number } {
    const omitted = Math.max(0, this.#held - maxBytes);
    const bytes = this.#bytes(omitted);
    const isTorn = this.#dropped + omitted > 0;
    const torn = isTorn ? tornBytes(bytes) : 0;
    const text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes.subarray(torn));
    return omitted > 0
      ? { text, droppedBytes: this.#dropped, omittedBytes: omitted + torn }
      : { text, droppedBytes: this.#dropped + torn, omittedBytes: 0 };
  }

  /** Keeps nothing from now on: no result needs later writes. */
  release(): void {
    this.#blocks = [];
    this.#dropped += this.#held;
    this.#held = 0;
    this.#released = true;
  }

  /** Calls back after each write. Returns a function that stops it. */
  listen(wake: () => void): () => void {
    this.#wake.add(wake);
    return () => this.#wake.delete(wake);
  }

  #bytes(skip: number, maxBytes = Number.POSITIVE_INFINITY): Uint8Array {
    const bytes = new Uint8Array(Math.min(this.#held - skip, maxBytes));
    let at = -skip;
    for (const { data, start, end } of this.#blocks) {
      if (at >= bytes.length) break;
      const from = Math.min(start + Math.max(0, -at), end);
      const to = Math.max(0, at);
      bytes.set(data.subarray(from, Math.min(end, from + bytes.length - to)), to);
      at += end - start;
    }
    return bytes;
  }

  #dropSurplus(): void {
    while (this.#held > this.#maxBytes) {
      const block = this.#blocks[0];
      if (block === undefined) return;
      const drop = Math.min(this.#held - this.#maxBytes, block.end - block.start);
      block.start += drop;
      this.#held -= drop;
      this.#dropped += drop;
      if (block.start === BLOCK_BYTES) this.#blocks.shift();
    }
  }
}
