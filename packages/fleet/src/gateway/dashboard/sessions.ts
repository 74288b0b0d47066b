/**
 * Sessions of the dashboard, and the one-time links that begin them.
 *
 * Invariants
 * - A token names its purpose, a random id, the key that it acts for and its expiry, and is signed with a secret that all
 *   gateways of a store share: a session works at each of them, and survives a restart.
 * - A session has its key's present rights, and none once the key is revoked or the session has expired or was ended.
 *   A request that is still open then is cut off within `RECHECK_MS`.
 * - A link begins one session: the first gateway that writes its id down wins. What is written down is removed when the
 *   token would have expired anyway.
 * - The cookie proves nothing by itself. A request needs the dashboard's header as well, which makes a browser ask first
 *   before it lets another origin send it, and comes from this gateway's own origin. A WebSocket, which can carry no
 *   header, needs that origin.
 */

import { createHmac, timingSafeEqual } from "node:crypto";
import { join } from "node:path";
import {
  type ApiKeyInfo,
  DASHBOARD_LINK_TTL_MS,
  DASHBOARD_SESSION_TTL_MS,
  GATEWAY_HEADERS,
  SandlotError,
} from "@sandlot/contract";
import type { FastifyReply, FastifyRequest } from "fastify";
import { z } from "zod";
import type { SharedEntries } from "../../fleet.ts";
import { tryJson } from "../../world/try-json.ts";
import type { World } from "../../world/world.ts";
import { originOf } from "../guards/web-pages.ts";
import type { ApiKeys } from "../keys/api-keys.ts";
import { FileTexts } from "../named-texts/file-texts.ts";
import type { NamedTexts } from "../named-texts/named-texts.ts";
import { SharedTexts } from "../named-texts/shared-texts.ts";
import type { PreviewLinks } from "../previews/links.ts";

/** How long an ended session, or a revoked key, may go on here. */
const RECHECK_MS = 1_000;
/** A store that pauses must not sign its users out. */
const UNANSWERED_MAX_MS = 15_000;
const REMEMBERED_MAX = 10_000;
/** How often ids of expired tokens are looked for. */
const TIDY_EVERY_MS = 600_000;

const ID_PATTERN = /^[0-9a-f]{32}$/;
const claimsSchema = z.strictObject({
  ...{ p: z.enum(["link", "session"]), i: z.string().regex(ID_PATTERN) },
  ...{ k: z.string(), e: z.number() },
});
type Purpose = z.infer<typeof claimsSchema>["p"];

export interface Token {
  readonly text: string;
  readonly expiresAt: number;
}

export interface Session {
  readonly id: string;
  readonly keyId: string;
  readonly expiresAt: number;
}

export interface FoundSession {
  readonly session: Session;
  readonly key: ApiKeyInfo;
}

interface Parts {
  readonly spent: NamedTexts;
  readonly links: Pick<PreviewLinks, "derived">;
  readonly keys: Pick<ApiKeys, "find">;
  readonly world: World;
}

export class DashboardSessions {
  readonly #spent: NamedTexts;
  readonly #secret: string;
  readonly #cookie: string;
  readonly #keys: Parts["keys"];
  readonly #world: World;
  /** Sessions in use: when the store last said that they were not ended. */
  readonly #live = new Map<string, number>();
  #tidiedAt = Number.NEGATIVE_INFINITY;

  private constructor({ spent, links, keys, world }: Parts) {
    this.#spent = spent;
    this.#secret = links.derived("dashboard");
    // Cookies know no ports: another fleet on this host has its own.
    this.#cookie = `sandlot-session-${links.derived("dashboard cookie").slice(0, 8)}`;
    this.#keys = keys;
    this.#world = world;
  }

  /** `entries`: the store's, where it has them. */
  static async open(
    home: string,
    parts: Omit<Parts, "spent">,
    entries: SharedEntries | null = null,
  ): Promise<DashboardSessions> {
    const spent =
      entries === null
        ? await FileTexts.open(join(home, "dashboard"), ID_PATTERN, parts.world)
        : new SharedTexts(entries, "dashboard");
    return new DashboardSessions({ ...parts, spent });
  }

  link(keyId: string): Token {
    return this.#issue("link", keyId, DASHBOARD_LINK_TTL_MS);
  }

  session(keyId: string): Token {
    return this.#issue("session", keyId, DASHBOARD_SESSION_TTL_MS);
  }

  /** The key that a link acts for. The link works no second time, at no gateway of the store. */
  async useLink(text: string): Promise<ApiKeyInfo> {
    const link = this.#verify("link", text);
    if (link === null) throw refused("this link is not valid any more: ask for another one with `sandlot dashboard`");
    const key = await this.#keys.find(link.keyId);
    if (key === null) throw refused("the key that made this link was revoked");
    if (!(await this.#spend(link)))
      throw refused("this link was used already: ask for another one with `sandlot dashboard`");
    return key;
  }

  /** The session of a request that has the cookie of one; `null` where it has none. Rejects with the refusal. */
  find(request: FastifyRequest, reply: FastifyReply): Promise<FoundSession> | null {
    const text = cookieOf(request, [this.#cookie, `__Host-${this.#cookie}`]);
    return text === null ? null : this.#find(request, reply, text);
  }

  /** Ends the session everywhere. */
  async end(session: Session): Promise<void> {
    this.#live.delete(session.id);
    await this.#spend(session);
  }

  setCookie(request: FastifyRequest, reply: FastifyReply, token: Token | null): void {
    const isSecure = request.protocol === "https";
    // A browser accepts this prefix only over TLS, for the whole host and from that host: no other page can set it.
    const name = isSecure ? `__Host-${this.#cookie}` : this.#cookie;
    const leftS = token === null ? 0 : Math.floor((token.expiresAt - this.#world.wallMs()) / 1_000);
    const value = `${name}=${token?.text ?? ""}; Path=/; Max-Age=${leftS}; HttpOnly; SameSite=Strict`;
    reply.header("set-cookie", isSecure ? `${value}; Secure` : value);
  }

  async #find(request: FastifyRequest, reply: FastifyReply, text: string): Promise<FoundSession> {
    // Documentation is the same for every key, and opened by its address.
    if (request.route.config.access !== "docs") checkSender(request);
    const session = this.#verify("session", text);
    const key = session === null || (await this.#isEnded(session)) ? null : await this.#keys.find(session.keyId);
    if (session === null || key === null) throw refused("the session has ended, or its key was revoked: sign in again");
    this.#cutOff(request, reply, session);
    return { session, key };
  }

  /** Streams and terminals stay open for hours: they end with the session. */
  #cutOff({ raw }: FastifyRequest, reply: FastifyReply, session: Session): void {
    const { socket } = raw;
    // A WebSocket has no response that ends.
    const lasting = raw.headers.upgrade === undefined ? reply.raw : socket;
    let isOver = false;
    const check = async () => {
      const isEnded = session.expiresAt <= this.#world.wallMs() || (await this.#isEnded(session));
      if (isEnded || (await this.#keys.find(session.keyId)) === null) socket.destroy();
      else if (!isOver) timer = next();
    };
    // Where keys cannot be read, the next request is refused too.
    const next = () =>
      this.#world.timer(RECHECK_MS, () => void check().catch(() => socket.destroy()), { background: true });
    let timer = next();
    lasting.once("close", () => {
      isOver = true;
      timer.cancel();
    });
  }

  async #isEnded({ id }: Session): Promise<boolean> {
    const now = this.#world.monotonicMs();
    const known = this.#live.get(id) ?? Number.NEGATIVE_INFINITY;
    if (now - known < RECHECK_MS) return false;
    try {
      if ((await this.#spent.read(id)) !== null) {
        this.#live.delete(id);
        return true;
      }
    } catch (error) {
      if (now - known < UNANSWERED_MAX_MS) return false;
      throw error;
    }
    if (this.#live.size >= REMEMBERED_MAX) this.#live.clear();
    this.#live.set(id, now);
    return false;
  }

  /** False where another was first. */
  async #spend({ id, expiresAt }: Pick<Session, "id" | "expiresAt">): Promise<boolean> {
    await this.#tidy();
    return this.#spent.create(id, String(expiresAt));
  }

  async #tidy(): Promise<void> {
    const now = this.#world.monotonicMs();
    if (now - this.#tidiedAt < TIDY_EVERY_MS) return;
    this.#tidiedAt = now;
    for (const [id, expiresAt] of await this.#spent.all())
      if (Number(expiresAt) <= this.#world.wallMs()) await this.#spent.remove(id);
  }

  #issue(purpose: Purpose, keyId: string, ttlMs: number): Token {
    const expiresAt = this.#world.wallMs() + ttlMs;
    const claims = JSON.stringify({ p: purpose, i: this.#world.randomHex(16), k: keyId, e: expiresAt });
    const body = Buffer.from(claims).toString("base64url");
    return { text: `${body}.${this.#mac(body)}`, expiresAt };
  }

  #verify(purpose: Purpose, text: string): Session | null {
    const [body, mac, ...more] = text.split(".");
    if (body === undefined || mac === undefined || more.length > 0) return null;
    const [expected, given] = [Buffer.from(this.#mac(body)), Buffer.from(mac)];
    if (given.byteLength !== expected.byteLength || !timingSafeEqual(given, expected)) return null;
    const parsed = claimsSchema.safeParse(tryJson(Buffer.from(body, "base64url").toString("utf8")));
    if (!parsed.success || parsed.data.p !== purpose || parsed.data.e <= this.#world.wallMs()) return null;
    return { id: parsed.data.i, keyId: parsed.data.k, expiresAt: parsed.data.e };
  }

  #mac(body: string): string {
    return createHmac("sha256", this.#secret).update(`dashboard\n${body}`).digest("base64url");
  }
}

/** Throws where another page than the dashboard of this gateway may have sent the request. */
export function checkSender(request: FastifyRequest): void {
  const { headers } = request;
  const isOwn = headers.origin === originOf(request);
  if (headers.origin !== undefined && !isOwn)
    throw new SandlotError("forbidden", { problem: "a session belongs to the gateway's own pages" });
  if (headers.upgrade !== undefined ? isOwn : headers[GATEWAY_HEADERS.dashboard] !== undefined) return;
  const problem = `a request with a session's cookie needs the header ${GATEWAY_HEADERS.dashboard}`;
  throw new SandlotError("forbidden", { problem });
}

function cookieOf({ headers }: FastifyRequest, names: readonly string[]): string | null {
  for (const pair of (headers.cookie ?? "").split(";")) {
    const at = pair.indexOf("=");
    if (at > 0 && names.includes(pair.slice(0, at).trim())) return pair.slice(at + 1).trim();
  }
  return null;
}

function refused(problem: string): SandlotError {
  return new SandlotError("unauthorized", { problem });
}
