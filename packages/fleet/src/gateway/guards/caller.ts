/**
 * The caller of a request, and the user it acts for.
 *
 *   scope      acts for                                          may also
 *   user       its own user only                                 -
 *   platform   the user that X-Sandlot-User names (required)     -
 *   operator   the user that X-Sandlot-User names, or `default`  see every sandbox, event and audit entry
 *
 * Lists (`owned`) show what belongs to that user; an operator that names none sees everything. A key also limits the
 * blueprints, whether named or those of a thread's sandbox: without a list, a user's key has `default`, any other key
 * every one.
 */

import {
  type ApiKeyInfo,
  DEFAULT_USER,
  EVERY_BLUEPRINT,
  GATEWAY_HEADERS,
  parseUserId,
  SandlotError,
  type UserId,
  WEBSOCKET_USER_PREFIX,
} from "@sandlot/contract";
import type { FastifyRequest } from "fastify";
import { DEFAULT_BLUEPRINT } from "../../config/defaults.ts";

/**
 * What a route requires. `thread`: a key that acts for a user. `owned`: the same, or an operator for all. `docs`: any
 * key, also typed into a browser's prompt.
 */
export type Access = "open" | "any" | "thread" | "owned" | "operator" | "docs";

export interface Caller {
  readonly keyId: string;
  readonly scope: ApiKeyInfo["scope"];
  /** The user that this request acts for; `null` where the route concerns no user. */
  readonly user: UserId | null;
  /** The blueprints it may use; `null`: all. */
  readonly blueprints: readonly string[] | null;
}

export function callerOf(key: ApiKeyInfo, access: Access, request: FastifyRequest): Caller {
  const { id: keyId, scope } = key;
  const blueprints = grantedTo(key);
  if (access === "operator") {
    if (scope !== "operator") throw new SandlotError("forbidden", { problem: "this route is for operators" });
    return { keyId, scope, blueprints, user: null };
  }
  return { keyId, scope, blueprints, user: userFor(key, access, namedUser(request)) };
}

/** Refuses a blueprint that a key was not granted, whether it exists or not. */
export function checkBlueprint(granted: readonly string[] | null, blueprint: string): void {
  if (granted === null || granted.includes(blueprint)) return;
  const names = granted.length === 0 ? "none" : granted.join(", ");
  throw new SandlotError("forbidden", { problem: `this key may not use the blueprint ${blueprint}, only: ${names}` });
}

/** The blueprints that a key may use; `null`: all. */
export function grantedTo({ scope, blueprints }: ApiKeyInfo): readonly string[] | null {
  if (blueprints === null) return scope === "user" ? [DEFAULT_BLUEPRINT] : null;
  return blueprints.includes(EVERY_BLUEPRINT) ? null : blueprints;
}

/** The user whose entries a list shows; `null`: all users, for an operator. */
export function ownerOf(request: FastifyRequest): UserId | null {
  return request.caller?.scope === "operator" ? (request.caller.user ?? null) : userOf(request);
}

/** The key of a request that needs one. */
export function keyIdOf(request: FastifyRequest): string {
  if (request.caller === null) throw new SandlotError("unauthorized", { problem: "no key was sent" });
  return request.caller.keyId;
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
  if (access !== "thread" && access !== "owned") return null;
  if (key.scope === "operator") return access === "owned" ? null : DEFAULT_USER;
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
