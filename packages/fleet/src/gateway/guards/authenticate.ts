/**
 * Every route but the health checks requires a key: `Authorization: Bearer KEY` or `X-API-Key: KEY`; a WebSocket from a
 * browser, which can send neither, offers it as a subprotocol. Only the documentation pages also accept it as a
 * password, because a browser sends a password by itself, also when another site caused the request.
 */

import { type ApiKeyInfo, GATEWAY_HEADERS, SandlotError, WEBSOCKET_KEY_PREFIX } from "@sandlot/contract";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { ApiKeys } from "../keys/api-keys.ts";
import { type Access, type Caller, callerOf } from "./caller.ts";
import type { RateLimits } from "./rate-limits.ts";

/** Another gateway reads for its own callers, and shows each of them what that one may see. */
const PEER: Caller = { keyId: "peer", scope: "operator", user: null, blueprints: null };

interface Asked {
  readonly access: Access;
  readonly rates: RateLimits;
  readonly request: FastifyRequest;
  readonly reply: FastifyReply;
}

export interface AuthenticationParts {
  readonly keys: ApiKeys;
  readonly rates: RateLimits;
  /** Whether a text proves that another gateway of the store asks. */
  readonly isPeer: (text: string) => boolean;
}

/** Throws, or rejects with, the refusal. Synchronous when the key is cached. */
export function authenticate(
  { keys, rates, isPeer }: AuthenticationParts,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<void> | null {
  // Unknown routes also require a key.
  const access = request.route.config.access ?? "any";
  if (access === "open") return null;
  const asked: Asked = { access, rates, request, reply };
  const text = keyText(access, request);
  if (text === null) refuse(asked, "no key was sent");
  if (request.route.config.peers === true && isPeer(text)) {
    request.caller = PEER;
    return null;
  }
  const key = keys.verify(text);
  if (key instanceof Promise) return key.then((found) => admit(asked, found));
  admit(asked, key);
  return null;
}

function admit(asked: Asked, key: ApiKeyInfo | null): void {
  const { access, rates, request } = asked;
  if (key === null) {
    // A valid key is never limited by failures of others at its address.
    rates.countFailure(request.ip);
    refuse(asked, "the key is not valid");
  }
  request.caller = callerOf(key, access, request);
  rates.count(request.caller);
}

function refuse({ access, reply }: Asked, problem: string): never {
  reply.header("www-authenticate", access === "docs" ? 'Basic realm="Sandlot"' : 'Bearer realm="Sandlot"');
  throw new SandlotError("unauthorized", { problem });
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
