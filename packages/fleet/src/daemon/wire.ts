/**
 * Requests to one daemon: credentials on each, connections kept for the next, errors rebuilt as they were thrown.
 *
 * The daemon never closes a connection for being idle. So a connection that breaks means that one side has ended, or
 * that the network has: which of both is the caller's to find out (`ConnectionLost`).
 */

import { Agent, type IncomingMessage, type RequestOptions, request } from "node:http";
import { connect } from "node:net";
import type { Duplex } from "node:stream";
import { DAEMON_HEADERS, SandlotError, SOCKET_PATH_MAX_BYTES, TUNNEL_PROTOCOL } from "@sandlot/contract";
import type { z } from "zod";
import { errorOf, parseReply } from "./replies.ts";

export type DaemonAddress = { readonly path: string } | { readonly host: string; readonly port: number };

export interface DaemonTarget {
  readonly address: DaemonAddress;
  readonly sandboxId: string;
  readonly generation: number;
  readonly token: string;
  /** Asks the engine, where no answer by itself does not say that it has ended. */
  readonly isDead?: () => Promise<boolean>;
}

/** There was no answer. Says nothing about whether the request took effect. */
export class ConnectionLost extends Error {
  override readonly name = "ConnectionLost";
}

export interface Call {
  readonly method: "GET" | "POST" | "PUT";
  readonly path: string;
  readonly query?: Readonly<Record<string, string | number | undefined>>;
  readonly body?: Uint8Array;
  readonly signal?: AbortSignal;
  /** Asked twice it means the same: so it is asked again, once, when a kept connection turns out to have ended. */
  readonly repeatable?: boolean;
}

/** Connections to one daemon, kept for whoever asks next. */
export type Connections = Agent;

/** Two full rings of output, each byte escaped, and something to spare. No honest answer is longer. */
const REPLY_MAX_BYTES = 160 * 1024 * 1024;
const TOO_LONG = "the daemon's answer is longer than any may be";
const PLACE_MIN_BYTES = 64 * 1024;
/** Connections kept for later; each costs both sides a few kilobytes. */
const IDLE_CONNECTIONS_MAX = 16;

/** With `keep: false` each request has one of its own, and nobody has to close them. */
export function makeConnections({ keep } = { keep: true }): Connections {
  return new Agent({ keepAlive: keep, maxFreeSockets: IDLE_CONNECTIONS_MAX, scheduling: "lifo" });
}

export class Wire {
  readonly target: DaemonTarget;
  readonly #connections: Connections;
  readonly #where: RequestOptions;

  /** With `connections` that are there already, or its own. */
  constructor(target: DaemonTarget, connections: Connections = makeConnections()) {
    const { address } = target;
    if ("path" in address && Buffer.byteLength(address.path) > SOCKET_PATH_MAX_BYTES) {
      const problem = `the socket path ${address.path} has more than ${SOCKET_PATH_MAX_BYTES} bytes`;
      throw new SandlotError("internal", { problem });
    }
    this.target = target;
    this.#connections = connections;
    this.#where = {
      ...("path" in address ? { socketPath: address.path } : { host: address.host, port: address.port }),
      agent: connections,
      headers: {
        [DAEMON_HEADERS.sandboxId]: target.sandboxId,
        [DAEMON_HEADERS.generation]: String(target.generation),
        [DAEMON_HEADERS.token]: target.token,
      },
    };
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
    return collect(await this.open(call), maxBytes);
  }

  /** A question whose answer is read as it comes. An error answer is thrown. */
  async open(call: Call): Promise<IncomingMessage> {
    const response = await this.#send(call);
    const status = response.statusCode ?? 0;
    if (status === 200) return response;
    throw errorOf(status, await collect(response, REPLY_MAX_BYTES));
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
        collect(response, REPLY_MAX_BYTES).then((body) => reject(errorOf(response.statusCode ?? 0, body)), reject);
      });
      outgoing.once("error", (error) => reject(lost(error)));
      outgoing.end();
    });
  }

  close(): void {
    this.#connections.destroy();
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
      outgoing.once("error", (error) => {
        if (call.repeatable !== true || !outgoing.reusedSocket || signal?.aborted === true) reject(lost(error));
        else this.#send({ ...call, repeatable: false }).then(resolve, reject);
      });
      outgoing.end(body);
    });
  }
}

/** An announced length is filled in place; a large answer is not held twice. */
function collect(response: IncomingMessage, maxBytes: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const announced = Number(response.headers["content-length"] ?? Number.NaN);
    const place = announced <= maxBytes && announced > PLACE_MIN_BYTES ? Buffer.allocUnsafeSlow(announced) : null;
    const parts: Buffer[] = [];
    let size = 0;
    let ended = false;
    response.on("data", (chunk: Buffer) => {
      if (place === null) parts.push(chunk);
      else chunk.copy(place, size);
      size += chunk.length;
      if (size > maxBytes) response.destroy(new SandlotError("internal", { problem: TOO_LONG }));
    });
    response.on("end", () => {
      ended = true;
      const [only] = parts;
      if (!response.complete) reject(lost(new Error("the answer was cut off")));
      else resolve(place ?? (parts.length === 1 && only !== undefined ? only : Buffer.concat(parts, size)));
    });
    response.on("error", (error) => reject(error instanceof SandlotError ? error : lost(error)));
    // Every answer closes in the end; an error for each would cost more than reading it.
    response.on("close", () => {
      if (!ended) reject(lost(new Error("the answer was cut off")));
    });
  });
}

function lost(error: Error): ConnectionLost {
  return new ConnectionLost(error.message, { cause: error });
}

function search(query: Call["query"]): string {
  if (query === undefined) return "";
  const parts = Object.entries(query).flatMap(([name, value]) =>
    value === undefined ? [] : [`${name}=${encodeURIComponent(value)}`],
  );
  return parts.length === 0 ? "" : `?${parts.join("&")}`;
}
