/**
 * An answer as it comes in.
 *
 * Invariants
 * - What comes is not trusted: a head is short, and a body has one length that is announced and allowed.
 * - What is not exactly such an answer is a `StrangeAnswer`, told before anything of its body is held.
 */

import type { Socket } from "node:net";
import { StrangeAnswer } from "./errors.ts";

export interface AnswerHead {
  /** In any case; several of one name are joined by commas. */
  get(name: string): string | null;
}

export interface Answer {
  readonly status: number;
  readonly headers: AnswerHead;
  readonly body: Buffer;
}

/** An answer that does not end. Its connection is the asker's own now, and paused. */
export interface Engaged {
  readonly status: 200;
  readonly headers: AnswerHead;
  /** What came with the head, as it came: perhaps in chunks. */
  readonly first: Buffer;
  readonly socket: Socket;
}

export interface Expected {
  /** Of messages: "the daemon". */
  readonly peer: string;
  readonly maxBytes: number;
  /** Of an answer with another status than 200. */
  readonly refusalMaxBytes: number;
  /** Whether it was asked with HEAD. */
  readonly isHead: boolean;
  /** Whether an answer with 200 is a stream. */
  readonly engages: boolean;
}

export type Taken = { readonly body: Buffer } | { readonly first: Buffer };

const HEAD_MAX_BYTES = 16 * 1024;
const HEAD_END = "\r\n\r\n";
const STATUS_PATTERN = /^HTTP\/1\.1 (\d{3})(?: |\r\n|$)/;
/** What says where an answer ends, and how long its connection lives. */
const FRAMING_PATTERN = /\r\n(content-length|transfer-encoding|connection|keep-alive)[ \t]*:[ \t]*([^\r\n]*)/gi;
/** A line that goes on in the next. Nobody writes these any more, and readers of them disagree. */
const FOLDED_PATTERN = /\r\n[ \t]/;
const LENGTH_PATTERN = /^\d{1,15}$/;
const CLOSE_PATTERN = /\bclose\b/i;
const TIMEOUT_PATTERN = /(?:^|[,; ])timeout=(\d{1,9})(?:$|[,; ])/i;

export class IncomingAnswer {
  readonly #expected: Expected;
  #head: Buffer | null = null;
  /** `null` until the head is complete. */
  #body: Buffer | null = null;
  #received = 0;
  status = 0;
  headers: AnswerHead = NO_HEAD;
  /** Whether anything has come. */
  hasBegun = false;
  /** Whether the peer closes the connection behind it. */
  isLast = false;
  /** How long the peer says it keeps the connection. */
  keptForMs: number | null = null;

  constructor(expected: Expected) {
    this.#expected = expected;
  }

  /** The body, when this was the last of it, or the first bytes of a stream. Throws when it is no answer. */
  take(chunk: Buffer): Taken | null {
    this.hasBegun = true;
    const rest = this.#body === null ? this.#takeHead(chunk) : chunk;
    if (rest === null) return null;
    const body = this.#body;
    if (body === null) return { first: rest };
    // The usual answer comes in one piece, and is its own body.
    if (rest === body) return { body };
    if (rest.length > body.length - this.#received) throw this.#strange("sent more than it announced");
    rest.copy(body, this.#received);
    this.#received += rest.length;
    return this.#received === body.length ? { body } : null;
  }

  /** What is behind the head; `null` while that is not complete. */
  #takeHead(chunk: Buffer): Buffer | null {
    const all = this.#head === null ? chunk : Buffer.concat([this.#head, chunk]);
    const end = all.indexOf(HEAD_END, 0, "latin1");
    if (end > HEAD_MAX_BYTES || (end < 0 && all.length > HEAD_MAX_BYTES))
      throw new StrangeAnswer("the head has no end");
    if (end < 0) {
      this.#head = all;
      return null;
    }
    const head = all.toString("latin1", 0, end);
    const status = Number(STATUS_PATTERN.exec(head)?.[1]);
    // What comes before an answer (1xx) is not expected either.
    if (!(status >= 200) || FOLDED_PATTERN.test(head)) throw this.#strange("sent something else than an answer");
    this.status = status;
    this.headers = { get: (name) => headerIn(head, name) };
    const { length, isCoded } = this.#framing(head);
    const rest = all.subarray(end + HEAD_END.length);
    if (status === 200 && this.#expected.engages) return rest;
    this.#body = this.#room(length, isCoded, rest);
    return rest;
  }

  #framing(head: string): { readonly length: string | null; readonly isCoded: boolean } {
    let length: string | null = null;
    let isCoded = false;
    for (const [, name = "", value = ""] of head.matchAll(FRAMING_PATTERN)) {
      switch (name.toLowerCase()) {
        case "content-length":
          if (length !== null) throw this.#strange("announced two lengths");
          length = value.trimEnd();
          break;
        case "transfer-encoding":
          isCoded = true;
          break;
        case "connection":
          this.isLast ||= CLOSE_PATTERN.test(value);
          break;
        default:
          this.keptForMs = announcedMs(value);
      }
    }
    return { length, isCoded };
  }

  #room(length: string | null, isCoded: boolean, rest: Buffer): Buffer {
    const { isHead, maxBytes, refusalMaxBytes } = this.#expected;
    const isEmpty = isHead || this.status === 304 || (this.status === 204 && !isCoded);
    if (isEmpty) return rest.length === 0 ? rest : Buffer.alloc(0);
    if (isCoded || length === null || !LENGTH_PATTERN.test(length))
      throw this.#strange("sent something else than an answer");
    const size = Number(length);
    if (size > (this.status === 200 ? maxBytes : Math.min(maxBytes, refusalMaxBytes)))
      throw new StrangeAnswer(`${this.#expected.peer}'s answer is longer than any may be`, { isTooLong: true });
    return rest.length === size ? rest : Buffer.allocUnsafeSlow(size);
  }

  #strange(what: string): StrangeAnswer {
    return new StrangeAnswer(`${this.#expected.peer} ${what}`);
  }
}

const NO_HEAD: AnswerHead = { get: () => null };

/** `timeout=5, max=100` */
function announcedMs(keepAlive: string): number | null {
  const seconds = TIMEOUT_PATTERN.exec(keepAlive)?.[1];
  return seconds === undefined ? null : Number(seconds) * 1_000;
}

function headerIn(head: string, name: string): string | null {
  const lower = head.toLowerCase();
  const sought = `\r\n${name.toLowerCase()}:`;
  const found: string[] = [];
  for (let at = lower.indexOf(sought); at >= 0; at = lower.indexOf(sought, at + 2)) {
    const end = head.indexOf("\r\n", at + 2);
    found.push(head.slice(at + sought.length, end < 0 ? head.length : end).trim());
  }
  return found.length === 0 ? null : found.join(", ");
}
