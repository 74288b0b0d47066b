/** The headers that pass through a preview, in and out. Pure. */

import type { IncomingMessage, OutgoingHttpHeaders } from "node:http";
import { LINK_COOKIES, LINK_HEADER, LINK_PARAMETER } from "./links.ts";

/** About one connection, not about the message. */
const HOP_BY_HOP = new Set([
  "connection",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authorization",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
]);

/** Rewritten, or not passed on. */
const OWN = new Set(["cookie", LINK_HEADER]);

/** The headers for the server in the sandbox: as in a direct request, without the preview's own. */
export function requestHeaders({ headers }: IncomingMessage, port: number): OutgoingHttpHeaders {
  const passed: OutgoingHttpHeaders = {};
  for (const [name, value] of Object.entries(headers))
    if (value !== undefined && !HOP_BY_HOP.has(name) && !OWN.has(name)) passed[name] = value;
  const cookie = withoutLinkCookie(headers.cookie);
  if (cookie !== "") passed.cookie = cookie;
  // Development servers check both against their own name.
  if (headers.origin !== undefined) passed.origin = `http://localhost:${port}`;
  passed.host = `localhost:${port}`;
  passed["x-forwarded-host"] = headers.host ?? "";
  // Node then chooses between a length and chunks.
  if (headers["transfer-encoding"] !== undefined) passed["transfer-encoding"] = "chunked";
  return passed;
}

/**
 * The headers for the browser. A cookie stays with the host that set it, and the preview's own cannot be set. A preview
 * in a frame may be framed by that one origin: a policy of its own is added to what the program inside says.
 */
export function answerHeaders({ headers }: IncomingMessage, framedBy: string | null): OutgoingHttpHeaders {
  const passed: OutgoingHttpHeaders = {};
  for (const [name, value] of Object.entries(headers))
    if (value !== undefined && !HOP_BY_HOP.has(name) && name !== "set-cookie") passed[name] = value;
  const cookies = (headers["set-cookie"] ?? [])
    .filter((cookie) => !LINK_COOKIES.has(cookie.split("=")[0]?.trim() ?? ""))
    .map((cookie) => cookie.replace(/;\s*domain=[^;]*/gi, ""));
  if (cookies.length > 0) passed["set-cookie"] = cookies;
  if (framedBy !== null) {
    const own = headers["content-security-policy"];
    const frame = `frame-ancestors ${framedBy}`;
    passed["content-security-policy"] = own === undefined ? frame : `${own}, ${frame}`;
  }
  return passed;
}

/**
 * The headers that pass to and from the AIO API. All others are dropped: proxies repeat the URL, and with it the
 * secret, in headers of many names; and the sandbox writes the response.
 */
const AIO_REQUEST = new Set([
  ...["accept", "accept-encoding", "accept-language", "content-encoding", "content-length", "content-type"],
  ...["if-match", "if-modified-since", "if-none-match", "last-event-id", "range", "user-agent"],
]);
const AIO_ANSWER = new Set([
  ...["accept-ranges", "allow", "content-disposition", "content-encoding", "content-length", "content-range"],
  ...["content-type", "date", "etag", "last-modified", "retry-after"],
]);

export function aioRequestHeaders({ headers }: IncomingMessage): OutgoingHttpHeaders {
  const passed: OutgoingHttpHeaders = { host: "localhost" };
  for (const [name, value] of Object.entries(headers)) if (AIO_REQUEST.has(name)) passed[name] = value;
  if (headers["transfer-encoding"] !== undefined) passed["transfer-encoding"] = "chunked";
  return passed;
}

/** A browser that opens the URL renders nothing, runs nothing and sends no referrer. */
export function aioAnswerHeaders({ headers }: IncomingMessage): OutgoingHttpHeaders {
  const passed: OutgoingHttpHeaders = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
  };
  for (const [name, value] of Object.entries(headers)) if (AIO_ANSWER.has(name)) passed[name] = value;
  return passed;
}

export interface LinkInAddress {
  readonly token: string;
  readonly rest: string;
}

/** A link's token in a URL, and the URL without it. */
export function linkInAddress(address: string): LinkInAddress | null {
  const [path = "/", query] = splitOnce(address, "?");
  if (query === undefined) return null;
  const parts = query.split("&");
  const isLink = (part: string) => part.startsWith(`${LINK_PARAMETER}=`);
  const found = parts.find(isLink);
  if (found === undefined) return null;
  const rest = parts.filter((part) => !isLink(part)).join("&");
  // Two slashes would name another host.
  const local = `/${path.replace(/^[/\\]+/, "")}`;
  return { token: found.slice(LINK_PARAMETER.length + 1), rest: rest === "" ? local : `${local}?${rest}` };
}

export function withoutLink(address: string): string {
  return linkInAddress(address)?.rest ?? address;
}

export function cookieOf(header: string | undefined, name: string): string | undefined {
  for (const part of (header ?? "").split(";")) {
    const [key, value] = splitOnce(part.trim(), "=");
    if (key === name) return value;
  }
  return undefined;
}

function withoutLinkCookie(header: string | undefined): string {
  return (header ?? "")
    .split(";")
    .map((part) => part.trim())
    .filter((part) => part !== "" && !LINK_COOKIES.has(splitOnce(part, "=")[0]))
    .join("; ");
}

function splitOnce(text: string, separator: string): readonly [string, string?] {
  const at = text.indexOf(separator);
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}
