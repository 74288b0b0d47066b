/**
 * Requests to one AIO server: the key on each, pooled connections, streaming responses.
 *
 * Invariants
 * - `close` ends every connection, also those in use, and nothing is sent afterwards.
 * - A response is no longer than `aioLimit` allows.
 * - No request to a near address goes through a proxy of the environment (`proxy-rule.ts`), and none over TLS does.
 * - A URL may have a path, which comes before that of every call.
 */

import {
  Agent,
  type AgentOptions,
  type ClientRequestArgs,
  type IncomingMessage,
  type RequestOptions,
  request,
} from "node:http";
import { Agent as SecureAgent, request as secureRequest } from "node:https";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { SandlotError } from "@sandlot/contract";
import { aioLimit, STREAM_LIMITS } from "../../../untrusted/limits.ts";
import { readInParts } from "../../../untrusted/small-reads.ts";
import { proxyFor } from "./proxy-rule.ts";

/** An address, or a function that makes connections, which is closed with the wire. */
export type AioAddress =
  | { readonly url: string }
  | { readonly connect: () => Promise<Socket>; readonly close: () => void };

export interface WireOptions {
  readonly address: AioAddress;
  /** `null` for a server without a key. */
  readonly apiKey: string | null;
  /** The variables that name proxies; default this process's. */
  readonly environment?: Readonly<Record<string, string | undefined>>;
}

export interface AioCall {
  readonly method: "GET" | "POST";
  readonly path: string;
  readonly query?: Readonly<Record<string, string>>;
  readonly fields?: object;
  readonly signal?: AbortSignal | undefined;
  /** Without the key. */
  readonly anonymous?: boolean;
}

export interface Reply {
  readonly status: number;
  readonly body: Buffer;
}

/** Accepted interim responses (1xx). */
const EARLY_MAX = 16;

/** There was no response. Whether the request took effect is unknown. */
export class NoAnswer extends Error {
  override readonly name = "NoAnswer";
}

export class AioWire {
  readonly #agent: Agent;
  readonly #isSecure: boolean;
  readonly #where: RequestOptions;
  /** The prefix of a path: that of the URL, and the whole URL for a proxy. */
  readonly #before: string;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #key: Readonly<Record<string, string>>;
  readonly #closeWay: () => void;
  #closed = false;

  constructor({ address, apiKey, environment = process.env }: WireOptions) {
    this.#isSecure = "url" in address && address.url.startsWith("https:");
    this.#agent = this.#isSecure
      ? new SecureAgent(AGENT_OPTIONS)
      : new AioAgent("connect" in address ? () => this.#connect(address.connect) : null);
    this.#closeWay = "connect" in address ? address.close : () => {};
    const { where, before, headers } = "url" in address ? routeTo(address.url, environment) : DIRECT;
    this.#where = where;
    this.#before = before;
    this.#headers = headers;
    this.#key = apiKey === null ? {} : { "x-aio-api-key": apiKey };
  }

  get hasKey(): boolean {
    return Object.keys(this.#key).length > 0;
  }

  /** A request whose response is read whole. */
  async ask(call: AioCall): Promise<Reply> {
    const response = await this.open(call);
    const status = response.statusCode ?? 0;
    const maxBytes = status === 200 ? aioLimit(call.path).maxBytes : STREAM_LIMITS.refusalMaxBytes;
    return { status, body: await collect(response, maxBytes) };
  }

  /** A request whose response is streamed. */
  open({ method, path, query = {}, fields, signal, anonymous = false }: AioCall): Promise<IncomingMessage> {
    if (this.#closed) throw new NoAnswer("the connection was closed here");
    signal?.throwIfAborted();
    const body = fields === undefined ? undefined : Buffer.from(JSON.stringify(fields));
    const search = new URLSearchParams(query).toString();
    const headers = {
      ...this.#headers,
      ...(!anonymous && this.#key),
      ...(body !== undefined && { "content-type": "application/json", "content-length": String(body.length) }),
    };
    return new Promise((resolve, reject) => {
      const target = `${this.#before}${path}${search === "" ? "" : `?${search}`}`;
      const send = this.#isSecure ? secureRequest : request;
      const outgoing = send({ ...this.#where, agent: this.#agent, method, path: target, headers });
      const onAbort = () => {
        outgoing.destroy();
        reject(signal?.reason);
      };
      signal?.addEventListener("abort", onAbort, { once: true });
      outgoing.once("close", () => {
        signal?.removeEventListener("abort", onAbort);
        reject(new NoAnswer("the connection ended without an answer"));
      });
      readInParts(outgoing);
      let early = 0;
      outgoing.on("information", () => ++early > EARLY_MAX && outgoing.destroy(new Error("it announces without end")));
      outgoing.once("response", (response) => {
        // An error after the last reader left has no handler.
        response.on("error", () => {});
        resolve(response);
      });
      outgoing.once("upgrade", (_, socket) => socket.destroy());
      outgoing.on("error", (error) => reject(new NoAnswer(error.message, { cause: error })));
      outgoing.end(body);
    });
  }

  /** Idempotent. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#agent.destroy();
    this.#closeWay();
  }

  /** A connection made after `close` is closed too. */
  async #connect(connect: () => Promise<Socket>): Promise<Socket> {
    const socket = await connect();
    if (!this.#closed) return socket;
    socket.destroy();
    throw new NoAnswer("the connection was closed here");
  }
}

const DIRECT = { where: { host: "sandbox", port: 80 }, before: "", headers: { host: "sandbox" } };

function routeTo(url: string, environment: Readonly<Record<string, string | undefined>>): typeof DIRECT {
  const target = new URL(url);
  const isSecure = target.protocol === "https:";
  if (target.protocol !== "http:" && !isSecure)
    throw new SandlotError("internal", { problem: `${url} is not an http address` });
  const proxy = isSecure ? null : proxyFor(url, environment);
  const at = ({ hostname, port, protocol }: URL) => ({
    host: hostname.replace(/^\[|\]$/g, ""),
    port: Number(port || (protocol === "https:" ? 443 : 80)),
  });
  const headers = { host: target.host };
  const path = target.pathname.replace(/\/+$/, "");
  if (proxy === null) return { where: at(target), before: path, headers };
  const credentials = `${decodeURIComponent(proxy.username)}:${decodeURIComponent(proxy.password)}`;
  const shown = proxy.username !== "" && {
    "proxy-authorization": `Basic ${Buffer.from(credentials).toString("base64")}`,
  };
  return { where: at(proxy), before: `${target.origin}${path}`, headers: { ...headers, ...shown } };
}

const PARTS_MAX = 1_024;
const PART_MIN_BYTES = 256;

/** The whole response. A truncated one is an error. */
export function collect(response: IncomingMessage, maxBytes: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const parts: Buffer[] = [];
    let size = 0;
    response.on("data", (chunk: Buffer) => {
      parts.push(chunk);
      size += chunk.length;
      // Many tiny chunks cost more than their bytes.
      if (size > maxBytes || parts.length > PARTS_MAX + size / PART_MIN_BYTES)
        response.destroy(
          new SandlotError("bad_sandbox_response", { problem: "its server sent more than this answer may have" }),
        );
    });
    const cut = (error?: Error) =>
      reject(error instanceof SandlotError ? error : new NoAnswer(error?.message ?? "the answer was cut off"));
    response.on("end", () => (response.complete ? resolve(Buffer.concat(parts, size)) : cut()));
    response.on("error", cut);
    response.on("close", () => cut());
  });
}

/** Servers close theirs after five seconds or more. */
const IDLE_MS = 2_000;
const IDLE_CONNECTIONS_MAX = 16;

/** Only idle connections are closed for being idle; a pending request has its own deadline. */
const AGENT_OPTIONS: AgentOptions = {
  keepAlive: true,
  maxFreeSockets: IDLE_CONNECTIONS_MAX,
  scheduling: "lifo",
  timeout: IDLE_MS,
};

class AioAgent extends Agent {
  readonly #connect: (() => Promise<Socket>) | null;

  /** `connect` makes connections where an address alone is not enough. */
  constructor(connect: (() => Promise<Socket>) | null) {
    super(AGENT_OPTIONS);
    this.#connect = connect;
  }

  override createConnection(
    options: ClientRequestArgs,
    callback?: (error: Error | null, stream: Duplex) => void,
  ): Duplex | null | undefined {
    if (this.#connect === null) return super.createConnection(options, callback);
    const tell = callback as unknown as (error: Error | null, stream?: Duplex) => void;
    this.#connect().then(
      (socket) => tell(null, socket),
      (error: Error) => tell(error),
    );
    return undefined;
  }
}
