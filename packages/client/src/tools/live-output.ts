/**
 * The live output of a command: for a listener, and for the result of a call that does not wait for the end.
 *
 * Output arrives in one of two ways: a caller adds it, or a reader is polled (`readWith`). For a listener the reader is
 * polled every `READ_INTERVAL_MS`; otherwise only when a result is built.
 *
 * Invariants
 * - Every piece is redacted before it leaves; a possible beginning of a secret is held back until it is decided.
 * - For a result at most `maxChars` of each stream are held. Omitted output is counted.
 */

import { later } from "../wire/clock.ts";
import type { RedactingStream } from "./policy/redaction.ts";

/** A piece of output, as whole characters. */
export interface OutputPiece {
  readonly stream: "stdout" | "stderr";
  readonly text: string;
}

export interface LiveOutputOptions {
  readonly maxChars: number;
  readonly redacting: () => RedactingStream;
}

export type OutputListener = (piece: OutputPiece) => void;

export interface Listening {
  /** Fires when the listener has thrown. It is not called again. */
  readonly failed: AbortSignal | undefined;
  stop(): void;
}

/** Often enough for a person who watches; each poll is one request to the sandbox. */
const READ_INTERVAL_MS = 500;

type Stream = OutputPiece["stream"];

export class LiveOutput {
  readonly #streams: Readonly<Record<Stream, HeldStream>>;
  #read: (() => Promise<void>) | null = null;
  #reading: Promise<void> | null = null;
  #cancel = () => {};
  #listener: OutputListener | null = null;

  constructor({ maxChars, redacting }: LiveOutputOptions) {
    this.#streams = {
      stdout: new HeldStream(maxChars, redacting()),
      stderr: new HeldStream(maxChars, redacting()),
    };
  }

  get hasListener(): boolean {
    return this.#listener !== null;
  }

  /** Calls one listener, as long as its call waits. */
  listen(onOutput: OutputListener | undefined): Listening {
    if (onOutput === undefined) return { failed: undefined, stop: () => undefined };
    const failed = new AbortController();
    const listener: OutputListener = (piece) => {
      try {
        onOutput(piece);
      } catch (error) {
        stop();
        failed.abort(error);
      }
    };
    const stop = () => {
      if (this.#listener !== listener) return;
      this.#listener = null;
      this.#cancel();
    };
    this.#listener = listener;
    this.#readLater();
    return { failed: failed.signal, stop };
  }

  add(stream: Stream, text: string): void {
    if (text !== "") this.#tell(stream, this.#streams[stream].add(text));
  }

  /** Output that is no longer held. */
  miss(stream: Stream, bytes: number): void {
    this.#streams[stream].missedBytes += bytes;
  }

  /** Sets a reader to poll. It calls `add`, and fails when there is nothing to read. */
  readWith(read: () => Promise<void>): void {
    this.#read = read;
    this.#readLater();
  }

  /** Polls the reader, if there is one. One poll at a time. */
  async refresh(): Promise<void> {
    const read = this.#read;
    if (read === null) return;
    this.#reading ??= read().finally(() => {
      this.#reading = null;
    });
    await this.#reading;
  }

  /** The command has ended: the reader is not polled any more. `rest`: whether the listener gets what was held back. */
  async end(rest: boolean): Promise<void> {
    this.#cancel();
    // A running poll belongs to this command; its failure no longer matters.
    await this.#reading?.catch(() => undefined);
    this.#read = null;
    if (rest) for (const name of ["stdout", "stderr"] as const) this.#tell(name, this.#streams[name].flush());
  }

  /** The output since the last call, as text of a result. */
  take(): string {
    const { stdout, stderr } = this.#streams;
    const errors = stderr.take();
    return [stdout.take(), errors === "" ? "" : `[stderr]\n${errors}`].filter((text) => text !== "").join("\n");
  }

  #tell(stream: Stream, text: string): void {
    if (text !== "") this.#listener?.({ stream, text });
  }

  #readLater(): void {
    this.#cancel();
    if (this.#read === null || this.#listener === null) return;
    this.#cancel = later(READ_INTERVAL_MS, () => {
      // The command itself reports an unreachable sandbox.
      void this.refresh()
        .catch(() => undefined)
        .then(() => this.#readLater());
    });
  }
}

class HeldStream {
  readonly #maxChars: number;
  readonly #redacting: RedactingStream;
  #held = "";
  #cutChars = 0;
  missedBytes = 0;

  constructor(maxChars: number, redacting: RedactingStream) {
    this.#maxChars = maxChars;
    this.#redacting = redacting;
  }

  /** The text that may be shown after this piece. */
  add(text: string): string {
    const shown = this.#redacting.push(text);
    this.#hold(shown);
    return shown;
  }

  /** The held-back text. */
  flush(): string {
    const shown = this.#redacting.end();
    this.#hold(shown);
    return shown;
  }

  take(): string {
    const left =
      this.missedBytes > 0 ? `[${this.missedBytes} bytes were printed faster than they could be read]\n` : "";
    const cut = this.#cutChars > 0 ? `[${this.#cutChars} earlier characters are not shown here]\n` : "";
    const held = this.#held.replace(/^\n+|\n+$/g, "");
    this.#held = "";
    this.#cutChars = 0;
    this.missedBytes = 0;
    return left + cut + held;
  }

  #hold(text: string): void {
    const all = this.#held + text;
    this.#held = all.slice(-this.#maxChars);
    this.#cutChars += all.length - this.#held.length;
  }
}
