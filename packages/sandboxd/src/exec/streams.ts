/**
 * The streams of a running command, on our side.
 *
 * A stream from a command is read into its ring for as long as anybody has the other end, also when the command itself
 * has ended: a server in the background must never wait for a reader, nor die of a missing one. Reading through the
 * event loop begins only after a moment, because most commands have ended by then and one plain read gets all of it.
 */

import { closeSync, readSync } from "node:fs";
import { Socket } from "node:net";
import type { Readable } from "node:stream";
import { nextTurn } from "../clock.ts";
import type { Fifo } from "./fifo-pool.ts";
import { type OutputHold, READ_MAX_BYTES } from "./output-hold.ts";
import type { OutputRing } from "./output-ring.ts";

export interface OutputStream {
  /** What the child gets as its descriptor. */
  readonly stdio: number | "pipe";
  /** Called once the child was started, or could not be. `source` is Node's stream, where there is one. */
  started(source: Readable | null): void;
  /** Begins to read as output comes. */
  follow(): void;
  /** Reads what has been written until now. */
  drain(): Promise<void> | undefined;
}

/** One for all: a read fills it and it is copied to the ring before the next read. */
const buffer = Buffer.allocUnsafeSlow(READ_MAX_BYTES);
/** What a pipe holds, many times over; a background process that writes without end must not keep us here. */
const DRAIN_READS_MAX = 64;
/** What one `drain` reads at most. */
export const DRAIN_MAX_BYTES = DRAIN_READS_MAX * READ_MAX_BYTES;

/** With a `hold`, nothing is read for which the hold has no room, except by `drain`. */
export function outputStream(fifo: Fifo | null, ring: OutputRing, hold: OutputHold | null = null): OutputStream {
  return fifo === null ? new SocketPairOutput(ring, hold) : new FifoOutput(fifo, ring, hold);
}

class FifoOutput implements OutputStream {
  readonly stdio: number;
  readonly #fifo: Fifo;
  readonly #ring: OutputRing;
  readonly #hold: OutputHold | null;
  #socket: Socket | null = null;

  constructor(fifo: Fifo, ring: OutputRing, hold: OutputHold | null) {
    this.stdio = fifo.writeFd;
    this.#fifo = fifo;
    this.#ring = ring;
    this.#hold = hold;
    hold?.onRoom(() => this.#socket?.resume());
  }

  started(): void {
    // The child has its own; ours would keep the stream open for ever.
    closeSync(this.#fifo.writeFd);
  }

  follow(): void {
    if (this.#socket !== null || this.#ring.closed) return;
    const onread = {
      buffer,
      callback: (count: number, data: Uint8Array) => {
        this.#ring.write(data.subarray(0, count));
        return this.#hold?.hasRoom() ?? true;
      },
    };
    this.#socket = new Socket({ fd: this.#fifo.readFd, readable: true, writable: false, onread });
    this.#socket.on("error", () => {});
    this.#socket.once("close", () => this.#end());
  }

  drain(): undefined {
    // It has come to the end and closed the descriptor, whose number may be another stream's by now.
    if (this.#socket?.destroyed === true) {
      this.#ring.close();
      return;
    }
    for (let reads = 0; reads < DRAIN_READS_MAX && !this.#ring.closed; reads++) {
      const count = readNow(this.#fifo.readFd);
      if (count === "nothing") break;
      if (count > 0) this.#ring.write(buffer.subarray(0, count));
      // The end: the socket, if there is one, finds it too and closes the descriptor.
      else if (this.#socket !== null) this.#ring.close();
      else {
        closeSync(this.#fifo.readFd);
        this.#end();
      }
    }
  }

  #end(): void {
    this.#fifo.release();
    this.#ring.close();
  }
}

function readNow(fd: number): number | "nothing" {
  try {
    return readSync(fd, buffer, 0, buffer.length, null);
  } catch {
    // EAGAIN: somebody still has the other end.
    return "nothing";
  }
}

/** Where there is no FIFO. Output written before the exit is in the socket then, and read within a turn or two. */
class SocketPairOutput implements OutputStream {
  readonly stdio = "pipe";
  readonly #ring: OutputRing;
  readonly #hold: OutputHold | null;

  constructor(ring: OutputRing, hold: OutputHold | null) {
    this.#ring = ring;
    this.#hold = hold;
  }

  started(source: Readable | null): void {
    this.#hold?.onRoom(() => source?.resume());
    source?.on("data", (chunk: Buffer) => {
      this.#ring.write(chunk);
      if (this.#hold?.hasRoom() === false) source.pause();
    });
    source?.on("error", () => {});
    source?.once("close", () => this.#ring.close());
    if (source === null) this.#ring.close();
  }

  follow(): void {}

  async drain(): Promise<void> {
    for (let turns = 0, seen = -1; turns < DRAIN_READS_MAX && !this.#ring.closed; turns++) {
      if (seen === this.#ring.endOffset && turns > 2) return;
      seen = this.#ring.endOffset;
      await nextTurn();
    }
  }
}
