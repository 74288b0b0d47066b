/**
 * Forwards one request and its response. The head is rebuilt from the parsed form, so the next server cannot interpret
 * it differently; hop-by-hop headers end here; bodies stream.
 */

import { type ClientRequest, request as httpRequest, type IncomingMessage, type ServerResponse } from "node:http";
import { pipeline } from "node:stream";
import { type Authority, writtenHost } from "../../../backend/network/host-name.ts";
import type { CompiledSecret } from "../../../backend/network/policy.ts";
import { Redactor, redactText } from "./redaction.ts";
import { type Reply, sendReply } from "./replies.ts";
import type { Upstream } from "./upstream.ts";

export interface Forwarding {
  readonly target: Authority;
  /** The port that `Host` omits. */
  readonly defaultPort: number;
  /** Path and query, byte for byte. */
  readonly path: string;
  readonly bound: Bound;
  /** Headers of the sandbox that are not passed on. */
  readonly drops?: readonly string[] | undefined;
  readonly upstream: Upstream;
  /** What takes the place of a response; `null`: the response itself is passed back. */
  instead?(incoming: IncomingMessage): Forwarding | Reply | null;
  /** Called when there is no response to pass on. */
  fail(error: unknown): void;
}

/** What the proxy adds to a request. */
export interface Bound {
  readonly headers: Readonly<Record<string, string>>;
  /** Texts that the response must not show. */
  readonly hidden: readonly string[];
}

export const NOTHING_BOUND: Bound = { headers: {}, hidden: [] };

export function boundSecrets(secrets: readonly CompiledSecret[]): Bound {
  const headers = secrets.map(({ header, headerValue }) => [header, headerValue] as const);
  return { headers: Object.fromEntries(headers), hidden: secrets.flatMap(({ hidden }) => hidden) };
}

export function forward(request: IncomingMessage, response: ServerResponse, forwarding: Forwarding): void {
  const withBody = hasBody(request);
  const values = forwarding.bound.hidden;
  let isReplaced = false;
  const attempt = (fresh: boolean): ClientRequest => {
    const outgoing = httpRequest({
      ...forwarding.upstream.requestTo(forwarding.target, fresh),
      method: request.method ?? "GET",
      path: forwarding.path,
      headers: requestHeaders(request, forwarding),
    });
    outgoing.once("response", (incoming) => {
      try {
        const instead = forwarding.instead?.(incoming) ?? null;
        if (instead === null) return passBack(incoming, response, values);
        isReplaced = true;
        incoming.on("error", () => {});
        outgoing.destroy();
        if (withBody) request.unpipe(outgoing).resume();
        if ("target" in instead) forward(request, response, instead);
        else sendReply(response, instead);
      } catch (error) {
        // A head that Node reads but would not write.
        outgoing.destroy();
        forwarding.fail(error);
      }
    });
    outgoing.on("error", (error) => {
      if (isReplaced) return;
      if (response.headersSent || response.destroyed) response.destroy();
      else if (outgoing.reusedSocket && !withBody) current = attempt(true);
      else forwarding.fail(error);
    });
    if (withBody) request.pipe(outgoing);
    else outgoing.end();
    return outgoing;
  };
  let current = attempt(withBody);
  // The client's connection is closed: the response is no longer wanted.
  response.once("close", () => {
    if (!response.writableFinished) current.destroy();
  });
}

export function requestHeaders(request: IncomingMessage, forwarding: Forwarding): Headers {
  const { target, defaultPort, bound, drops = [] } = forwarding;
  const headers = endToEndHeaders(request);
  for (const name of drops) delete headers[name];
  frameBody(headers, request);
  headers.host = target.port === defaultPort ? writtenHost(target.host) : `${writtenHost(target.host)}:${target.port}`;
  bind(headers, bound);
  return headers;
}

function passBack(incoming: IncomingMessage, response: ServerResponse, values: readonly string[]): void {
  const headers = responseHeaders(incoming, values);
  response.writeHead(incoming.statusCode ?? 502, redactText(incoming.statusMessage ?? "", values), headers);
  // A pipeline that fails destroys the response: the client sees a broken transfer, not a short one.
  if (values.length === 0) pipeline(incoming, response, () => {});
  else pipeline(incoming, new Redactor(values), response, () => {});
}

export function responseHeaders(incoming: IncomingMessage, values: readonly string[]): Headers {
  const headers = endToEndHeaders(incoming);
  if (values.length === 0) return headers;
  for (const [name, value] of Object.entries(headers)) {
    headers[name] = Array.isArray(value) ? value.map((one) => redactText(one, values)) : redactText(value, values);
  }
  return headers;
}

export type Headers = Record<string, string | string[]>;

/** They are meant for the next hop, which is the proxy. It answers `expect` itself. */
const HOP_BY_HOP = new Set(
  (
    "connection expect keep-alive proxy-authenticate proxy-authentication-info proxy-authorization proxy-connection " +
    "te trailer transfer-encoding upgrade"
  ).split(" "),
);

/** Without the hop-by-hop ones and without those that `Connection` names. Repeated headers stay repeated. */
function endToEndHeaders(message: IncomingMessage): Headers {
  const named = (message.headersDistinct.connection ?? [])
    .flatMap((value) => value.split(","))
    .map((name) => name.trim().toLowerCase());
  const kept: Headers = Object.create(null) as Headers;
  for (const [name, values] of Object.entries(message.headersDistinct)) {
    if (values === undefined || HOP_BY_HOP.has(name)) continue;
    // A client that could drop these could change how the next server reads the message.
    if (named.includes(name) && name !== "host" && name !== "content-length") continue;
    kept[name] = values.length === 1 ? (values[0] ?? "") : values;
  }
  return kept;
}

/** Whether a body follows, according to the head. */
export function hasBody(message: IncomingMessage): boolean {
  return message.headers["transfer-encoding"] !== undefined || Number(message.headers["content-length"] ?? 0) > 0;
}

/** States the length once, in one header, in the form in which the body is really sent. */
function frameBody(headers: Headers, message: IncomingMessage): void {
  if (message.headers["transfer-encoding"] === undefined) return;
  delete headers["content-length"];
  headers["transfer-encoding"] = "chunked";
}

/** Bound headers replace the sandbox's of the same names. */
function bind(headers: Headers, bound: Bound): void {
  Object.assign(headers, bound.headers);
  // A compressed response could not be searched for the values.
  if (bound.hidden.length > 0) headers["accept-encoding"] = "identity";
}
