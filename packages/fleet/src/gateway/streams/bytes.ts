/** Bytes in and out of a request, with limits. Resources are released however they end. */

import { Readable } from "node:stream";
import { SandlotError } from "@sandlot/contract";
import { give } from "../../world/given-bytes.ts";
import type { World } from "../../world/world.ts";
import { CallerGone } from "../thread-use.ts";

/**
 * A streaming response. The first chunk is read before the head is sent, so that an unreadable source is an error and
 * not a broken response. `done` runs once, when the last byte is out or the reader is gone.
 */
export async function streamed(source: AsyncIterable<Uint8Array>, done: () => Promise<void>): Promise<Readable> {
  const iterator = source[Symbol.asyncIterator]();
  let first: IteratorResult<Uint8Array>;
  try {
    first = await iterator.next();
  } catch (error) {
    await done();
    throw error;
  }
  async function* pieces() {
    try {
      for (let next = first; next.done !== true; next = await iterator.next()) yield next.value;
    } finally {
      await iterator.return?.();
      await done();
    }
  }
  const readable = Readable.from(pieces(), { objectMode: false, highWaterMark: 256 * 1024 });
  // A generator that never started runs no `finally`; reading starts it.
  readable.read(0);
  return readable;
}

/** A stream whose first chunk has come: one that cannot start is an error here, before the response has begun. */
export async function begun<T>(source: AsyncIterable<T>): Promise<AsyncIterable<T>> {
  const iterator = source[Symbol.asyncIterator]();
  const first = await iterator.next();
  return (async function* () {
    try {
      for (let next = first; next.done !== true; next = await iterator.next()) yield next.value;
    } finally {
      await iterator.return?.();
    }
  })();
}

export interface Intake {
  readonly what: string;
  readonly maxBytes: number;
  readonly stallMs: number;
  readonly world: World;
  /** The body is Node's own, so no other code uses its chunks. */
  readonly gives?: boolean;
}

/** The body of a request in chunks: refused when it grows too large, given up when it stalls. */
export async function* limited(body: Readable, intake: Intake): AsyncGenerator<Uint8Array> {
  const { what, maxBytes, stallMs, world, gives = false } = intake;
  let size = 0;
  const pieces = new Pieces(body);
  try {
    while (true) {
      if (!pieces.isReady()) {
        const timer = world.timer(stallMs, () => body.destroy(new SlowClient(stallMs)));
        await pieces.ready().finally(() => timer.cancel());
      }
      const piece = pieces.take();
      if (piece === null) return;
      size += piece.byteLength;
      if (size > maxBytes) throw new SandlotError("payload_too_large", { what, maxBytes });
      yield gives ? give(piece) : piece;
    }
  } catch (error) {
    throw error instanceof SlowClient ? stalled(stallMs) : error;
  } finally {
    // Not destroyed when refused half-way: a client that is still sending would not see the response.
    pieces.leave();
  }
}

/** How much of a body is buffered here before its sender has to wait. */
const WAITING_MAX_BYTES = 256 * 1024;

/**
 * A body's chunks without copying. A stream's own iterator joins buffered chunks into a new buffer, which doubles the
 * garbage of a large file.
 */
class Pieces {
  readonly #body: Readable;
  readonly #waiting: Uint8Array[] = [];
  readonly #onData = (piece: Uint8Array) => this.#came(piece);
  readonly #onEnd = () => this.#finish(null);
  readonly #onError = (error: unknown) => this.#finish(error);
  readonly #onClose = () => this.#finish(new CallerGone());
  #waitingBytes = 0;
  #ended = false;
  #failure: unknown = null;
  #wake: () => void = () => undefined;

  constructor(body: Readable) {
    this.#body = body;
    body.on("data", this.#onData).on("end", this.#onEnd).on("error", this.#onError).on("close", this.#onClose);
    if (body.readableEnded) this.#onEnd();
    else if (body.destroyed) this.#finish(body.errored ?? new CallerGone());
  }

  isReady(): boolean {
    return this.#waiting.length > 0 || this.#ended;
  }

  async ready(): Promise<void> {
    if (!this.isReady()) await new Promise<void>((resolve) => (this.#wake = resolve));
  }

  /** `null` at the end. Throws the body's error, after everything that came before it. */
  take(): Uint8Array | null {
    const piece = this.#waiting.shift();
    if (piece === undefined) {
      if (this.#failure !== null) throw this.#failure;
      return null;
    }
    this.#waitingBytes -= piece.byteLength;
    if (this.#waitingBytes < WAITING_MAX_BYTES / 2 && this.#body.isPaused()) this.#body.resume();
    return piece;
  }

  /** Discards the rest. */
  leave(): void {
    this.#body.off("data", this.#onData).off("end", this.#onEnd).off("close", this.#onClose);
    // The error listener stays, for late errors.
    if (!this.#body.destroyed) this.#body.resume();
  }

  #came(piece: Uint8Array): void {
    this.#waiting.push(piece);
    this.#waitingBytes += piece.byteLength;
    if (this.#waitingBytes >= WAITING_MAX_BYTES) this.#body.pause();
    this.#wake();
  }

  #finish(failure: unknown): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#failure = failure;
    this.#wake();
  }
}

class SlowClient extends Error {
  constructor(stallMs: number) {
    super(`nothing came for ${stallMs} ms`);
  }
}

function stalled(timeoutMs: number): SandlotError {
  return new SandlotError("wait_timeout", { waitedFor: "the rest of the body", timeoutMs });
}
