/**
 * A command's stdin that stays open, to be written to while the command runs.
 *
 * Invariants
 * - Writes reach the command in the order in which they came; each settles when the kernel has taken it, so a caller who
 *   awaits it is slowed down by a command that does not read.
 * - What is written after the end, or to a command that has ended or closed its stdin, is `stdin_closed`.
 */

import { closeSync } from "node:fs";
import { Socket } from "node:net";
import type { Writable } from "node:stream";
import { SandlotError } from "@sandlot/contract";
import type { Fifo, FifoPool } from "./fifo-pool.ts";

export class OpenStdin {
  /** What the child gets as its descriptor. */
  readonly stdio: number | "pipe";
  readonly #execId: string;
  readonly #fifo: Fifo | null;
  #sink: Writable | null = null;
  #ended = false;

  constructor(execId: string, fifos: FifoPool) {
    this.#execId = execId;
    this.#fifo = fifos.takeInput();
    this.stdio = this.#fifo?.readFd ?? "pipe";
  }

  /** Called once the child was started, or could not be. `pipe` is Node's, where there was no FIFO. */
  started(pipe: Writable | null): void {
    if (this.#fifo !== null) closeSync(this.#fifo.readFd);
    // Whether every reader is gone is never known here, so nobody gets this one again.
    this.#fifo?.discard();
    this.#sink = this.#fifo === null ? pipe : new Socket({ fd: this.#fifo.writeFd, readable: false, writable: true });
    // Whoever wrote is told by the callback of the write.
    this.#sink?.on("error", () => {});
  }

  async write(bytes: Uint8Array, end: boolean): Promise<void> {
    const sink = this.#sink;
    if (sink === null || this.#ended || sink.destroyed) throw this.#closed();
    if (end) this.#ended = true;
    await new Promise<void>((resolve, reject) => {
      const settle = (error?: Error | null): void => {
        sink.off("close", onClose);
        if (error) reject(this.#closed());
        else resolve();
      };
      const onClose = (): void => reject(this.#closed());
      sink.once("close", onClose);
      if (bytes.length > 0) sink.write(bytes, settle);
      else settle();
    });
    if (end) sink.end();
  }

  /** The command has ended: nobody reads any more. */
  close(): void {
    this.#ended = true;
    this.#sink?.destroy();
  }

  #closed(): SandlotError {
    return new SandlotError("stdin_closed", { execId: this.#execId });
  }
}
