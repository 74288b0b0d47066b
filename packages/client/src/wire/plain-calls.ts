/**
 * Short calls over connections of our own (`@sandlot/contract/short-calls`): to an `http:` address, what may happen twice.
 * Everything else goes over node:http, and so does all of it as soon as anybody has put something between this process and
 * its requests, or listens to them.
 *
 * Invariants
 * - Only what is `repeatable` is asked here, because it may be asked again here: on a new connection when a kept one had
 *   ended, over node:http when the answer is not a plain one.
 * - `null` is "not here": node:http is to be asked.
 * - An origin is asked here once it was heard to answer over node:http in the plain way, with a length. One that has ever
 *   answered in another way is not asked here again: a proxy is in between, and stays there.
 */

import type * as Diagnostics from "node:diagnostics_channel";
import type * as Http from "node:http";
import type * as Net from "node:net";
import { type Answer, ConnectionLost, KeptLines, type Question, StrangeAnswer } from "@sandlot/contract/short-calls";
import { wallMs } from "./clock.ts";
import type { ShortCall } from "./node-calls.ts";

export interface PlainCalls {
  ask(address: string, call: ShortCall): Promise<Answer | null>;
  /** What was answered over node:http says how this origin answers. */
  heard(address: string, response: Http.IncomingMessage): void;
}

export interface NodeModules {
  readonly http: typeof Http;
  readonly net: typeof Net;
  readonly diagnostics: typeof Diagnostics;
}

/** Longer ones are not short calls; node:http reads them as they come. */
const ANSWER_MAX_BYTES = 16 * 1024 * 1024;
/** As many as Node's own agent keeps: somebody may well run a hundred commands at a time. */
const IDLE_MAX = 256;
/** Of Node's own agent, too. */
const UNANNOUNCED_MS = 5_000;
/** Of gateways that one process talks to. Beyond it: node:http. */
const ORIGINS_MAX = 64;

const NAME_PATTERN = /^[\w!#$%&'*+.^`|~-]+$/;
/** Node writes other letters in one way or another, depending on the body. */
const VALUE_PATTERN = /^[\t\x20-\x7e]*$/;
/** What we say ourselves, and what would make another kind of request. */
const NOT_PLAIN: ReadonlySet<string> = new Set([
  ...["connection", "content-length", "expect", "host", "keep-alive", "te"],
  ...["trailer", "transfer-encoding", "upgrade"],
]);

export function plainCalls({ http, net, diagnostics }: NodeModules): PlainCalls {
  const isOwn = untouched({ http, net, diagnostics });
  const origins = new Map<string, Origin>();
  return {
    async ask(address, call) {
      if (origins.size === 0 || !isOwn()) return null;
      const url = targetOf(address);
      const origin = url === null ? undefined : origins.get(url.host);
      if (url === null || origin === undefined || !origin.isPlain) return null;
      const question = questionOf(url, call);
      return question === null ? null : origin.ask(question);
    },
    heard(address, { httpVersion, headers }) {
      const isPlain = httpVersion === "1.1" && headers["content-length"] !== undefined;
      const isCoded = headers["transfer-encoding"] !== undefined;
      const url = isPlain || isCoded ? targetOf(address) : null;
      if (url === null) return;
      const known = origins.get(url.host);
      if (known === undefined && origins.size < ORIGINS_MAX) origins.set(url.host, new Origin(url, net, isPlain));
      else if (known !== undefined && !isPlain) known.isPlain = false;
    },
  };
}

/** One host and port. */
class Origin {
  readonly #address: { readonly host: string; readonly port: number };
  readonly #lines: KeptLines;
  isPlain: boolean;

  constructor({ hostname, port }: URL, { connect }: typeof Net, isPlain: boolean) {
    this.#address = { host: hostname.replace(/^\[|\]$/g, ""), port: port === "" ? 80 : Number(port) };
    const ageing = { nowMs: wallMs, unannouncedMs: UNANNOUNCED_MS };
    this.#lines = new KeptLines({ connect, peer: "the gateway", idleMax: IDLE_MAX, ageing });
    this.isPlain = isPlain;
  }

  /** `null` after an answer that node:http is to read: it is asked again there. */
  async ask(question: Question): Promise<Answer | null> {
    try {
      return await this.#lines.ask(this.#address, question);
    } catch (error) {
      if (!(error instanceof ConnectionLost && error.metClosedLine)) return this.#notHere(error);
    }
    return this.#lines.ask(this.#address, { ...question, onNewLine: true }).catch((error) => this.#notHere(error));
  }

  #notHere(error: unknown): null {
    if (!(error instanceof StrangeAnswer)) throw error;
    // Its length says nothing about the next answer.
    if (!error.isTooLong) this.isPlain = false;
    return null;
  }
}

/** `null` for what node:http understands better, or has an error for. */
function targetOf(address: string): URL | null {
  const url = URL.parse(address);
  if (url === null || url.protocol !== "http:" || url.username !== "" || url.password !== "") return null;
  return url;
}

function questionOf({ host, pathname, search }: URL, { method, headers, body, signal }: ShortCall): Question | null {
  let head = `${method} ${pathname}${search} HTTP/1.1\r\nhost: ${host}\r\n`;
  for (const name in headers) {
    const value = headers[name];
    if (value === undefined || !isPlainHeader(name, value)) return null;
    head += `${name}: ${value}\r\n`;
  }
  const bytes = body === undefined ? undefined : Buffer.from(body);
  if (bytes !== undefined) head += `content-length: ${bytes.length}\r\n`;
  else if (method === "POST" || method === "PUT") head += "content-length: 0\r\n";
  head += "connection: keep-alive\r\n\r\n";
  return { head, body: bytes, answerMaxBytes: ANSWER_MAX_BYTES, signal };
}

/** For others node:http has an error, or its own way of writing them. */
function isPlainHeader(name: string, value: string): boolean {
  return NAME_PATTERN.test(name) && VALUE_PATTERN.test(value) && !NOT_PLAIN.has(name.toLowerCase());
}

/** `request` as Node has written it. What wraps it may have come before us, and looks different. */
const REQUEST_PATTERN = /^function request\([\w, ]*\) \{\s*return new ClientRequest\([\w, ]*\);?\s*\}$/;
const CHANNELS = [
  "http.client.request.created",
  "http.client.request.start",
  "http.client.request.error",
  "http.client.request.bodyChunkSent",
  "http.client.request.bodySent",
  "http.client.response.finish",
] as const;

/**
 * Whether requests of this process still take Node's own way, and nobody listens to them: no mocks, proxies, agents of
 * others, traces. Asked before each call, because these come and go.
 */
function untouched({ http, net, diagnostics }: NodeModules): () => boolean {
  const { request, ClientRequest, Agent, globalAgent } = http;
  const { connect, createConnection } = net;
  const { addRequest, createSocket } = Agent.prototype as unknown as Record<string, unknown>;
  const channels = CHANNELS.map((name) => diagnostics.channel(name));
  const wasOwn =
    REQUEST_PATTERN.test(Function.prototype.toString.call(request)) &&
    ClientRequest.name === "ClientRequest" &&
    globalAgent.constructor === Agent;
  return () => {
    const agent = http.globalAgent as Http.Agent & { options: { proxyEnv?: unknown } };
    const methods = Agent.prototype as unknown as Record<string, unknown>;
    return (
      wasOwn &&
      http.request === request &&
      http.ClientRequest === ClientRequest &&
      http.Agent === Agent &&
      agent === globalAgent &&
      agent.maxSockets === Number.POSITIVE_INFINITY &&
      agent.options.proxyEnv === undefined &&
      methods.addRequest === addRequest &&
      methods.createSocket === createSocket &&
      !Object.hasOwn(agent, "createConnection") &&
      !Object.hasOwn(agent, "addRequest") &&
      net.connect === connect &&
      net.createConnection === createConnection &&
      !channels.some(({ hasSubscribers }) => hasSubscribers)
    );
  };
}
