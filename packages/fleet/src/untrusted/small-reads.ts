/**
 * Feeds bytes from a sandbox to Node's HTTP parser a part at a time, and yields between two parts.
 *
 * One read of a socket brings up to 64 KiB, which the parser processes at once: enough for thousands of tiny chunks or
 * of interim responses, and 50 ms of processor time. In parts, a connection that is ended after the first is ended
 * before the second.
 */

import type { ClientRequest } from "node:http";
import type { Readable } from "node:stream";
import { nextTurn } from "../world/system-world.ts";

const PART_BYTES = 16 * 1024;
const done = new WeakSet<Readable>();

export function readInParts(request: ClientRequest): void {
  request.once("socket", socketInParts);
}

export function socketInParts(socket: Readable): void {
  if (done.has(socket)) return;
  done.add(socket);
  new Parts(socket);
}

/** Wraps a socket's `push`, which receives what was read. */
class Parts {
  readonly #socket: Readable;
  readonly #push: Readable["push"];
  /** Read and not passed on yet; `null` is the end. */
  readonly #waiting: (Uint8Array | null)[] = [];
  #isPassing = false;

  constructor(socket: Readable) {
    this.#socket = socket;
    this.#push = socket.push.bind(socket);
    socket.push = (chunk: unknown, encoding?: BufferEncoding) => {
      if (chunk !== null && !(chunk instanceof Uint8Array)) return this.#push(chunk, encoding);
      if (!this.#isPassing && (chunk === null || chunk.length <= PART_BYTES)) return this.#push(chunk);
      this.#waiting.push(...(chunk === null ? [null] : parted(chunk)));
      if (!this.#isPassing) void this.#pass();
      // Stops reading until this was passed on: the last part resumes it.
      return false;
    };
  }

  async #pass(): Promise<void> {
    this.#isPassing = true;
    while (this.#waiting.length > 0 && !this.#socket.destroyed) {
      this.#push(this.#waiting.shift());
      await nextTurn();
    }
    this.#isPassing = false;
  }
}

function parted(chunk: Uint8Array): Uint8Array[] {
  const count = Math.ceil(chunk.length / PART_BYTES);
  return Array.from({ length: count }, (_, index) => chunk.subarray(index * PART_BYTES, (index + 1) * PART_BYTES));
}
