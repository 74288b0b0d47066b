/**
 * Requests to one daemon: credentials on each, a connection pool, and errors rebuilt from responses.
 *
 * The daemon never closes a connection for being idle. So a broken connection means that one side or the network has
 * ended; the caller finds out which (`ConnectionLost`).
 *
 * Invariant: every request has an entry in `DAEMON_LIMITS`. A longer or later response ends its connection.
 */

import { type ClientRequest, type IncomingMessage, type RequestOptions, request } from "node:http";
import type { Duplex } from "node:stream";
import { DAEMON_HEADERS, SandlotError, SOCKET_PATH_MAX_BYTES, TUNNEL_PROTOCOL } from "@sandlot/contract";
import type { z } from "zod";
import { DAEMON_LIMITS, type DaemonPath, PATIENCE_MS, type ReplyLimit, STREAM_LIMITS } from "../untrusted/limits.ts";
import { readInParts, socketInParts } from "../untrusted/small-reads.ts";
import type { Timer } from "../world/world.ts";
import { ConnectionLost, ConnectionPool, type PoolRequest } from "./connection-pool.ts";
import { type DaemonAddress, dial } from "./dial.ts";
import { errorOf, parseReply } from "./replies.ts";
import type { OpenStream } from "./response-parser.ts";

export interface DaemonTarget {
  readonly address: DaemonAddress;
  readonly sandboxId: string;
  readonly generation: number;
  readonly token: string;
  /** Asks the engine, where silence does not prove that the daemon has ended. */
  readonly isDead?: () => Promise<boolean>;
}

export interface Call {
  readonly method: "GET" | "POST" | "PUT";
  readonly path: DaemonPath;
  readonly query?: Readonly<Record<string, string | number | undefined>>;
  readonly body?: Uint8Array;
  readonly signal?: AbortSignal;
  /** Where the caller requested less than `DAEMON_LIMITS` allows. */
  readonly maxBytes?: number;
  /** How long the daemon may wait before it responds, where `DAEMON_LIMITS` leaves that to the caller. */
  readonly waitsMs?: number;
  /** For `openStream`. The request may be sent twice: it is, once, when a pooled connection turns out to be closed. */
  readonly repeatable?: boolean;
}

/** The longest delay of one timer. */
const TIMER_MAX_MS = 2 ** 31 - 1;
const CRLF = "\r\n";

export class Wire {
  readonly target: DaemonTarget;
  readonly #pool: ConnectionPool;
  readonly #where: RequestOptions;
  /** The head of every request that is sent without node:http. */
  readonly #head: string;

  /** Uses the given pool, or its own. */
  constructor(target: DaemonTarget, pool: ConnectionPool = new ConnectionPool()) {
    const { address } = target;
    if ("path" in address && Buffer.byteLength(address.path) > SOCKET_PATH_MAX_BYTES) {
      const problem = `the socket path ${address.path} has more than ${SOCKET_PATH_MAX_BYTES} bytes`;
      throw new SandlotError("internal", { problem });
    }
    this.target = target;
    this.#pool = pool;
    const headers = {
      [DAEMON_HEADERS.sandboxId]: target.sandboxId,
      [DAEMON_HEADERS.generation]: String(target.generation),
      [DAEMON_HEADERS.token]: target.token,
    };
    // The agent connects to `daemon`; the name of the host is nothing but text.
    this.#where = { host: "sandbox", agent: pool.agent, headers, ...{ daemon: address } };
    this.#head = ["Host: sandbox", ...Object.entries(headers).map(([name, value]) => headerLine(name, value)), ""].join(
      CRLF,
    );
  }

  /** A request with a JSON response. */
  async ask<T>(schema: z.ZodType<T>, call: Call): Promise<T> {
    return parseReply(schema, await this.bytes(call), limitOf(call).maxValues);
  }

  /** A JSON request with a JSON response. */
  post<T>(schema: z.ZodType<T>, path: DaemonPath, fields: object, signal?: AbortSignal, waitsMs?: number): Promise<T> {
    const body = Buffer.from(JSON.stringify(fields));
    const more = { ...(signal && { signal }), ...(waitsMs !== undefined && { waitsMs }) };
    return this.ask(schema, { method: "POST", path, body, ...more });
  }

  /** A request whose response is read whole. */
  async bytes(call: Call): Promise<Buffer> {
    const { status, body } = await this.#pool.send(this.target.address, this.#request(call));
    if (status === 200) return body;
    throw errorOf(status, body);
  }

  /** A request whose response does not end. An error response is thrown. */
  async openStream(call: Call): Promise<OpenStream> {
    const { address } = this.target;
    const request = this.#request(call);
    const response = await this.#pool.openStream(address, request).catch((error: unknown) => {
      if (call.repeatable !== true || !(error instanceof ConnectionLost && error.isStaleConnection)) throw error;
      return this.#pool.openStream(address, { ...request, onNewConnection: true });
    });
    if ("socket" in response) return response;
    throw errorOf(response.status, response.body);
  }

  /** A request whose response is read as it arrives. An error response is thrown. */
  async open(call: Call): Promise<IncomingMessage> {
    const response = await this.#send(call);
    const status = response.statusCode ?? 0;
    if (status === 200) return response;
    throw errorOf(status, await this.#collect(response));
  }

  /** The start of a connection that switches to another protocol. */
  upgrade(path: DaemonPath, query: Call["query"]) {
    const { address } = this.target;
    return {
      url: `ws://sandbox${path}${search(query)}`,
      headers: this.#where.headers as Record<string, string>,
      createConnection: () => {
        const socket = dial(address, this.#pool.timer);
        // An abandoned handshake leaves no other listener for errors.
        socket.on("error", () => {});
        socketInParts(socket);
        return socket;
      },
    };
  }

  /** A connection to a port inside, outside of the pool. */
  tunnel(port: number, signal?: AbortSignal): Promise<Duplex> {
    return this.takeOver("/sandlot/connect", { port }, signal);
  }

  /** A separate connection that switches to another protocol. */
  takeOver(path: DaemonPath, query: Call["query"], signal?: AbortSignal): Promise<Duplex> {
    signal?.throwIfAborted();
    return new Promise((resolve, reject) => {
      const headers = { ...this.#where.headers, connection: "Upgrade", upgrade: TUNNEL_PROTOCOL };
      const target = { path: path + search(query), headers };
      const { agent: _, ...where } = this.#where;
      const createConnection = () => {
        const socket = dial(this.target.address, this.#pool.timer);
        socket.on("error", () => {});
        return socket;
      };
      const outgoing = request({ ...where, createConnection, method: "GET", ...target });
      const settled = this.#bound(outgoing, STREAM_LIMITS.upgradeMs, signal, reject);
      outgoing.once("upgrade", (_response, socket, head) => {
        settled();
        // The new owner adds its own listener; this one covers an error before that.
        socket.on("error", () => {});
        if (head.length > 0) socket.unshift(head);
        resolve(socket);
      });
      outgoing.once("response", (response) => {
        settled();
        this.#collect(response).then((body) => reject(errorOf(response.statusCode ?? 0, body)), reject);
      });
      outgoing.end();
    });
  }

  /** Deadlines for reads from this daemon. */
  timer(delayMs: number, fire: () => void): Timer {
    return this.#pool.timer(delayMs, fire);
  }

  close(): void {
    this.#pool.destroy();
  }

  #request(call: Call): PoolRequest {
    const { method, path, query, body, signal } = call;
    const { maxBytes, firstByteMs, bodyMs } = limitOf(call);
    const responseMaxBytes = Math.min(maxBytes, call.maxBytes ?? maxBytes);
    const { refusalMaxBytes } = STREAM_LIMITS;
    signal?.throwIfAborted();
    const length = body === undefined ? "" : `content-length: ${body.length}${CRLF}`;
    const head = `${method} ${path}${search(query)} HTTP/1.1${CRLF}${this.#head}${length}${CRLF}`;
    return { head, body, responseMaxBytes, refusalMaxBytes, firstByteMs, bodyMs, signal };
  }

  #send(call: Call): Promise<IncomingMessage> {
    const { method, path, query, body, signal } = call;
    signal?.throwIfAborted();
    return new Promise((resolve, reject) => {
      const length = body === undefined ? {} : { "content-length": body.length };
      const headers = { ...this.#where.headers, ...length };
      const outgoing = request({ ...this.#where, method, path: path + search(query), headers });
      const settled = this.#bound(outgoing, limitOf(call).firstByteMs, signal, reject);
      outgoing.once("response", (response) => {
        settled();
        // An error after the last reader has left has no receiver.
        response.on("error", () => {});
        resolve(response);
      });
      outgoing.end(body);
    });
  }

  /** Ends a request by its deadline, until the returned function is called, or by its signal, also after that. */
  #bound(
    outgoing: ClientRequest,
    deadlineMs: number | null,
    signal: AbortSignal | undefined,
    reject: (error: unknown) => void,
  ): () => void {
    const end = (error: unknown) => {
      outgoing.destroy();
      reject(error);
    };
    const onAbort = () => end(signal?.reason);
    const late = () => end(lost(new Error(`the daemon did not answer within ${deadlineMs} ms`), { hadBegun: true }));
    const timer = deadlineMs === null ? undefined : this.timer(deadlineMs, late);
    readInParts(outgoing);
    signal?.addEventListener("abort", onAbort, { once: true });
    // Our daemon sends nothing before its response, and a hostile one could send without end.
    outgoing.once("information", () => end(lost(new Error("the daemon sent something else than an answer"))));
    outgoing.once("close", () => {
      timer?.cancel();
      signal?.removeEventListener("abort", onAbort);
      reject(lost(new Error("the connection ended")));
    });
    outgoing.on("error", (error) => reject(lost(error)));
    return () => timer?.cancel();
  }

  /** Reads a refusal whole. */
  #collect(response: IncomingMessage): Promise<Buffer> {
    return new Promise((resolve, reject) => {
      const parts: Buffer[] = [];
      let size = 0;
      const late = () => response.destroy(new Error("the daemon did not end its refusal in time"));
      const timer = this.timer(STREAM_LIMITS.unitMs, late);
      response.on("data", (chunk: Buffer) => {
        parts.push(chunk);
        size += chunk.length;
        if (size > STREAM_LIMITS.refusalMaxBytes) response.destroy(new Error("the daemon's refusal has no end"));
      });
      response.on("end", () => resolve(Buffer.concat(parts, size)));
      response.on("error", (error) => reject(lost(error)));
      response.on("close", () => {
        timer.cancel();
        reject(lost(new Error("the answer was cut off")));
      });
    });
  }
}

/** The body of a call with bytes: a JSON line, then the bytes. */
export function encodeCall(call: object, bytes: string | Uint8Array | undefined): Buffer {
  const line = Buffer.from(`${JSON.stringify(call)}\n`);
  return bytes === undefined ? line : Buffer.concat([line, encode(bytes)]);
}

export function encode(content: string | Uint8Array): Uint8Array {
  return typeof content === "string" ? Buffer.from(content, "utf8") : content;
}

function lost(cause: Error, facts: { readonly hadBegun?: boolean } = {}): ConnectionLost {
  return new ConnectionLost(cause.message, { cause, ...facts });
}

/** Where the caller sets the wait, the deadline begins where the daemon's own should have ended. */
function limitOf({ path, waitsMs }: Call): ReplyLimit {
  const limit: ReplyLimit = DAEMON_LIMITS[path];
  if (limit.firstByteMs !== null || waitsMs === undefined || !(waitsMs > 0)) return limit;
  return { ...limit, firstByteMs: Math.min(waitsMs + PATIENCE_MS, TIMER_MAX_MS) };
}

/** Ids and tokens are ours; a line break in one would split it into two headers. */
function headerLine(name: string, value: string): string {
  if (/[\r\n]/.test(value)) throw new SandlotError("internal", { problem: `a line break in ${name}` });
  return `${name}: ${value}`;
}

function search(query: Call["query"]): string {
  if (query === undefined) return "";
  const parts = Object.entries(query).flatMap(([name, value]) =>
    value === undefined ? [] : [`${name}=${encodeURIComponent(value)}`],
  );
  return parts.length === 0 ? "" : `?${parts.join("&")}`;
}
