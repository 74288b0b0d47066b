/**
 * Signed links to a port of a thread's sandbox.
 *
 * Invariants
 * - A link names user, thread, port, the key that made it and its expiry, and is signed: a gateway stores nothing about
 *   it, and it survives a restart. Creating or changing one needs the secret: in `$SANDLOT_HOME`, or in the store where
 *   several hosts share it, so that every gateway of the store knows the links of all others.
 * - Each (user, thread) has its own host name below the preview domain, and each port another: to a browser, each
 *   agent's server is a separate site from all others and from the gateway.
 */

import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import { link, readFile, unlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { parseThreadId, parseUserId } from "@sandlot/contract";
import { z } from "zod";
import type { SharedEntries } from "../../fleet.ts";
import { isMissing } from "../../world/disk-trouble.ts";
import type { World } from "../../world/world.ts";
import { sharedText } from "../named-texts/shared-texts.ts";
import type { ThreadKey } from "../thread-use.ts";
import type { LinkClaims } from "./link-use.ts";

/** A link's token is in the URL, in a header, or, after a browser's first visit, in a cookie of that host. */
export const LINK_PARAMETER = "sandlot-link";
export const LINK_HEADER = "x-sandlot-link";
const LINK_COOKIE = "sandlot-link";
/** A browser accepts this prefix only over TLS, for the whole host and from that host: no other preview can set it. */
const HOST_PREFIX = "__Host-";
/** Of a frame: the browser keeps it apart for each page that frames the preview, so it needs a name of its own. */
const FRAME_COOKIE = "sandlot-frame";
export const LINK_COOKIES: ReadonlySet<string> = new Set(
  [LINK_COOKIE, FRAME_COOKIE].flatMap((name) => [name, `${HOST_PREFIX}${name}`]),
);

export function linkCookie(scheme: "http" | "https"): string {
  return scheme === "https" ? `${HOST_PREFIX}${LINK_COOKIE}` : LINK_COOKIE;
}

export function frameCookie(scheme: "http" | "https"): string {
  return scheme === "https" ? `${HOST_PREFIX}${FRAME_COOKIE}` : FRAME_COOKIE;
}

const claimsSchema = z.strictObject({
  ...{ u: z.string(), t: z.string(), p: z.int().min(1).max(65_535) },
  ...{ k: z.string(), e: z.number(), f: z.string().max(300).exactOptional() },
});

export interface PreviewTarget extends LinkClaims {
  readonly port: number;
  /** The origin whose pages may frame the preview. Absent: the link is not for frames. */
  readonly framedBy?: string;
}

export class PreviewLinks {
  readonly #secret: Buffer;
  readonly #world: World;

  private constructor(secret: Buffer, world: World) {
    this.#secret = secret;
    this.#world = world;
  }

  /** `entries`: the store's, where it has them. */
  static async open(home: string, world: World, entries: SharedEntries | null = null): Promise<PreviewLinks> {
    if (entries === null) return new PreviewLinks(await secretOf(join(home, "preview.secret")), world);
    const secret = await sharedText(entries, "preview/secret", () => randomBytes(32).toString("hex"));
    return new PreviewLinks(Buffer.from(secret, "hex"), world);
  }

  sign({ user, thread, port, keyId, expiresAt, framedBy }: PreviewTarget): string {
    const frame = framedBy === undefined ? {} : { f: framedBy };
    const text = JSON.stringify({ u: user, t: thread, p: port, k: keyId, e: expiresAt, ...frame });
    const claims = Buffer.from(text).toString("base64url");
    return `${claims}.${this.#mac(`link\n${claims}`)}`;
  }

  /** The token's target, or `null` when it is invalid, forged or expired. */
  verify(token: string): PreviewTarget | null {
    const [claims, mac, ...more] = token.split(".");
    if (claims === undefined || mac === undefined || more.length > 0) return null;
    const expected = Buffer.from(this.#mac(`link\n${claims}`));
    const given = Buffer.from(mac);
    if (given.byteLength !== expected.byteLength || !timingSafeEqual(given, expected)) return null;
    // Signed, so a gateway with this secret wrote it; one of an older release names no key.
    const parsed = claimsSchema.safeParse(JSON.parse(Buffer.from(claims, "base64url").toString("utf8")));
    if (!parsed.success || parsed.data.e <= this.#world.wallMs()) return null;
    const { u, t, p, k, e, f } = parsed.data;
    const frame = f === undefined ? {} : { framedBy: f };
    return { user: parseUserId(u), thread: parseThreadId(t), port: p, keyId: k, expiresAt: e, ...frame };
  }

  /** The first label of the host name: `{port}--{id}`. The id reveals neither user nor thread. */
  labelOf(key: ThreadKey, port: number): string {
    return `${port}--${this.threadLabel(key)}`;
  }

  /** A name for (user, thread) that reveals neither. */
  threadLabel({ user, thread }: ThreadKey): string {
    return createHmac("sha256", this.#secret).update(`host\n${user}\n${thread}`).digest("hex").slice(0, 24);
  }

  /** A text of 48 hex digits that follows from `text`, and that only gateways with this secret can compute. */
  derived(text: string): string {
    return createHmac("sha256", this.#secret).update(`derived\n${text}`).digest("hex").slice(0, 48);
  }

  #mac(text: string): string {
    return createHmac("sha256", this.#secret).update(text).digest("base64url");
  }
}

/** The first process creates it; all others read it. */
async function secretOf(path: string): Promise<Buffer> {
  try {
    return Buffer.from((await readFile(path, "utf8")).trim(), "hex");
  } catch (error) {
    if (!isMissing(error)) throw error;
  }
  const staged = `${path}.${randomBytes(4).toString("hex")}.part`;
  await writeFile(staged, `${randomBytes(32).toString("hex")}\n`, { mode: 0o600, flag: "wx" });
  try {
    await link(staged, path);
  } catch (error) {
    if (!(error instanceof Error && "code" in error && error.code === "EEXIST")) throw error;
  } finally {
    await unlink(staged);
  }
  return secretOf(path);
}
