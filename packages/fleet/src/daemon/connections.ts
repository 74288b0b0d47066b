/**
 * Connections to one daemon, kept for whoever asks next.
 *
 *   `agent`   node:http, for answers that are read as they come
 *   `ask`     a question whose answer is taken whole: HTTP too, written and read here. Of a command in a sandbox that nobody
 *             else uses, the objects and streams that node:http makes for each request are a tenth of the time
 *
 * Invariants
 * - A connection carries one question at a time. One on which anything unexpected has come, or whose asker has gone away,
 *   is closed and never used again.
 * - What comes from the daemon is not trusted: the head of an answer is short, and its body has a length that is announced
 *   and allowed.
 */

import { Agent } from "node:http";
import { connect, type Socket } from "node:net";
import { SandlotError } from "@sandlot/contract";

export type DaemonAddress = { readonly path: string } | { readonly host: string; readonly port: number };

/** There was no answer. Says nothing about whether the request took effect. */
export class ConnectionLost extends Error {
  override readonly name = "ConnectionLost";
}

export interface Answer {
  readonly status: number;
  readonly body: Buffer;
}

export interface Question {
  /** As it is sent: the lines of the head and the empty one behind them. */
  readonly head: string;
  readonly body: Uint8Array | undefined;
  readonly answerMaxBytes: number;
  readonly signal: AbortSignal | undefined;
}

/** Connections kept for later; each costs both sides a few kilobytes. */
const IDLE_MAX = 16;
const PROBE_AFTER_MS = 30_000;
/** Sent as one piece with the head: copying costs less than a second piece. */
const ONE_PIECE_MAX_BYTES = 16 * 1024;

export class Connections {
  readonly agent: Agent;
  readonly #keep: boolean;
  /** The one used last is used next. */
  readonly #idle: Line[] = [];
  readonly #lines = new Set<Line>();

  /** With `keep: false` each question has one of its own, and nobody has to close them. */
  constructor({ keep } = { keep: true }) {
    this.agent = new Agent({ keepAlive: keep, maxFreeSockets: IDLE_MAX, scheduling: "lifo" });
    this.#keep = keep;
  }

  /** Whether none is left of those that were kept. */
  get isEmpty(): boolean {
    const { freeSockets, sockets } = this.agent;
    return this.#lines.size === 0 && Object.keys(freeSockets).length === 0 && Object.keys(sockets).length === 0;
  }

  /** Rejects with `ConnectionLost`, or with the reason of an abort. */
  ask(address: DaemonAddress, question: Question): Promise<Answer> {
    return (this.#idle.pop() ?? this.#open(address)).ask(question);
  }

  destroy(): void {
    this.agent.destroy();
    for (const line of this.#lines) line.close();
  }

  #open(address: DaemonAddress): Line {
    const socket = "path" in address ? connect(address.path) : connect(address.port, address.host);
    const line: Line = new Line(socket, {
      onIdle: () => {
        if (this.#keep && this.#idle.length < IDLE_MAX) this.#idle.push(line);
        else line.close();
      },
      onClosed: () => {
        this.#lines.delete(line);
        const at = this.#idle.indexOf(line);
        if (at >= 0) this.#idle.splice(at, 1);
      },
    });
    this.#lines.add(line);
    return line;
  }
}

interface Waiting {
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: unknown) => void;
  readonly incoming: IncomingAnswer;
  readonly stopListening: () => void;
}

/** One connection that is asked through `ask`. */
class Line {
  readonly #socket: Socket;
  readonly #events: { readonly onIdle: () => void; readonly onClosed: () => void };
  #waiting: Waiting | null = null;

  constructor(socket: Socket, events: { readonly onIdle: () => void; readonly onClosed: () => void }) {
    this.#socket = socket;
    this.#events = events;
    socket.setNoDelay(true);
    // Over a network: a peer that went away without a word is noticed by the kernel, in its own time.
    socket.setKeepAlive(true, PROBE_AFTER_MS);
    socket.on("data", (chunk: Buffer) => this.#take(chunk));
    socket.on("error", (error) => this.#fail(lost(error)));
    socket.on("close", () => {
      this.#fail(lost(new Error("the answer was cut off")));
      events.onClosed();
    });
  }

  ask({ head, body, answerMaxBytes, signal }: Question): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const onAbort = () => this.#fail(signal?.reason);
      signal?.addEventListener("abort", onAbort, { once: true });
      const stopListening = () => signal?.removeEventListener("abort", onAbort);
      this.#waiting = { resolve, reject, incoming: new IncomingAnswer(answerMaxBytes), stopListening };
      // While it is asked it keeps the process alive, while it is idle it does not.
      this.#socket.ref();
      this.#send(head, body);
    });
  }

  close(): void {
    this.#socket.destroy();
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

  #take(chunk: Buffer): void {
    const waiting = this.#waiting;
    let answer: Answer | null;
    try {
      if (waiting === null) throw new Error("the daemon answered what nobody has asked");
      answer = waiting.incoming.take(chunk);
    } catch (error) {
      this.#fail(error instanceof SandlotError ? error : lost(error as Error));
      return;
    }
    if (answer === null) return;
    this.#waiting = null;
    waiting.stopListening();
    this.#socket.unref();
    if (waiting.incoming.isLast) this.close();
    else this.#events.onIdle();
    waiting.resolve(answer);
  }

  #fail(error: unknown): void {
    const waiting = this.#waiting;
    this.#waiting = null;
    this.close();
    waiting?.stopListening();
    waiting?.reject(error);
  }
}

const HEAD_MAX_BYTES = 16 * 1024;
const HEAD_END = Buffer.from("\r\n\r\n");
const STATUS_PATTERN = /^HTTP\/1\.1 (\d{3}) /;
const LENGTH_PATTERN = /\r\ncontent-length: *(\d{1,15})(?:\r\n|$)/i;
const CLOSE_PATTERN = /\r\nconnection: *close(?:\r\n|$)/i;
const TOO_LONG = "the daemon's answer is longer than any may be";

/** An answer as it comes. */
class IncomingAnswer {
  readonly #maxBytes: number;
  #head: Buffer | null = null;
  #status = 0;
  /** `null` until the head is complete. */
  #body: Buffer | null = null;
  #received = 0;
  /** Whether the daemon closes the connection behind it. */
  isLast = false;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** The answer, when this was the last of it. Throws when it is none. */
  take(chunk: Buffer): Answer | null {
    const rest = this.#body === null ? this.#takeHead(chunk) : chunk;
    const body = this.#body;
    if (body === null) return null;
    if (this.#received === 0 && rest.length === body.length) return { status: this.#status, body: rest };
    if (rest.length > body.length - this.#received) throw new Error("the daemon sent more than it announced");
    rest.copy(body, this.#received);
    this.#received += rest.length;
    return this.#received === body.length ? { status: this.#status, body } : null;
  }

  /** What is behind the head. */
  #takeHead(chunk: Buffer): Buffer {
    const all = this.#head === null ? chunk : Buffer.concat([this.#head, chunk]);
    const end = all.indexOf(HEAD_END);
    if (end > HEAD_MAX_BYTES || (end < 0 && all.length > HEAD_MAX_BYTES)) throw new Error("the head has no end");
    if (end < 0) {
      this.#head = all;
      return EMPTY;
    }
    const head = all.toString("latin1", 0, end);
    const status = STATUS_PATTERN.exec(head)?.[1];
    const length = LENGTH_PATTERN.exec(head)?.[1];
    if (status === undefined || length === undefined) throw new Error("the daemon sent something else than an answer");
    if (Number(length) > this.#maxBytes) throw new SandlotError("internal", { problem: TOO_LONG });
    this.#status = Number(status);
    this.isLast = CLOSE_PATTERN.test(head);
    const rest = all.subarray(end + HEAD_END.length);
    // The usual answer comes in one piece, and is its own body.
    this.#body = rest.length === Number(length) ? rest : Buffer.allocUnsafeSlow(Number(length));
    return rest;
  }
}

const EMPTY = Buffer.alloc(0);

function joined(head: string, body: Uint8Array): Buffer {
  const all = Buffer.allocUnsafe(head.length + body.length);
  all.write(head, 0, "latin1");
  all.set(body, head.length);
  return all;
}

export function lost(error: Error): ConnectionLost {
  return new ConnectionLost(error.message, { cause: error });
}
