/**
 * Plain connections to one peer, kept for whoever asks next.
 *
 * What is asked is a request of HTTP/1.1, written by the asker, and its answer is taken whole: a head is written, a head
 * is read, and the bytes behind it are the answer. The objects and streams that node:http makes for each request cost a
 * short command a tenth of its time.
 *
 * Invariants
 * - A connection carries one question at a time. One on which anything unexpected has come, or whose asker has gone away,
 *   is closed and never used again.
 * - Nothing is asked twice here: whether it may be is the asker's to know (`ConnectionLost` says what there is to say).
 * - While it is asked a connection keeps the process alive, while it is idle it does not.
 * - A question with deadlines ends by them: one until an answer begins, one from there to its end, however slowly it comes.
 */

import type { connect as netConnect, Socket } from "node:net";
import { ConnectionLost } from "./errors.ts";
import { type Answer, type Engaged, IncomingAnswer, type Taken } from "./incoming-answer.ts";

export type LineAddress = { readonly path: string } | { readonly host: string; readonly port: number };

export interface Question {
  /** As it is sent: the lines of the head and the empty one behind them. */
  readonly head: string;
  readonly body: Uint8Array | undefined;
  readonly answerMaxBytes: number;
  /** Of an answer with another status than 200, where that is less. */
  readonly refusalMaxBytes?: number;
  /** Until the first byte of the answer. Absent or `null`: however long that takes. */
  readonly firstByteMs?: number | null;
  /** From its first byte to its last. */
  readonly bodyMs?: number;
  readonly signal: AbortSignal | undefined;
  /** On a connection that nobody has used. */
  readonly onNewLine?: boolean;
}

export interface KeptLinesOptions {
  /** That of node:net. Not imported: see `index.ts`. */
  readonly connect: typeof netConnect;
  /** Who answers, as messages call it. */
  readonly peer: string;
  /** How many are kept for later; each costs both sides a few kilobytes. With 0 each question has one of its own. */
  readonly idleMax?: number;
  /** Where the peer closes idle connections: when not to use one any more. */
  readonly ageing?: Ageing;
  /** For questions with deadlines. */
  readonly timer?: (delayMs: number, fire: () => void) => Timer;
}

interface Timer {
  cancel(): void;
}

export interface Ageing {
  readonly nowMs: () => number;
  /** Where the peer does not announce how long it keeps one. */
  readonly unannouncedMs: number;
}

const IDLE_MAX = 16;
const PROBE_AFTER_MS = 30_000;
/** Sent as one piece with the head: copying costs less than a second piece. */
const ONE_PIECE_MAX_BYTES = 16 * 1024;
/** How much earlier than announced a connection is let go of: a question takes time to arrive. */
const AGEING_MARGIN_MS = 1_000;

export class KeptLines {
  readonly #options: KeptLinesOptions;
  readonly #idleMax: number;
  /** The one used last is used next. */
  readonly #idle: Line[] = [];
  readonly #lines = new Set<Line>();

  constructor(options: KeptLinesOptions) {
    this.#options = options;
    this.#idleMax = options.idleMax ?? IDLE_MAX;
  }

  /** Whether there is no connection, idle or asked. */
  get isEmpty(): boolean {
    return this.#lines.size === 0;
  }

  /** Rejects with `ConnectionLost`, `StrangeAnswer`, or the reason of an abort. */
  ask(address: LineAddress, question: Question): Promise<Answer> {
    return this.#asked(address, question, false) as Promise<Answer>;
  }

  /**
   * A question whose answer does not end: with 200, its connection is the asker's from then on and none of these any
   * more. Any other answer is taken whole.
   */
  engage(address: LineAddress, question: Question): Promise<Answer | Engaged> {
    return this.#asked(address, question, true);
  }

  /** Ends all of them, also those that are being asked. */
  destroy(): void {
    for (const line of this.#lines) line.close();
  }

  #asked(address: LineAddress, question: Question, engages: boolean): Promise<Answer | Engaged> {
    const { signal, onNewLine } = question;
    if (signal?.aborted === true) return Promise.reject(signal.reason);
    const line = (onNewLine === true ? undefined : this.#kept()) ?? this.#open(address);
    return line.ask(question, engages);
  }

  #kept(): Line | undefined {
    const nowMs = this.#options.ageing?.nowMs() ?? 0;
    for (let line = this.#idle.pop(); line !== undefined; line = this.#idle.pop()) {
      if (nowMs < line.usableUntilMs) return line;
      line.close();
    }
    return undefined;
  }

  #open(address: LineAddress): Line {
    const { connect } = this.#options;
    const socket = "path" in address ? connect(address.path) : connect(address.port, address.host);
    const line: Line = new Line(socket, this.#options, {
      onIdle: (keptForMs) => {
        const lifeMs = this.#lifeMs(keptForMs);
        if (lifeMs <= 0 || this.#idle.length >= this.#idleMax) line.close();
        else {
          line.usableUntilMs = (this.#options.ageing?.nowMs() ?? 0) + lifeMs;
          this.#idle.push(line);
        }
      },
      onGone: () => {
        this.#lines.delete(line);
        const at = this.#idle.indexOf(line);
        if (at >= 0) this.#idle.splice(at, 1);
      },
    });
    this.#lines.add(line);
    return line;
  }

  #lifeMs(keptForMs: number | null): number {
    const { ageing } = this.#options;
    if (ageing === undefined) return Number.POSITIVE_INFINITY;
    return keptForMs === null ? ageing.unannouncedMs : keptForMs - AGEING_MARGIN_MS;
  }
}

interface Waiting {
  readonly resolve: (answer: Answer | Engaged) => void;
  readonly reject: (error: unknown) => void;
  readonly incoming: IncomingAnswer;
  readonly bodyMs: number | undefined;
  /** The deadline that runs. */
  timer: Timer | undefined;
  isGoingOn?: boolean;
  readonly stopListening: () => void;
}

interface LineEvents {
  readonly onIdle: (keptForMs: number | null) => void;
  readonly onGone: () => void;
}

/** One connection. */
class Line {
  readonly #socket: Socket;
  readonly #options: KeptLinesOptions;
  readonly #events: LineEvents;
  #waiting: Waiting | null = null;
  #wasKept = false;
  usableUntilMs = 0;

  constructor(socket: Socket, options: KeptLinesOptions, events: LineEvents) {
    this.#socket = socket;
    this.#options = options;
    this.#events = events;
    socket.setNoDelay(true);
    // Over a network: a peer that went away without a word is noticed by the kernel, in its own time.
    socket.setKeepAlive(true, PROBE_AFTER_MS);
    socket.on("data", this.#onData);
    socket.on("error", this.#onError);
    socket.on("end", this.#onEnd);
    socket.on("close", this.#onEnd);
  }

  ask(question: Question, engages: boolean): Promise<Answer | Engaged> {
    const { head, body, answerMaxBytes: maxBytes, refusalMaxBytes = maxBytes, firstByteMs, bodyMs, signal } = question;
    return new Promise((resolve, reject) => {
      let stopListening = nothing;
      if (signal !== undefined) {
        const onAbort = () => this.#fail(signal.reason);
        signal.addEventListener("abort", onAbort, { once: true });
        stopListening = () => signal.removeEventListener("abort", onAbort);
      }
      const isHead = head.startsWith("HEAD ");
      const { peer } = this.#options;
      const incoming = new IncomingAnswer({ peer, maxBytes, refusalMaxBytes, isHead, engages });
      const timer = this.#deadline(firstByteMs ?? undefined, "did not answer");
      this.#waiting = { resolve, reject, incoming, bodyMs, timer, stopListening };
      this.#socket.ref();
      this.#send(head, body);
    });
  }

  /** At once nobody is given it any more; when its socket closes is the system's affair. */
  close(): void {
    this.#events.onGone();
    this.#socket.destroy();
  }

  readonly #onData = (chunk: Buffer): void => {
    const waiting = this.#waiting;
    // What nobody has asked for makes whatever comes next on this connection somebody else's, perhaps.
    if (waiting === null) this.close();
    else this.#take(waiting, chunk);
  };

  readonly #onError = (error: Error): void => this.#fail(this.#lost(error));

  readonly #onEnd = (): void => this.#fail(this.#lost(new Error("the answer was cut off")));

  #take(waiting: Waiting, chunk: Buffer): void {
    let taken: Taken | null;
    try {
      taken = waiting.incoming.take(chunk);
    } catch (error) {
      this.#fail(error);
      return;
    }
    if (taken === null) {
      this.#goesOn(waiting);
      return;
    }
    this.#waiting = null;
    waiting.timer?.cancel();
    waiting.stopListening();
    if ("first" in taken) this.#handOver(waiting, taken.first);
    else this.#answered(waiting, taken.body);
  }

  /** The deadline for the rest begins with the first piece, and no later one moves it. */
  #goesOn(waiting: Waiting): void {
    if (waiting.bodyMs === undefined || waiting.isGoingOn) return;
    waiting.isGoingOn = true;
    waiting.timer?.cancel();
    waiting.timer = this.#deadline(waiting.bodyMs, "did not end its answer");
  }

  #deadline(delayMs: number | undefined, what: string): Timer | undefined {
    if (delayMs === undefined) return undefined;
    const { peer, timer } = this.#options;
    // Something may have come or not: after a deadline nothing is asked again by itself.
    const late = () => this.#fail(new ConnectionLost(`${peer} ${what} within ${delayMs} ms`, { hadBegun: true }));
    return timer?.(delayMs, late);
  }

  #answered({ incoming, resolve }: Waiting, body: Buffer): void {
    const { status, headers, isLast, keptForMs } = incoming;
    this.#socket.unref();
    this.#wasKept = true;
    // Answered before all of the question was sent: the rest of it is not the beginning of the next.
    if (isLast || this.#socket.writableLength > 0) this.close();
    else this.#events.onIdle(keptForMs);
    resolve({ status, headers, body });
  }

  #handOver({ incoming, resolve }: Waiting, first: Buffer): void {
    const socket = this.#socket;
    socket.pause();
    socket.off("data", this.#onData).off("end", this.#onEnd).off("close", this.#onEnd);
    // Whoever has it now listens for itself; nobody is harmed by an error between.
    socket.off("error", this.#onError).on("error", nothing);
    this.#events.onGone();
    resolve({ status: 200, headers: incoming.headers, first, socket });
  }

  #fail(error: unknown): void {
    const waiting = this.#waiting;
    this.#waiting = null;
    this.close();
    waiting?.timer?.cancel();
    waiting?.stopListening();
    waiting?.reject(error);
  }

  #lost(cause: Error): ConnectionLost {
    const hadBegun = this.#waiting?.incoming.hasBegun ?? false;
    return new ConnectionLost(cause.message, { cause, wasKept: this.#wasKept, hadBegun });
  }

  #send(head: string, body: Uint8Array | undefined): void {
    const socket = this.#socket;
    if (body === undefined) socket.write(head, "latin1");
    else if (body.length <= ONE_PIECE_MAX_BYTES) socket.write(joined(head, body));
    else {
      socket.cork();
      socket.write(head, "latin1");
      socket.write(body);
      socket.uncork();
    }
  }
}

function joined(head: string, body: Uint8Array): Buffer {
  const all = Buffer.allocUnsafe(head.length + body.length);
  all.write(head, 0, "latin1");
  all.set(body, head.length);
  return all;
}

function nothing(): void {}
