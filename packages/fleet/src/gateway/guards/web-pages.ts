/**
 * Refuses web pages of other origins, on every route, before anything else.
 *
 * - Host: a page that uses DNS rebinding sends its own name. Only names of this gateway pass.
 * - Origin and Sec-Fetch-Site: a browser says which page is behind a request. Only our own and configured ones pass.
 *   This also covers a form's multipart POST and a WebSocket, which no preflight protects.
 * - A request names one host. One that names two, in two Host headers or in its target and a header, is refused: a proxy
 *   in between may have used the other one (RFC 9112, 3.2).
 */

import type { IncomingMessage } from "node:http";
import { isIP } from "node:net";
import { SandlotError } from "@sandlot/contract";
import type { FastifyRequest } from "fastify";
import { type GatewaySettings, isLoopback } from "../../config/gateway-settings.ts";

export type WebPageGuard = (request: FastifyRequest) => void;

/** `listensOn` is known once the gateway listens; there are no requests before. */
export function webPageGuard(settings: GatewaySettings, listensOn: () => number): WebPageGuard {
  const origins = new Set(settings.allowedOrigins.map((origin) => new URL(origin).origin));
  /** The last Host that passed. */
  let known = "";
  return ({ raw, headers, protocol, route }) => {
    checkTarget(raw);
    const host = (headers[":authority"] ?? headers.host ?? "").toString().toLowerCase();
    if (host !== known || host === "") {
      if (!hostAllowed(host, settings, listensOn()))
        throw new SandlotError("forbidden", { problem: "this gateway is not known under that Host" });
      known = host;
    }
    const { origin } = headers;
    if (origin !== undefined) {
      const scheme = settings.behindProxy ? ["http", "https"] : [protocol];
      if (origins.has(origin) || scheme.some((name) => origin === `${name}://${host}`)) return;
      throw new SandlotError("forbidden", { problem: "pages of that Origin may not call this gateway" });
    }
    const site = headers["sec-fetch-site"];
    // A link to a page that says nothing about the fleet may be anywhere; the page itself then asks as our own.
    if (route.config.page === true && headers["sec-fetch-mode"] === "navigate") return;
    if (site !== undefined && site !== "same-origin" && site !== "none")
      throw new SandlotError("forbidden", { problem: "other sites may not call this gateway" });
  };
}

/** This gateway's origin, as the sender of a request knows it. The guard has let its host pass. */
export function originOf({ headers, protocol }: FastifyRequest): string {
  return `${protocol}://${(headers[":authority"] ?? headers.host ?? "").toString().toLowerCase()}`;
}

function hostAllowed(host: string, settings: GatewaySettings, port: number): boolean {
  if (settings.allowedHosts.some((allowed) => allowed.toLowerCase() === host)) return true;
  if (settings.advertise !== undefined && new URL(settings.advertise).host === host) return true;
  const match = /^(\[[0-9a-f:.]+\]|[^:[\]]+)(?::(\d+))?$/.exec(host);
  const name = match?.[1]?.replace(/^\[|\]$/g, "");
  if (name === undefined) return false;
  if (settings.allowedHosts.some((allowed) => allowed.toLowerCase() === name)) return true;
  const defaultPort = settings.tls === undefined ? 80 : 443;
  if (Number(match?.[2] ?? defaultPort) !== port) return false;
  if (isLoopback(settings.host)) return isLoopback(name);
  // A request to an IP address cannot be DNS rebinding.
  return name === settings.host.toLowerCase() || isIP(name) !== 0;
}

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
