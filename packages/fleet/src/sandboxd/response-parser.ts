/**
 * Parses one HTTP/1.1 response of a daemon from the bytes of its connection.
 *
 * Every byte is hostile: untrusted code runs beside the daemon and may have replaced it.
 *
 * Invariants
 * - A head has at most `HEAD_MAX_BYTES`. A body has one announced length within the limits of its request.
 * - Everything else is an `UnexpectedResponse`, thrown before any of the body is held: chunks, no length, two lengths,
 *   folded lines, 1xx, responses without content (204, 304), other versions.
 */

import type { Socket } from "node:net";

/** The response does not have the one form that our daemon uses: HTTP/1.1, whole, with its length. */
export class UnexpectedResponse extends Error {
  override readonly name = "UnexpectedResponse";
  /** The form is right; only the length exceeds the limit of the request. */
  readonly isTooLong: boolean;

  constructor(message: string, { isTooLong = false } = {}) {
    super(message);
    this.isTooLong = isTooLong;
  }
}

export interface PoolResponse {
  readonly status: number;
  readonly body: Buffer;
}

/** A response that does not end. Its connection has left the pool, and is paused. */
export interface OpenStream {
  readonly status: 200;
  /** Case does not matter; several headers of one name are joined by commas. */
  header(name: string): string | null;
  /** The bytes that arrived with the head, undecoded: perhaps chunks. */
  readonly first: Buffer;
  readonly socket: Socket;
}

export interface Expected {
  readonly maxBytes: number;
  /** Of a response with another status than 200. */
  readonly refusalMaxBytes: number;
  /** Whether a response with 200 is a stream. */
  readonly isStream: boolean;
}

export type Parsed = { readonly body: Buffer } | { readonly first: Buffer };

const HEAD_MAX_BYTES = 16 * 1024;
const HEAD_END = "\r\n\r\n";
const STATUS_PATTERN = /^HTTP\/1\.1 (\d{3})(?: |\r\n|$)/;
/** The headers that say where a response ends, and whether its connection may be used again. */
const FRAMING_PATTERN = /\r\n(content-length|transfer-encoding|connection)[ \t]*:[ \t]*([^\r\n]*)/gi;
/** A line that continues in the next one is obsolete, and parsers disagree about it. */
const FOLDED_PATTERN = /\r\n[ \t]/;
const LENGTH_PATTERN = /^\d{1,15}$/;
const CLOSE_PATTERN = /\bclose\b/i;
/** Responses that have no body whatever length they announce. Our daemon sends none. */
const WITHOUT_CONTENT: ReadonlySet<number> = new Set([204, 304]);

export class ResponseParser {
  readonly #expected: Expected;
  /** The received part of the head. */
  #partialHead: Buffer | null = null;
  #head = "";
  /** `null` until the head is complete. */
  #body: Buffer | null = null;
  #received = 0;
  status = 0;
  /** Whether any byte has arrived. */
  hasBegun = false;
  /** Whether the daemon closes the connection after this response. */
  isLast = false;

  constructor(expected: Expected) {
    this.#expected = expected;
  }

  /** The body when it is complete, or the first bytes of a stream. Throws `UnexpectedResponse`. */
  take(chunk: Buffer): Parsed | null {
    this.hasBegun = true;
    const rest = this.#body === null ? this.#takeHead(chunk) : chunk;
    if (rest === null) return null;
    const body = this.#body;
    if (body === null) return { first: rest };
    // The usual response comes in one piece: its rest is the body, and nothing is copied.
    if (rest === body) return { body };
    if (rest.length > body.length - this.#received) throw unexpected("sent more than it announced");
    rest.copy(body, this.#received);
    this.#received += rest.length;
    return this.#received === body.length ? { body } : null;
  }

  header(name: string): string | null {
    const lower = this.#head.toLowerCase();
    const sought = `\r\n${name.toLowerCase()}:`;
    const found: string[] = [];
    for (let at = lower.indexOf(sought); at >= 0; at = lower.indexOf(sought, at + 2)) {
      const end = lower.indexOf("\r\n", at + 2);
      found.push(this.#head.slice(at + sought.length, end < 0 ? undefined : end).trim());
    }
    return found.length === 0 ? null : found.join(", ");
  }

  /** The bytes after the head; `null` while the head is incomplete. */
  #takeHead(chunk: Buffer): Buffer | null {
    const all = this.#partialHead === null ? chunk : Buffer.concat([this.#partialHead, chunk]);
    const end = all.indexOf(HEAD_END, 0, "latin1");
    if (end > HEAD_MAX_BYTES || (end < 0 && all.length > HEAD_MAX_BYTES))
      throw unexpected("sent a head without an end");
    if (end < 0) {
      this.#partialHead = all;
      return null;
    }
    const head = all.toString("latin1", 0, end);
    const status = Number(STATUS_PATTERN.exec(head)?.[1]);
    if (!(status >= 200) || WITHOUT_CONTENT.has(status) || FOLDED_PATTERN.test(head)) throw unexpected();
    this.status = status;
    this.#head = head;
    const { length, isCoded } = this.#framing();
    const rest = all.subarray(end + HEAD_END.length);
    if (status === 200 && this.#expected.isStream) return rest;
    this.#body = this.#allocate(isCoded ? null : length, rest);
    return rest;
  }

  #framing(): { readonly length: string | null; readonly isCoded: boolean } {
    let length: string | null = null;
    let isCoded = false;
    for (const [, name = "", value = ""] of this.#head.matchAll(FRAMING_PATTERN)) {
      switch (name.toLowerCase()) {
        case "content-length":
          if (length !== null) throw unexpected("announced two lengths");
          length = value.trimEnd();
          break;
        case "transfer-encoding":
          isCoded = true;
          break;
        default:
          this.isLast ||= CLOSE_PATTERN.test(value);
      }
    }
    return { length, isCoded };
  }

  #allocate(length: string | null, rest: Buffer): Buffer {
    const { maxBytes, refusalMaxBytes } = this.#expected;
    if (length === null || !LENGTH_PATTERN.test(length)) throw unexpected();
    const size = Number(length);
    if (size > (this.status === 200 ? maxBytes : Math.min(maxBytes, refusalMaxBytes)))
      throw new UnexpectedResponse("the daemon's response is longer than its limit", { isTooLong: true });
    return rest.length === size ? rest : Buffer.allocUnsafeSlow(size);
  }
}

function unexpected(what = "sent something else than a response"): UnexpectedResponse {
  return new UnexpectedResponse(`the daemon ${what}`);
}

/** The longest line between two chunks: a size and extensions. */
const CHUNK_LINE_MAX_BYTES = 256;
const CHUNK_SIZE_PATTERN = /^([0-9a-f]{1,8})[ \t]*(?:;.*)?$/i;

/** The content of a body in chunks (RFC 9112, 7.1), one character for each byte. */
export class Chunks {
  /** Bytes left in this chunk. */
  #left = 0;
  #line = "";
  #isBehindContent = false;
  /** The last chunk has arrived, or an invalid one. */
  hasEnded = false;

  take(piece: Buffer): string {
    let content = "";
    for (let at = 0; at < piece.length && !this.hasEnded; ) {
      if (this.#left > 0) {
        const part = piece.toString("latin1", at, Math.min(at + this.#left, piece.length));
        content += part;
        at += part.length;
        this.#left -= part.length;
        this.#isBehindContent = this.#left === 0;
        continue;
      }
      const end = piece.indexOf("\n", at, "latin1");
      this.#line += piece.toString("latin1", at, end < 0 ? piece.length : end);
      if (this.#line.length > CHUNK_LINE_MAX_BYTES) this.hasEnded = true;
      if (end < 0) break;
      at = end + 1;
      this.#takeLine(this.#line.replace(/\r$/, ""));
      this.#line = "";
    }
    return content;
  }

  #takeLine(line: string): void {
    if (this.#isBehindContent) {
      this.#isBehindContent = false;
      this.hasEnded = line !== "";
      return;
    }
    this.#left = Number.parseInt(CHUNK_SIZE_PATTERN.exec(line)?.[1] ?? "0", 16);
    this.hasEnded = this.#left === 0;
  }
}
