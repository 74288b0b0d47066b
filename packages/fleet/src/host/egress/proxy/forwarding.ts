/**
 * Forwards one request and its response. The head is rebuilt from the parsed form, so the next server cannot interpret
 * it differently; bodies stream.
 */

import { type ClientRequest, request as httpRequest, type IncomingMessage, type ServerResponse } from "node:http";
import { pipeline } from "node:stream";
import { type Authority, writtenHost } from "../../../backend/network/host-name.ts";
import type { CompiledSecret } from "../../../backend/network/policy.ts";
import { bindSecrets, endToEndHeaders, frameBody, type Headers, hasBody } from "./headers.ts";
import { Redactor, redactText } from "./redaction.ts";
import type { Upstream } from "./upstream.ts";

export interface Forwarding {
  readonly target: Authority;
  /** The port that `Host` omits. */
  readonly defaultPort: number;
  /** Path and query, byte for byte. */
  readonly path: string;
  readonly secrets: readonly CompiledSecret[];
  readonly upstream: Upstream;
  /** Called when there is no response to pass on. */
  fail(error: unknown): void;
}

export function forward(request: IncomingMessage, response: ServerResponse, forwarding: Forwarding): void {
  const withBody = hasBody(request);
  const values = forwarding.secrets.map(({ value }) => value);
  const attempt = (fresh: boolean): ClientRequest => {
    const outgoing = httpRequest({
      ...forwarding.upstream.requestTo(forwarding.target, fresh),
      method: request.method ?? "GET",
      path: forwarding.path,
      headers: requestHeaders(request, forwarding),
    });
    outgoing.once("response", (incoming) => {
      try {
        passBack(incoming, response, values);
      } catch (error) {
        // A head that Node reads but would not write.
        outgoing.destroy();
        forwarding.fail(error);
      }
    });
    outgoing.on("error", (error) => {
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

export function requestHeaders(request: IncomingMessage, { target, defaultPort, secrets }: Forwarding): Headers {
  const headers = endToEndHeaders(request);
  frameBody(headers, request);
  headers.host = target.port === defaultPort ? writtenHost(target.host) : `${writtenHost(target.host)}:${target.port}`;
  bindSecrets(headers, secrets);
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
