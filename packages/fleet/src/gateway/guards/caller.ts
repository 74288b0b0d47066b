/**
 * The caller of a request: its key, and the user it acts for.
 *
 * Every route but the health checks requires a key: `Authorization: Bearer KEY` or `X-API-Key: KEY`; a WebSocket from a
 * browser, which can send neither, offers it as a subprotocol. A session of the dashboard stands for the key that began
 * it (`dashboard/sessions.ts`). Only the documentation pages also accept it as a
 * password, because a browser sends a password by itself, also when another site caused the request.
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
  WEBSOCKET_KEY_PREFIX,
  WEBSOCKET_USER_PREFIX,
} from "@sandlot/contract";
import type { FastifyReply, FastifyRequest } from "fastify";
import { DEFAULT_BLUEPRINT } from "../../config/defaults.ts";
import type { DashboardSessions, Session } from "../dashboard/sessions.ts";
import type { PeerPurpose } from "../events/peer-credential.ts";
import type { ApiKeys } from "../keys/api-keys.ts";
import type { RateLimits } from "./rate-limits.ts";

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
  /** Of the dashboard, which sent its cookie instead of the key. */
  readonly session?: Session;
}

function callerOf(key: ApiKeyInfo, access: Access, request: FastifyRequest): Caller {
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

interface Asked {
  readonly access: Access;
  readonly rates: RateLimits;
  readonly request: FastifyRequest;
  readonly reply: FastifyReply;
}

/** Another gateway reads for its own callers, and shows each of them what that one may see. */
const PEER: Caller = { keyId: "peer", scope: "operator", user: null, blueprints: null };

export interface AuthenticationParts {
  readonly keys: ApiKeys;
  readonly rates: RateLimits;
  /** Whether a text proves that another gateway of the store asks. */
  readonly isPeer: (text: string, purpose: PeerPurpose) => boolean;
  /** Of the dashboard. */
  readonly sessions: Pick<DashboardSessions, "find">;
}

/** Throws, or rejects with, the refusal. Synchronous when the key is cached. */
export function authenticate(
  { keys, rates, isPeer, sessions }: AuthenticationParts,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<void> | null {
  // Unknown routes also require a key.
  const access = request.route.config.access ?? "any";
  if (access === "open") return null;
  const asked: Asked = { access, rates, request, reply };
  const text = keyText(access, request);
  if (text === null) {
    const found = sessions.find(request, reply);
    if (found === null) refuse(asked, "no key was sent");
    return found.then(({ key, session }) => admit(asked, key, session));
  }
  const { peers } = request.route.config;
  if (peers !== undefined && isPeer(text, peers)) {
    request.caller = PEER;
    return null;
  }
  const key = keys.verify(text, () => rates.checkFailures(request.ip, "keys"));
  if (key instanceof Promise) return key.then((found) => admit(asked, found));
  admit(asked, key);
  return null;
}

function admit(asked: Asked, key: ApiKeyInfo | null, session?: Session): void {
  const { access, rates, request } = asked;
  if (key === null) {
    rates.countFailure(request.ip, "keys");
    refuse(asked, "the key is not valid");
  }
  const caller = callerOf(key, access, request);
  request.caller = session === undefined ? caller : { ...caller, session };
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
