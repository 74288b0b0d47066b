/** Which headers are forwarded, and which end at the proxy. */

import type { IncomingMessage } from "node:http";
import type { CompiledSecret } from "../../../backend/network/policy.ts";

export type Headers = Record<string, string | string[]>;

/** They are meant for the next hop, which is the proxy. It answers `expect` itself. */
const HOP_BY_HOP = new Set(
  (
    "connection expect keep-alive proxy-authenticate proxy-authentication-info proxy-authorization proxy-connection " +
    "te trailer transfer-encoding upgrade"
  ).split(" "),
);

/** Without the hop-by-hop ones and without those that `Connection` names. Repeated headers stay repeated. */
export function endToEndHeaders(message: IncomingMessage): Headers {
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
export function frameBody(headers: Headers, message: IncomingMessage): void {
  if (message.headers["transfer-encoding"] === undefined) return;
  delete headers["content-length"];
  headers["transfer-encoding"] = "chunked";
}

/** Adds the secrets bound to the host. They replace the sandbox's headers of the same names. */
export function bindSecrets(headers: Headers, secrets: readonly CompiledSecret[]): void {
  if (secrets.length === 0) return;
  for (const { header, headerValue } of secrets) headers[header] = headerValue;
  // A compressed response could not be searched for the value.
  headers["accept-encoding"] = "identity";
}
