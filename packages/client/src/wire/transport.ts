/**
 * Requests to a gateway.
 *
 * When something is asked again, by itself:
 * - it was refused before anything happened (no room, too fast, recovering): whatever it is;
 * - the connection broke, or the gateway said `retryable`: only what may happen twice (`repeatable`).
 * Everything else is the caller's decision. Waiting grows, is jittered, and ends with the caller's signal.
 *
 * A thread may live at another gateway of the fleet (`thread_elsewhere`): the request is sent there, once, and so are
 * the thread's next ones (`gateways.ts`). A body that was a stream is gone by then; its caller gets the error.
 * A remembered gateway that refuses the key, or does not answer like one of ours, is forgotten, and the given one is
 * asked: another server may have taken over the address, and must not get the key again and again.
 *
 * In Node, JSON requests and event streams go over `node:http` (`node-calls.ts`); everything else goes over `fetch`.
 */

import { checkProtocol, GATEWAY_HEADERS, isSandlotError, SandlotError } from "@sandlot/contract";
import { around, pause } from "./clock.ts";
import {
  ConnectionBroken,
  errorOf,
  isForeign,
  isRefusedUntouched,
  jsonOf,
  type Reader,
  readResponse,
  retryAfterMs,
  unreachable,
} from "./errors.ts";
import { Gateways, threadInPath } from "./gateways.ts";
import { type BufferedResponse, type NodeCalls, nodeCalls, type StreamedResponse } from "./node-calls.ts";

export interface TransportOptions {
  readonly url: string;
  readonly apiKey?: string;
  /** The user that a platform's or an operator's key acts for. */
  readonly user?: string;
  /** How often a request is retried before its error is thrown. Default 4. */
  readonly retriesMax?: number;
  readonly fetch?: typeof fetch;
  /** Whether a thread that lives at another gateway of the fleet is asked for there, with the same key. Default true. */
  readonly follow?: boolean;
  /** Called with the generation of the sandbox that responded, if there was one. The response waits for it. */
  readonly onGeneration?: (generation: number) => Promise<void> | null;
}

export type Query = Readonly<Record<string, string | number | boolean | undefined>>;

export interface Call {
  readonly method: "GET" | "HEAD" | "POST" | "PUT" | "DELETE";
  readonly path: string;
  readonly query?: Query;
  readonly json?: unknown;
  readonly body?: Uint8Array | Blob | ReadableStream<Uint8Array> | FormData;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal | undefined;
  /** The thread that it concerns, where its path does not say so. */
  readonly thread?: string;
  /** Repeating it is harmless. */
  readonly repeatable?: boolean;
}

const FIRST_WAIT_MS = 100;
const LONGEST_WAIT_MS = 5_000;

export class Transport {
  readonly url: string;
  readonly apiKey: string | null;
  readonly user: string | null;
  readonly #retriesMax: number;
  readonly #fetch: typeof fetch;
  /** By scheme; `null` where every request goes over `fetch`. */
  readonly #node = new Map<string, NodeCalls | null>();
  readonly #options: TransportOptions;
  readonly #gateways: Gateways;
  /** Headers of every request. */
  readonly #usual: Readonly<Record<string, string>>;

  constructor(options: TransportOptions, gateways?: Gateways) {
    const { url, apiKey, user, retriesMax = 4, fetch: given } = options;
    this.#options = options;
    this.url = checkedUrl(url);
    this.apiKey = apiKey === undefined ? null : checkedKey(apiKey, this.url);
    this.user = user ?? null;
    this.#retriesMax = retriesMax;
    // A browser's fetch refuses to be called as a method of another object.
    this.#fetch = given ?? ((...args) => fetch(...args));
    this.#direct(this.url);
    this.#gateways = gateways ?? new Gateways(this.url, (address, signal) => this.#isHealthy(address, signal));
    this.#usual = {
      ...(this.apiKey === null ? {} : { authorization: `Bearer ${this.apiKey}` }),
      ...(this.user === null ? {} : { [GATEWAY_HEADERS.user]: this.user }),
    };
  }

  /** The same, and `onGeneration` is called with the generation that responded. */
  noticing(onGeneration: (generation: number) => Promise<void> | null): Transport {
    return new Transport({ ...this.#options, onGeneration }, this.#gateways);
  }

  /** The response parsed with its schema. */
  async json<Value>(schema: Reader<Value>, call: Call): Promise<Value> {
    const text = await this.text(call);
    try {
      return readResponse(schema, jsonOf(text, this.url + call.path), this.url + call.path);
    } catch (error) {
      this.#gateways.forget(threadOf(call));
      throw error;
    }
  }

  /** A response without content. */
  async done(call: Call): Promise<void> {
    await this.text(call);
  }

  /** The whole response. */
  text(call: Call): Promise<string> {
    return this.#repeated(call, async (address) => {
      const answer = await this.#once<BufferedResponse>(() => this.#sendBuffered(address, call));
      return answer.text().catch((error: unknown) => {
        throw new ConnectionBroken("the answer was cut off", { cause: rootOf(error) });
      });
    });
  }

  /** A successful response with an unread body. Rejects with a `SandlotError` or the signal's reason. */
  send(call: Call): Promise<Response> {
    return this.#repeated(call, (address) => this.#once(() => this.#fetched(address, call)));
  }

  /** The same, for a streamed response: events. */
  stream(call: Call): Promise<StreamedResponse> {
    return this.#repeated(call, (address) => this.#once(() => this.#sendStreamed(address, call)));
  }

  async #repeated<T>(call: Call, once: (address: string) => Promise<T>): Promise<T> {
    const thread = threadOf(call);
    const turns = { followed: false, returned: false };
    for (let attempt = 0; ; ) {
      const gateway = this.#gateways.of(thread);
      try {
        return await once(addressOf(gateway, call.path, call.query));
      } catch (error) {
        call.signal?.throwIfAborted();
        if (await this.#isToAskElsewhere(call, thread, gateway, turns, error)) continue;
        const told = error instanceof ConnectionBroken ? unreachable(gateway, error.cause) : error;
        if (isSandlotError(told, "gateway_untrusted")) throw told;
        if (attempt >= this.#retriesMax || !isWorthRepeating(call, error)) throw told;
        // The gateway's value is when one more has room again. Where many wait for that room, it is too short.
        const named = (isSandlotError(error) ? retryAfterMs(error) : null) ?? 0;
        await pause(around(Math.min(LONGEST_WAIT_MS, Math.max(named, FIRST_WAIT_MS * 2 ** attempt))), call.signal);
        attempt += 1;
      }
    }
  }

  /**
   * Whether the same request is to be sent at once, to another gateway than this one. A gateway that was followed to
   * and does not answer, does not have the thread any more, or does not answer like a gateway of this fleet is
   * forgotten: the given one knows the present place.
   */
  async #isToAskElsewhere(
    { body, signal, repeatable }: Call,
    thread: string | null,
    gateway: string,
    turns: { followed: boolean; returned: boolean },
    error: unknown,
  ): Promise<boolean> {
    const isGiven = gateway === this.#gateways.given;
    const isElsewhere = isSandlotError(error, "thread_elsewhere");
    const isDoubtful = !isGiven && isDoubtfulAnswer(error);
    if (!isGiven && (isElsewhere || isDoubtful || error instanceof ConnectionBroken)) this.#gateways.forget(thread);
    if (!isElsewhere && !isDoubtful) return false;
    if (thread === null || turns.followed || this.#options.follow === false) return false;
    if (isGiven && isElsewhere) {
      turns.followed = true;
      // Also for a stream, which cannot be sent again: the caller's next request goes to the right gateway.
      const isFound = await this.#gateways.follow(thread, error.details.gateways, signal);
      return isFound && !(body instanceof ReadableStream);
    }
    const isFirst = !turns.returned;
    turns.returned = true;
    // A gateway that refuses the key has done nothing. Behind any other doubtful answer the request may have been done.
    if (isDoubtful && repeatable !== true && !isSandlotError(error, "unauthorized")) return false;
    return isFirst && !(body instanceof ReadableStream);
  }

  /** Where a thread's requests go; for a connection that is no request, and follows one. */
  address(path: string, query?: Query): string {
    return addressOf(this.#gateways.lastOf(threadInPath(path)), path, query);
  }

  /** Without the key: it is not known yet who answers. */
  async #isHealthy(url: string, signal: AbortSignal): Promise<boolean> {
    const address = `${url}/healthz`;
    const direct = this.#direct(address);
    const response =
      direct === null
        ? await this.#fetch(address, { signal, redirect: "error" })
        : await direct.sendBuffered(address, { method: "GET", headers: {}, signal });
    discard(response);
    checkProtocol("gateway", response.headers.get(GATEWAY_HEADERS.protocol));
    return response.ok;
  }

  #direct(address: string): NodeCalls | null {
    const scheme = address.startsWith("https:") ? "https:" : "http:";
    const known = this.#node.get(scheme);
    if (known !== undefined) return known;
    const calls = this.#options.fetch === undefined ? nodeCalls(scheme) : null;
    this.#node.set(scheme, calls);
    return calls;
  }

  #sendBuffered(address: string, call: Call): Promise<BufferedResponse> {
    const direct = call.body === undefined ? this.#direct(address) : null;
    return direct === null ? this.#fetched(address, call) : direct.sendBuffered(address, this.#plain(call));
  }

  async #sendStreamed(address: string, call: Call): Promise<StreamedResponse> {
    const direct = call.body === undefined ? this.#direct(address) : null;
    if (direct !== null) return direct.sendStreamed(address, this.#plain(call));
    const response = await this.#fetched(address, call);
    const { ok, status, headers } = response;
    const text = () => response.text();
    return { ok, status, headers, text, chunks: chunksOf(response), discard: () => discard(response) };
  }

  #plain(call: Call) {
    const { method, json, signal } = call;
    return {
      method,
      headers: this.#headers(call),
      ...(json === undefined ? {} : { body: JSON.stringify(json) }),
      ...(signal === undefined ? {} : { signal }),
    };
  }

  #fetched(address: string, call: Call): Promise<Response> {
    const { method, json, body, signal } = call;
    const init: RequestInit & { duplex?: "half" } = { method, headers: this.#headers(call), redirect: "error" };
    if (json !== undefined) init.body = JSON.stringify(json);
    if (body !== undefined) init.body = body as NonNullable<RequestInit["body"]>;
    if (body instanceof ReadableStream) init.duplex = "half";
    if (signal !== undefined) init.signal = signal;
    return this.#fetch(address, init);
  }

  async #once<T extends BufferedResponse>(ask: () => Promise<T>): Promise<T> {
    let response: T;
    try {
      response = await ask();
    } catch (error) {
      throw new ConnectionBroken("no answer", { cause: rootOf(error) });
    }
    try {
      checkProtocol("gateway", response.headers.get(GATEWAY_HEADERS.protocol));
    } catch (error) {
      discard(response);
      throw error;
    }
    const generation = response.headers.get(GATEWAY_HEADERS.generation);
    const noticed = generation === null ? null : this.#options.onGeneration?.(Number(generation));
    if (noticed !== null && noticed !== undefined) await noticed;
    if (response.ok || response.status === 304) return response;
    throw await errorOf(response);
  }

  #headers({ json, headers }: Call): Record<string, string> {
    return { ...this.#usual, ...(json === undefined ? {} : { "content-type": "application/json" }), ...headers };
  }
}

function threadOf({ thread, path }: Call): string | null {
  return thread ?? threadInPath(path);
}

function isDoubtfulAnswer(error: unknown): boolean {
  return isForeign(error) || isSandlotError(error, "unauthorized") || isSandlotError(error, "protocol_incompatible");
}

function addressOf(gateway: string, path: string, query?: Query): string {
  if (query === undefined) return gateway + path;
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== undefined) parameters.set(name, String(value));
  const text = parameters.toString();
  return `${gateway}${path}${text === "" ? "" : `?${text}`}`;
}

/** Not every browser can iterate over a body. */
async function* chunksOf({ body }: Response): AsyncGenerator<Uint8Array> {
  if (body === null) return;
  const reader = body.getReader();
  try {
    for (let next = await reader.read(); !next.done; next = await reader.read()) yield next.value;
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

/** Its connection would stay open, and keep the process alive. */
function discard(response: BufferedResponse & { readonly body?: ReadableStream | null }): void {
  response.discard?.();
  void response.body?.cancel().catch(() => undefined);
}

function isWorthRepeating({ repeatable, body }: Call, error: unknown): boolean {
  // A stream was consumed; it cannot be sent again.
  if (body instanceof ReadableStream) return false;
  if (isRefusedUntouched(error)) return true;
  if (repeatable !== true) return false;
  return error instanceof ConnectionBroken || (isSandlotError(error) && isPassing(error));
}

function isPassing({ retryable, status }: SandlotError): boolean {
  return retryable && (status === 429 || status === 503);
}

function rootOf(error: unknown): unknown {
  return error instanceof Error && error.cause !== undefined ? error.cause : error;
}

/** A request that can never work fails at once: otherwise the advice would be to retry. */
function checkedUrl(url: string): string {
  const refuse = (problem: string) => new SandlotError("gateway_address_invalid", { url: String(url), problem });
  const text = String(url).trim();
  const parsed = URL.canParse(text) ? new URL(text) : null;
  if (parsed === null || !/^https?:$/.test(parsed.protocol)) throw refuse("it is not an http or https URL");
  return text.replace(/\/+$/, "");
}

/** A key from a file ends with a newline; a key with any other unprintable character is invalid. */
function checkedKey(apiKey: string, url: string): string {
  const key = String(apiKey).trim();
  if (/^[\x21-\x7e]+$/.test(key)) return key;
  const problem = key === "" ? "the key is empty" : "the key has spaces or letters that no key has";
  throw new SandlotError("gateway_address_invalid", { url, problem });
}
