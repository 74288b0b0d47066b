/**
 * Requests to one daemon: credentials on each, connections kept for the next, errors rebuilt as they were thrown.
 *
 * The daemon never closes a connection for being idle. So a connection that breaks means that one side has ended, or
 * that the network has: which of both is the caller's to find out (`ConnectionLost`).
 */

import { type IncomingMessage, type RequestOptions, request } from "node:http";
import { connect } from "node:net";
import type { Duplex } from "node:stream";
import { DAEMON_HEADERS, SandlotError, SOCKET_PATH_MAX_BYTES, TUNNEL_PROTOCOL } from "@sandlot/contract";
import type { z } from "zod";
import { ConnectionLost, Connections, type DaemonAddress, type Engaged, lost, type Question } from "./connections.ts";
import { errorOf, parseReply } from "./replies.ts";

export interface DaemonTarget {
  readonly address: DaemonAddress;
  readonly sandboxId: string;
  readonly generation: number;
  readonly token: string;
  /** Asks the engine, where no answer by itself does not say that it has ended. */
  readonly isDead?: () => Promise<boolean>;
}

export interface Call {
  readonly method: "GET" | "POST" | "PUT";
  readonly path: string;
  readonly query?: Readonly<Record<string, string | number | undefined>>;
  readonly body?: Uint8Array;
  readonly signal?: AbortSignal;
  /** Of `engage`. Asked twice it means the same: so it is, once, when a kept connection turns out to have ended. */
  readonly repeatable?: boolean;
}

/** Two full rings of output, each byte escaped, and something to spare. No honest answer is longer. */
const REPLY_MAX_BYTES = 160 * 1024 * 1024;
const REFUSAL_MAX_BYTES = 1024 * 1024;
const CRLF = "\r\n";

export class Wire {
  readonly target: DaemonTarget;
  readonly #connections: Connections;
  readonly #where: RequestOptions;
  /** Of every question that is asked without node:http. */
  readonly #head: string;

  /** With `connections` that are there already, or its own. */
  constructor(target: DaemonTarget, connections: Connections = new Connections()) {
    const { address } = target;
    if ("path" in address && Buffer.byteLength(address.path) > SOCKET_PATH_MAX_BYTES) {
      const problem = `the socket path ${address.path} has more than ${SOCKET_PATH_MAX_BYTES} bytes`;
      throw new SandlotError("internal", { problem });
    }
    this.target = target;
    this.#connections = connections;
    const headers = {
      [DAEMON_HEADERS.sandboxId]: target.sandboxId,
      [DAEMON_HEADERS.generation]: String(target.generation),
      [DAEMON_HEADERS.token]: target.token,
    };
    this.#where = {
      ...("path" in address ? { socketPath: address.path } : { host: address.host, port: address.port }),
      agent: connections.agent,
      headers,
    };
    this.#head = ["Host: sandbox", ...Object.entries(headers).map(([name, value]) => headerLine(name, value)), ""].join(
      CRLF,
    );
  }

  /** A question with a JSON answer. */
  async ask<T>(schema: z.ZodType<T>, call: Call): Promise<T> {
    return parseReply(schema, await this.bytes(call));
  }

  /** A JSON question with a JSON answer. */
  post<T>(schema: z.ZodType<T>, path: string, fields: unknown, signal?: AbortSignal): Promise<T> {
    const body = Buffer.from(JSON.stringify(fields));
    return this.ask(schema, { method: "POST", path, body, ...(signal && { signal }) });
  }

  /** A question whose answer is taken whole. */
  async bytes(call: Call, maxBytes = REPLY_MAX_BYTES): Promise<Buffer> {
    const question = this.#question(call, maxBytes);
    const answer = await this.#connections.ask(this.target.address, question);
    if (answer.status === 200) return answer.body;
    throw errorOf(answer.status, answer.body);
  }

  /** A question whose answer does not end. An error answer is thrown. */
  async engage(call: Call): Promise<Engaged> {
    const { address } = this.target;
    const question = this.#question(call, REFUSAL_MAX_BYTES);
    const answer = await this.#connections.engage(address, question).catch((error: unknown) => {
      if (call.repeatable !== true || !(error instanceof ConnectionLost && error.metClosedLine)) throw error;
      return this.#connections.engage(address, { ...question, onNewLine: true });
    });
    if ("socket" in answer) return answer;
    throw errorOf(answer.status, answer.body);
  }

  /** A question whose answer is read as it comes. An error answer is thrown. */
  async open(call: Call): Promise<IncomingMessage> {
    const response = await this.#send(call);
    const status = response.statusCode ?? 0;
    if (status === 200) return response;
    throw errorOf(status, await collect(response));
  }

  /** What a connection that becomes something else than HTTP begins with. */
  upgrade(path: string, query: Call["query"]) {
    const { address } = this.target;
    return {
      url: `ws://sandbox${path}${search(query)}`,
      headers: this.#where.headers as Record<string, string>,
      createConnection: () => ("path" in address ? connect(address.path) : connect(address.port, address.host)),
    };
  }

  /** A connection to a port inside. Not one of those that are kept. */
  tunnel(port: number, signal?: AbortSignal): Promise<Duplex> {
    return this.takeOver("/sandlot/connect", { port }, signal);
  }

  /** A connection of its own that becomes something else than HTTP. */
  takeOver(path: string, query: Call["query"], signal?: AbortSignal): Promise<Duplex> {
    signal?.throwIfAborted();
    return new Promise((resolve, reject) => {
      const headers = { ...this.#where.headers, connection: "Upgrade", upgrade: TUNNEL_PROTOCOL };
      const target = { path: path + search(query), headers };
      const outgoing = request({ ...this.#where, agent: false, method: "GET", ...target });
      const onAbort = () => {
        outgoing.destroy();
        reject(signal?.reason);
      };
      signal?.addEventListener("abort", onAbort, { once: true });
      outgoing.once("close", () => signal?.removeEventListener("abort", onAbort));
      outgoing.once("upgrade", (_response, socket, head) => {
        if (head.length > 0) socket.unshift(head);
        resolve(socket);
      });
      outgoing.once("response", (response) => {
        collect(response).then((body) => reject(errorOf(response.statusCode ?? 0, body)), reject);
      });
      outgoing.once("error", (error) => reject(lost(error)));
      outgoing.end();
    });
  }

  close(): void {
    this.#connections.destroy();
  }

  #question({ method, path, query, body, signal }: Call, answerMaxBytes: number): Question {
    signal?.throwIfAborted();
    const length = body === undefined ? "" : `content-length: ${body.length}${CRLF}`;
    const head = `${method} ${path}${search(query)} HTTP/1.1${CRLF}${this.#head}${length}${CRLF}`;
    return { head, body, answerMaxBytes, signal };
  }

  #send(call: Call): Promise<IncomingMessage> {
    const { method, path, query, body, signal } = call;
    signal?.throwIfAborted();
    return new Promise((resolve, reject) => {
      const length = body === undefined ? {} : { "content-length": body.length };
      const headers = { ...this.#where.headers, ...length };
      const outgoing = request({ ...this.#where, method, path: path + search(query), headers });
      const onAbort = () => {
        outgoing.destroy();
        reject(signal?.reason);
      };
      signal?.addEventListener("abort", onAbort, { once: true });
      outgoing.once("close", () => signal?.removeEventListener("abort", onAbort));
      outgoing.once("response", resolve);
      outgoing.once("error", (error) => reject(lost(error)));
      outgoing.end(body);
    });
  }
}

/** A refusal, whole. */
function collect(response: IncomingMessage): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const parts: Buffer[] = [];
    let size = 0;
    response.on("data", (chunk: Buffer) => {
      parts.push(chunk);
      size += chunk.length;
      if (size > REFUSAL_MAX_BYTES) response.destroy(new Error("the daemon's refusal has no end"));
    });
    response.on("end", () => resolve(Buffer.concat(parts, size)));
    response.on("error", (error) => reject(lost(error)));
    response.on("close", () => reject(lost(new Error("the answer was cut off"))));
  });
}

/** Ids and tokens are ours; a line break in one would make two headers of it. */
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
