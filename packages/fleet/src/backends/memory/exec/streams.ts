/**
 * Byte streams between commands.
 *
 * Invariants
 * - A pipe holds a bounded number of bytes; a writer waits for room. A writer to a pipe without a reader gets
 *   `BrokenPipe`, so `yes | head` ends.
 * - Killing the process that made a pipe wakes all its readers and writers.
 * - A source takes back bytes that were read too far (`unread`), so several commands can read one input in turn.
 */

/** Ends a command that writes to a pipe without a reader, as SIGPIPE does. */
export class BrokenPipe extends Error {
  override readonly name = "BrokenPipe";
}

/** A command that needs all of its input at once got more than it may hold. */
export class InputTooLarge extends Error {
  override readonly name = "InputTooLarge";
}

export interface Sink {
  write(chunk: Uint8Array): Promise<void>;
}

export interface Streams {
  readonly stdin: Source;
  readonly stdout: Sink;
  readonly stderr: Sink;
}

/** As much as Linux keeps in a pipe. */
const PIPE_MAX_BYTES = 64 * 1024;
/** The limit for a command that must read all of its input first (sort, sed). */
const READ_ALL_MAX_BYTES = 256 * 1024 * 1024;
const NEWLINE = 0x0a;

export class Source {
  readonly #pull: () => Promise<Uint8Array | null>;
  #held: Uint8Array | null = null;

  constructor(pull: () => Promise<Uint8Array | null>) {
    this.#pull = pull;
  }

  static empty(): Source {
    return new Source(async () => null);
  }

  static of(bytes: Uint8Array): Source {
    let at = 0;
    return new Source(async () => {
      const chunk = bytes.subarray(at, at + PIPE_MAX_BYTES);
      at += chunk.length;
      return chunk.length === 0 ? null : chunk;
    });
  }

  static zeros(): Source {
    return new Source(async () => new Uint8Array(PIPE_MAX_BYTES));
  }

  /** The next bytes, or `null` at the end. */
  async read(): Promise<Uint8Array | null> {
    const held = this.#held;
    this.#held = null;
    return held ?? (await this.#pull());
  }

  /** Puts back the bytes that the last `read` returned too many. */
  unread(chunk: Uint8Array): void {
    if (chunk.length > 0) this.#held = chunk;
  }

  /** The next line with its newline, or `null` at the end. */
  async readLine(): Promise<Uint8Array | null> {
    const parts: Uint8Array[] = [];
    for (let chunk = await this.read(); chunk !== null; chunk = await this.read()) {
      const end = chunk.indexOf(NEWLINE) + 1;
      if (end > 0) {
        this.unread(chunk.subarray(end));
        return concat([...parts, chunk.subarray(0, end)]);
      }
      parts.push(chunk);
    }
    return parts.length === 0 ? null : concat(parts);
  }

  async readAll(): Promise<Uint8Array> {
    const parts: Uint8Array[] = [];
    let size = 0;
    for (let chunk = await this.read(); chunk !== null; chunk = await this.read()) {
      size += chunk.length;
      if (size > READ_ALL_MAX_BYTES) throw new InputTooLarge(`more than ${READ_ALL_MAX_BYTES} bytes of input`);
      parts.push(chunk);
    }
    return concat(parts);
  }
}

export class Pipe implements Sink {
  readonly source: Source;
  readonly #chunks: Uint8Array[] = [];
  readonly #signal: AbortSignal;
  #bytes = 0;
  #writersDone = false;
  #readerGone = false;
  #wake: (() => void)[] = [];
  readonly #onAbort = () => this.#stir();

  constructor(signal: AbortSignal) {
    this.#signal = signal;
    this.source = new Source(() => this.#take());
    signal.addEventListener("abort", this.#onAbort);
  }

  async write(chunk: Uint8Array): Promise<void> {
    this.#check();
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
    this.#stir();
    while (this.#bytes > PIPE_MAX_BYTES) {
      await this.#stirred();
      this.#check();
    }
  }

  closeWrite(): void {
    this.#writersDone = true;
    this.#settle();
  }

  closeRead(): void {
    this.#readerGone = true;
    this.#settle();
  }

  async #take(): Promise<Uint8Array | null> {
    for (;;) {
      this.#signal.throwIfAborted();
      const chunk = this.#chunks.shift();
      if (chunk !== undefined) {
        this.#bytes -= chunk.length;
        this.#stir();
        return chunk;
      }
      if (this.#writersDone) return null;
      await this.#stirred();
    }
  }

  #check(): void {
    this.#signal.throwIfAborted();
    if (this.#readerGone) throw new BrokenPipe();
  }

  #settle(): void {
    if (this.#writersDone && this.#readerGone) this.#signal.removeEventListener("abort", this.#onAbort);
    this.#stir();
  }

  #stirred(): Promise<void> {
    return new Promise((resolve) => this.#wake.push(resolve));
  }

  #stir(): void {
    const wake = this.#wake;
    this.#wake = [];
    for (const resolve of wake) resolve();
  }
}

/** Takes everything, keeps nothing. */
export const NULL_SINK: Sink = { write: async () => {} };

/** Keeps everything, for command substitution. */
export class Collector implements Sink {
  readonly #parts: Uint8Array[] = [];
  #size = 0;

  async write(chunk: Uint8Array): Promise<void> {
    this.#size += chunk.length;
    if (this.#size > READ_ALL_MAX_BYTES) throw new BrokenPipe();
    this.#parts.push(chunk.slice());
  }

  bytes(): Uint8Array {
    return concat(this.#parts);
  }
}

function concat(parts: readonly Uint8Array[]): Uint8Array {
  const only = parts.length === 1 ? parts[0] : undefined;
  if (only !== undefined) return only;
  const whole = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}
