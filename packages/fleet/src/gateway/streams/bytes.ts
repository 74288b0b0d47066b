/**
 * Bytes in and out of a request, with limits, and with what is held for them given back however they end.
 */

import { Readable } from "node:stream";
import { SandlotError } from "@sandlot/contract";
import type { World } from "../../world/world.ts";

/**
 * An answer that streams. The first piece is asked for before the head is sent, so that what cannot be read at all is
 * an error and not a torn answer. `done` runs once, when the last byte is out or the reader has gone.
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
  // A generator that was never begun has no `finally`; beginning to read begins it.
  readable.read(0);
  return readable;
}

/** A stream whose first piece has come: what cannot begin at all is an error here, before an answer has begun. */
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
}

/** The body of a request as pieces: refused when it grows too large, given up when it stops coming. */
export async function* limited(body: Readable, { what, maxBytes, stallMs, world }: Intake): AsyncGenerator<Uint8Array> {
  let size = 0;
  // Not destroyed when it is refused half-way: a client that is still sending would not see the answer.
  const iterator = body.iterator({ destroyOnReturn: false }) as AsyncIterator<Uint8Array>;
  try {
    while (true) {
      const timer = world.timer(stallMs, () => body.destroy(new SlowClient(stallMs)));
      const next = await iterator.next().finally(() => timer.cancel());
      if (next.done === true) return;
      size += next.value.byteLength;
      if (size > maxBytes) throw new SandlotError("payload_too_large", { what, maxBytes });
      yield next.value;
    }
  } catch (error) {
    throw error instanceof SlowClient ? stalled(stallMs) : error;
  } finally {
    await iterator.return?.();
    if (!body.destroyed) body.resume();
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
