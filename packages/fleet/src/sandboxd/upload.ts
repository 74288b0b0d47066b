/**
 * Sends content on its own connection: pieces with a length of four bytes before each, and a piece of length 0 as the
 * end. The daemon's response comes after it, or earlier when it needs no more content.
 */

import type { Duplex } from "node:stream";
import { DAEMON_LIMITS, type DaemonPath, STREAM_LIMITS } from "../untrusted/limits.ts";
import { giveBack } from "../world/given-bytes.ts";
import { ConnectionLost } from "./connection-pool.ts";
import { nothingSchema, parseShort, thrownError } from "./replies.ts";
import type { Call, Wire } from "./wire.ts";

const HEADER_BYTES = 4;
/** How many bytes may wait here for the daemon. */
const WAITING_MAX_BYTES = 1024 * 1024;

/** Rejects with the daemon's error, with the error of the content, or with `ConnectionLost`. */
export async function upload(
  wire: Wire,
  path: DaemonPath,
  query: Call["query"],
  content: AsyncIterable<Uint8Array>,
): Promise<void> {
  const socket = await wire.takeOver(path, query);
  const answer = answerOf(socket);
  try {
    // A refused sender stops; failed content is not awaited either.
    const sent = send(wire, socket, content).then(() => inTime(wire, socket, answerMs(path), answer));
    const body = await Promise.race([answer, sent]);
    const refusal = thrownError(body);
    if (refusal !== null) throw refusal;
    parseShort(nothingSchema, body);
  } finally {
    socket.destroy();
  }
}

/** Stops when the daemon has closed the connection; its response states the reason. */
async function send(wire: Wire, socket: Duplex, content: AsyncIterable<Uint8Array>): Promise<void> {
  for await (const chunk of content) {
    if (socket.destroyed || socket.readableEnded) return;
    if (chunk.length === 0) continue;
    socket.cork();
    socket.write(header(chunk.length));
    socket.write(chunk, (error) => {
      if (!error) giveBack(chunk);
    });
    socket.uncork();
    if (socket.writableLength > WAITING_MAX_BYTES) await inTime(wire, socket, STREAM_LIMITS.unsentMs, drained(socket));
  }
  socket.write(header(0));
}

/** A missed deadline ends the connection, and with it everything that waits for it. */
async function inTime<T>(wire: Wire, socket: Duplex, deadlineMs: number, work: Promise<T>): Promise<T> {
  const late = () => socket.destroy(new Error(`the daemon did not take or answer it within ${deadlineMs} ms`));
  const timer = wire.timer(deadlineMs, late);
  try {
    return await work;
  } finally {
    timer.cancel();
  }
}

function answerMs(path: DaemonPath): number {
  return DAEMON_LIMITS[path].firstByteMs ?? STREAM_LIMITS.unsentMs;
}

function header(length: number): Buffer {
  const bytes = Buffer.allocUnsafe(HEADER_BYTES);
  bytes.writeUInt32BE(length);
  return bytes;
}

function drained(socket: Duplex): Promise<void> {
  return new Promise((resolve) => {
    const go = (): void => {
      for (const event of ["drain", "end", "close"]) socket.off(event, go);
      resolve();
    };
    for (const event of ["drain", "end", "close"]) socket.on(event, go);
  });
}

function answerOf(socket: Duplex): Promise<Buffer> {
  const answer = new Promise<Buffer>((resolve, reject) => {
    const parts: Buffer[] = [];
    let size = 0;
    let problem = "the daemon ended before it had answered";
    socket.on("data", (part: Buffer) => {
      size += part.length;
      if (size <= STREAM_LIMITS.refusalMaxBytes) parts.push(part);
      else socket.destroy();
    });
    socket.on("error", (error) => {
      problem = error.message;
    });
    socket.on("end", () => (size > 0 ? resolve(Buffer.concat(parts)) : undefined));
    socket.on("close", () => (size > 0 ? resolve(Buffer.concat(parts)) : reject(new ConnectionLost(problem))));
  });
  answer.catch(() => {});
  return answer;
}

/** Content that remembers its failure. */
export class Source implements AsyncIterable<Uint8Array> {
  failure: { readonly error: unknown } | null = null;
  readonly #content: AsyncIterable<Uint8Array>;

  constructor(content: AsyncIterable<Uint8Array>) {
    this.#content = content;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array> {
    try {
      yield* this.#content;
    } catch (error) {
      this.failure = { error };
      throw error;
    }
  }
}
