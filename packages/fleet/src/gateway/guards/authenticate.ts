/**
 * Every route but the health checks wants a key: `Authorization: Bearer KEY` or `X-API-Key: KEY`; a WebSocket from a
 * browser, which can send neither, offers it as a subprotocol. The pages of documentation also take it as a password,
 * and only they: a browser sends a password by itself, whoever made it ask.
 */

import { type ApiKeyInfo, GATEWAY_HEADERS, SandlotError, WEBSOCKET_KEY_PREFIX } from "@sandlot/contract";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { ApiKeys } from "../keys/api-keys.ts";
import { type Access, callerOf } from "./caller.ts";
import type { RateLimits } from "./rate-limits.ts";

export async function authenticate(
  keys: ApiKeys,
  rates: RateLimits,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<void> {
  // What no route serves is nobody's business either.
  const access = request.routeOptions.config.access ?? "any";
  if (access === "open") return;
  const key = await verifiedKey(keys, rates, access, request, reply);
  request.caller = callerOf(key, access, request);
  rates.count(request.caller);
}

async function verifiedKey(
  keys: ApiKeys,
  rates: RateLimits,
  access: Access,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<ApiKeyInfo> {
  const text = keyText(access, request);
  if (text !== null) {
    const key = await keys.verify(text);
    if (key !== null) return key;
    // A valid key is never held back by what others of its address try.
    rates.countFailure(request.ip);
  }
  reply.header("www-authenticate", access === "docs" ? 'Basic realm="Sandlot"' : 'Bearer realm="Sandlot"');
  throw new SandlotError("unauthorized", { problem: text === null ? "no key was sent" : "the key is not valid" });
}

function keyText(access: Access, { headers }: FastifyRequest): string | null {
  const direct = headers[GATEWAY_HEADERS.apiKey];
  if (typeof direct === "string") return direct;
  const [scheme, value] = (headers.authorization ?? "").split(" ", 2);
  if (value !== undefined && scheme?.toLowerCase() === "bearer") return value;
  if (value !== undefined && scheme?.toLowerCase() === "basic" && access === "docs") return passwordOf(value);
  if (headers.upgrade === undefined) return null;
  const offered = (headers["sec-websocket-protocol"] ?? "").split(",").map((name) => name.trim());
  return offered.find((name) => name.startsWith(WEBSOCKET_KEY_PREFIX))?.slice(WEBSOCKET_KEY_PREFIX.length) ?? null;
}

function passwordOf(base64: string): string {
  const text = Buffer.from(base64, "base64").toString("utf8");
  return text.slice(text.indexOf(":") + 1);
}
