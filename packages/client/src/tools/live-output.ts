/**
 * What a command prints, while it runs: for a listener as it comes, and for the answer of a call that does not wait for the end.
 *
 * Output arrives in one of two ways: a caller adds it, or there is a reader that is asked (`readWith`). A listener has a reader
 * asked every `READ_INTERVAL_MS`; otherwise it is asked when an answer is made.
 *
 * Invariants
 * - No piece leaves before it was redacted; what could be the beginning of a secret is held back until it is clear.
 * - For an answer at most `maxChars` of each stream are held. What was left out is counted.
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
  /** Fires when the listener has thrown. It is told nothing more. */
  readonly failed: AbortSignal | undefined;
  stop(): void;
}

/** Often enough for a person who watches; each asks the sandbox once. */
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

  /** Tells one listener, for as long as its call waits. */
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

  /** From now on `read` is asked for more. It calls `add`, and fails when there is nothing to read. */
  readWith(read: () => Promise<void>): void {
    this.#read = read;
    this.#readLater();
  }

  /** Asks the reader, where there is one. One at a time. */
  async refresh(): Promise<void> {
    const read = this.#read;
    if (read === null) return;
    this.#reading ??= read().finally(() => {
      this.#reading = null;
    });
    await this.#reading;
  }

  /** The command has ended: the reader is asked no more. `rest` says whether the listener gets what was held back. */
  async end(rest: boolean): Promise<void> {
    this.#cancel();
    // What was under way belongs to this command; that it failed is nothing to anybody now.
    await this.#reading?.catch(() => undefined);
    this.#read = null;
    if (rest) for (const name of ["stdout", "stderr"] as const) this.#tell(name, this.#streams[name].flush());
  }

  /** What was printed since this was last asked, as it stands in an answer. */
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
      // That the sandbox cannot be asked now is for the command itself to say.
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

  /** What may be shown after this piece. */
  add(text: string): string {
    const shown = this.#redacting.push(text);
    this.#hold(shown);
    return shown;
  }

  /** What was held back. */
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
