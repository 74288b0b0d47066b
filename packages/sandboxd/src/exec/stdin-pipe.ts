/**
 * A command's stdin that stays open, to be written to while the command runs.
 *
 * Invariants
 * - Writes reach the command in the order in which they came; each settles when the kernel has taken it, so a command
 *   that does not read slows down a caller who awaits it.
 * - A write after the end, or to a command that has ended or closed its stdin, is `stdin_closed`.
 */

import { closeSync } from "node:fs";
import { Socket } from "node:net";
import type { Writable } from "node:stream";
import { SandlotError } from "@sandlot/contract";
import type { Fifo, FifoPool } from "./fifo-pool.ts";

export class OpenStdin {
  /** The child's descriptor. */
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

  /** Called after the start, also after a failed one. `pipe` is Node's, where there was no FIFO. */
  started(pipe: Writable | null): void {
    if (this.#fifo !== null) closeSync(this.#fifo.readFd);
    // The daemon cannot know whether every reader is gone, so this FIFO is not reused.
    this.#fifo?.discard();
    this.#sink = this.#fifo === null ? pipe : new Socket({ fd: this.#fifo.writeFd, readable: false, writable: true });
    // The callback of the write reports the error.
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

  /** The command has ended, so its stdin has no reader. */
  close(): void {
    this.#ended = true;
    this.#sink?.destroy();
  }

  #closed(): SandlotError {
    return new SandlotError("stdin_closed", { execId: this.#execId });
  }
}
