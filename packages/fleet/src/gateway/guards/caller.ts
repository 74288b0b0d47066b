/**
 * Who is asking, and for whom.
 *
 *   scope      acts for                                          may also
 *   user       its own user, and nobody else                     -
 *   platform   the user that X-Sandlot-User names; it must       -
 *   operator   the user that X-Sandlot-User names, or `default`  see every sandbox, event and audit entry
 */

import {
  type ApiKeyInfo,
  DEFAULT_USER,
  GATEWAY_HEADERS,
  parseUserId,
  SandlotError,
  type UserId,
  WEBSOCKET_USER_PREFIX,
} from "@sandlot/contract";
import type { FastifyRequest } from "fastify";

/** What a route demands. `thread`: a key that acts for a user. `docs`: any key, also typed into a browser's prompt. */
export type Access = "open" | "any" | "thread" | "operator" | "docs";

export interface Caller {
  readonly keyId: string;
  readonly scope: ApiKeyInfo["scope"];
  /** Whom this request acts for; `null` where the route is about nobody in particular. */
  readonly user: UserId | null;
}

export function callerOf(key: ApiKeyInfo, access: Access, request: FastifyRequest): Caller {
  const { id: keyId, scope } = key;
  if (access === "operator") {
    if (scope !== "operator") throw new SandlotError("forbidden", { problem: "this route is for operators" });
    return { keyId, scope, user: null };
  }
  return { keyId, scope, user: userFor(key, access, namedUser(request)) };
}

/** The user of a thread route. */
export function userOf(request: FastifyRequest): UserId {
  const user = request.caller?.user ?? null;
  if (user === null) throw new SandlotError("unauthorized", { problem: "no user is known for this request" });
  return user;
}

function userFor(key: ApiKeyInfo, access: Access, named: string | null): UserId | null {
  if (key.scope === "user") {
    if (named !== null && named !== key.user)
      throw new SandlotError("forbidden", { problem: "this key acts for its own user only" });
    return parseUserId(key.user);
  }
  if (named !== null) return parseUserId(named);
  if (access !== "thread") return null;
  if (key.scope === "operator") return DEFAULT_USER;
  throw new SandlotError("invalid_request", {
    field: "X-Sandlot-User",
    problem: "a platform's key must name the user it acts for",
  });
}

function namedUser({ headers }: FastifyRequest): string | null {
  const value = headers[GATEWAY_HEADERS.user];
  if (typeof value === "string") return value;
  if (headers.upgrade === undefined) return null;
  const offered = (headers["sec-websocket-protocol"] ?? "").split(",").map((name) => name.trim());
  return offered.find((name) => name.startsWith(WEBSOCKET_USER_PREFIX))?.slice(WEBSOCKET_USER_PREFIX.length) ?? null;
}
