/**
 * The daemon's side of a running command's streams.
 *
 * The daemon reads a stream into its ring as long as any process has the other end, also after the command's own end: a
 * server in the background must never wait for a reader, nor die without one. Reading through the event loop begins
 * only after a moment, because most commands have ended by then and one plain read gets all output.
 */

import { closeSync, readSync } from "node:fs";
import { Socket } from "node:net";
import type { Readable } from "node:stream";
import { nextTurn } from "../clock.ts";
import type { Fifo } from "./fifo-pool.ts";
import { type OutputHold, READ_MAX_BYTES } from "./output-hold.ts";
import type { OutputRing } from "./output-ring.ts";

export interface OutputStream {
  /** The child's descriptor. */
  readonly stdio: number | "pipe";
  /** Called after the start, also after a failed one. `source` is Node's stream, where there is one. */
  started(source: Readable | null): void;
  /** Starts to read output as it arrives. */
  follow(): void;
  /** Reads the output written until now. */
  drain(): Promise<void> | undefined;
}

/** One for all: each read is copied to the ring before the next one. */
const buffer = Buffer.allocUnsafeSlow(READ_MAX_BYTES);
/** Many times the size of a pipe; a background process that writes without end must not block the daemon. */
const DRAIN_READS_MAX = 64;
/** The most that one `drain` reads. */
export const DRAIN_MAX_BYTES = DRAIN_READS_MAX * READ_MAX_BYTES;

/** With a `hold`, only `drain` reads beyond the hold's room. */
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
    // The child has its own descriptor; ours would keep the stream open for ever.
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
    // The socket has reached the end and closed the descriptor, whose number may be another stream's by now.
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
    // EAGAIN: a process still has the other end.
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
