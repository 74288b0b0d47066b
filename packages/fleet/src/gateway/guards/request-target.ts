/**
 * A request names one host. One that names two, in two Host headers or in its target and a header, is refused: a proxy
 * in between may have used the other one (RFC 9112, 3.2).
 */

import type { IncomingMessage } from "node:http";
import { SandlotError } from "@sandlot/contract";

const ABSOLUTE_PATTERN = /^[a-z][a-z0-9+.-]*:\/\/(?:[^/?#]*@)?([^/?#]*)/i;

/** Throws `malformed_request`. */
export function checkTarget({ url = "/", headers, rawHeaders }: IncomingMessage): void {
  let hosts = 0;
  for (let at = 0; at < rawHeaders.length; at += 2) if (rawHeaders[at]?.toLowerCase() === "host") hosts++;
  if (hosts > 1) throw new SandlotError("malformed_request", { problem: "it has two Host headers" });
  if (url.startsWith("/") || url === "*") return;
  const authority = ABSOLUTE_PATTERN.exec(url)?.[1];
  if (authority === undefined || authority.toLowerCase() !== (headers.host ?? "").toLowerCase())
    throw new SandlotError("malformed_request", { problem: "its address names another host than its Host header" });
}
