/**
 * The output of one command of a session. The shell opens the pipes by name; our own writing ends keep them open until
 * the command is over.
 */

import { SANDBOX_LIMITS } from "@sandlot/contract";
import type { Fifo } from "../exec/fifo-pool.ts";
import { type HeldBytes, OutputRing, type OutputTail } from "../exec/output-ring.ts";
import { type OutputStream, outputStream } from "../exec/streams.ts";

export interface PrintedOutput {
  readonly stdout: HeldBytes & { readonly totalBytes: number };
  readonly stderr: HeldBytes & { readonly totalBytes: number };
}

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

  get heldBytes(): number {
    return this.#stdout.heldBytes + this.#stderr.heldBytes;
  }

  /** Up to `maxBytes` of each stream from an offset on, and the total sizes. */
  read(from: { readonly stdout: number; readonly stderr: number }, maxBytes: number): PrintedOutput {
    const part = (ring: OutputRing, offset: number) => ({
      ...ring.read(offset, maxBytes),
      totalBytes: ring.endOffset,
    });
    return { stdout: part(this.#stdout, from.stdout), stderr: part(this.#stderr, from.stderr) };
  }

  /** The result is complete and stays readable. Later output of background processes is read and dropped. */
  freeze(): void {
    this.#end();
    this.#stdout.freeze();
    this.#stderr.freeze();
  }

  /** It will not be read any more. */
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
