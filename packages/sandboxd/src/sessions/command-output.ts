/**
 * Where the output of one command of a session goes. The shell opens the pipes by name; our own writing ends keep them
 * open until the command is over.
 */

import { SANDBOX_LIMITS } from "@sandlot/contract";
import type { Fifo } from "../exec/fifo-pool.ts";
import { OutputRing, type OutputTail } from "../exec/output-ring.ts";
import { type OutputStream, outputStream } from "../exec/streams.ts";

export class CommandOutput {
  readonly paths: { readonly stdout: string; readonly stderr: string };
  readonly #stdout = new OutputRing(SANDBOX_LIMITS.execOutputMaxBytes);
  readonly #stderr = new OutputRing(SANDBOX_LIMITS.execOutputMaxBytes);
  readonly #streams: readonly OutputStream[];
  #isOver = false;

  constructor(out: Fifo, error: Fifo) {
    this.paths = { stdout: out.path, stderr: error.path };
    this.#streams = [outputStream(out, this.#stdout), outputStream(error, this.#stderr)];
    for (const stream of this.#streams) stream.follow();
  }

  async drain(): Promise<void> {
    this.#end();
    for (const stream of this.#streams) await stream.drain();
  }

  tails(maxBytes: number): { readonly stdout: OutputTail; readonly stderr: OutputTail } {
    return { stdout: this.#stdout.tail(maxBytes), stderr: this.#stderr.tail(maxBytes) };
  }

  /** The result is made. What the background still prints is read and thrown away. */
  retire(): void {
    this.#end();
    this.#stdout.retire();
    this.#stderr.retire();
  }

  #end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    for (const stream of this.#streams) stream.started(null);
  }
}
