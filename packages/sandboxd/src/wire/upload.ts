/**
 * A connection that becomes the content of a file, for large content: without HTTP in between, into reused buffers, it
 * costs little more than the kernel's copies.
 *
 *   in    pieces: four bytes with the length, then the piece. A length of zero is the end
 *   out   one JSON object, `{}` or `{ error }`, then the end
 *
 * Invariants
 * - Content is complete only with its end. A connection that ends earlier has written nothing.
 * - A buffer is reused only when its content is written.
 */

import { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { SandlotError, TUNNEL_PROTOCOL } from "@sandlot/contract";
import { timer } from "../clock.ts";
import type { Content } from "../files/write.ts";

const BUFFERS = 4;
/** More than a unix socket holds: one read empties it. */
const BUFFER_BYTES = 256 * 1024;
const HEADER_BYTES = 4;
/** How long a sender may take to close after the response. */
const CLOSING_MAX_MS = 10_000;

export async function takeUpload(
  { socket, head }: { readonly socket: Duplex; readonly head: Buffer },
  write: (content: Content) => Promise<void>,
): Promise<void> {
  socket.write(`HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: ${TUNNEL_PROTOCOL}\r\n\r\n`);
  const incoming = new Incoming(socket, head);
  let answer: object = {};
  try {
    await write((put) => incoming.pour(put));
  } catch (error) {
    const problem = error instanceof Error ? error.message : String(error);
    answer = { error: (error instanceof SandlotError ? error : new SandlotError("internal", { problem })).toJSON() };
  }
  incoming.end(JSON.stringify(answer));
}

interface Filled {
  readonly pieces: readonly Uint8Array[];
  /** Its buffer may be reused. */
  release(): void;
}

/** The incoming data: read ahead as far as there are buffers. */
class Incoming {
  readonly #socket: Socket;
  readonly #free: Buffer[] = [];
  readonly #filled: Filled[] = [];
  readonly #pieces = new Pieces();
  #isPaused = false;
  #isCut = false;
  #isAnswered = false;
  #wake: () => void = () => {};

  constructor(socket: Duplex, head: Buffer) {
    this.#socket = this.#readInto(socket as Socket);
    this.#socket.on("error", () => {});
    for (const event of ["end", "close"] as const) {
      this.#socket.once(event, () => {
        this.#isCut = true;
        this.#wake();
      });
    }
    if (head.length > 0) this.#take(head, () => {});
    this.#socket.resume();
  }

  /** All of the content, in order. Rejects when it was cut off. */
  async pour(put: (pieces: readonly Uint8Array[]) => Promise<void>): Promise<void> {
    for (;;) {
      const filled = this.#filled.shift();
      if (filled !== undefined) {
        await put(filled.pieces);
        filled.release();
      } else if (this.#pieces.isOver) return;
      else if (this.#isCut) throw new Error("the content was cut off");
      else
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
    }
  }

  /**
   * Drops further data until the sender has the response and closes. Closing at once would fail the sender's next
   * write, and could lose the response.
   */
  end(answer: string): void {
    this.#isAnswered = true;
    const closing = timer(CLOSING_MAX_MS, () => this.#socket.destroy());
    this.#socket.once("close", () => closing.cancel());
    this.#socket.end(answer);
    for (const filled of this.#filled.splice(0)) filled.release();
    this.#goOn();
  }

  /** The same connection, read into our buffers. Node has no public way to choose those of an accepted one. */
  #readInto(socket: Socket & { _handle?: unknown }): Socket {
    const { _handle: handle } = socket;
    // The handle of a TLS connection decrypts, and belongs to its own kind of socket.
    const isPlain = !("encrypted" in socket);
    if (!isPlain || handle === null || typeof handle !== "object" || !("useUserBuffer" in handle)) {
      socket.on("data", (bytes: Buffer) => {
        this.#take(bytes, () => this.#goOn());
        if (this.#filled.length < BUFFERS) return;
        this.#isPaused = true;
        socket.pause();
      });
      return socket;
    }
    for (let made = 0; made < BUFFERS; made++) this.#free.push(Buffer.allocUnsafeSlow(BUFFER_BYTES));
    socket.pause();
    socket._handle = null;
    const next = () => this.#free.pop() ?? Buffer.allocUnsafeSlow(BUFFER_BYTES);
    const onread = { buffer: next, callback: (count: number, buffer: Uint8Array) => this.#read(count, buffer) };
    return new Socket({ handle, onread, readable: true, writable: true, allowHalfOpen: true } as object);
  }

  #read(count: number, buffer: Uint8Array): boolean {
    this.#take(buffer.subarray(0, count), () => {
      this.#free.push(buffer as Buffer);
      this.#goOn();
    });
    // If this is the last but one, the next read takes the last: then reading pauses.
    this.#isPaused = this.#free.length <= 1;
    return !this.#isPaused;
  }

  #goOn(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    this.#socket.resume();
  }

  #take(bytes: Uint8Array, release: () => void): void {
    if (this.#isAnswered) {
      release();
      return;
    }
    this.#filled.push({ pieces: this.#pieces.of(bytes), release });
    this.#wake();
  }
}

/** Finds the pieces in the stream, regardless of its chunks. */
class Pieces {
  readonly #header = Buffer.alloc(HEADER_BYTES);
  #headerBytes = 0;
  #leftBytes = 0;
  #isOver = false;

  get isOver(): boolean {
    return this.#isOver;
  }

  of(bytes: Uint8Array): readonly Uint8Array[] {
    const found: Uint8Array[] = [];
    for (let at = 0; at < bytes.length && !this.#isOver; ) {
      if (this.#leftBytes === 0) {
        this.#header[this.#headerBytes++] = bytes[at++] ?? 0;
        if (this.#headerBytes < HEADER_BYTES) continue;
        this.#headerBytes = 0;
        this.#leftBytes = this.#header.readUInt32BE();
        this.#isOver = this.#leftBytes === 0;
        continue;
      }
      const piece = bytes.subarray(at, at + this.#leftBytes);
      found.push(piece);
      this.#leftBytes -= piece.length;
      at += piece.length;
    }
    return found;
  }
}
