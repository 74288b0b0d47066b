/**
 * AIO URLs at rest, named by their link id: files in `$SANDLOT_HOME/aio-urls`, or entries of a store that several hosts
 * share.
 *
 *   /aio/{linkId}{secret}/v1/…     linkId = label of the thread (24), expiry in ms (12), random (12), all hex
 *   /aio/p{linkId}{secret}/v1/…    of a provisioned sandbox; its texts are those of `provisioner/provisioned-sandboxes.ts`
 *
 * Invariants
 * - What is stored has the hash of the secret, never the secret, which has 192 random bits.
 * - Every gateway of the home or the store refuses a revoked or expired URL from the next request on, since each request
 *   reads the text. Open requests through a revoked one end at once at the gateway that revoked it, and within
 *   `RECHECK_MS` at the others.
 * - A text names the key that made the URL, whose rights it has (`link-use.ts`).
 * - Names are link ids; input of a caller becomes part of a path only if it matches their pattern.
 * - URLs that were never found valid here cost the store at most `LOOK_UPS_MAX` look-ups at once.
 * - A thread has at most `URLS_MAX` live URLs, a user `USER_URLS_MAX`, and a shared store `SHARED_URLS_MAX` in all.
 *   A gateway creates one after the other. It takes a URL back when another gateway has created one meanwhile, and both
 *   together are over the limit.
 * - Creating a URL removes up to `SWEEP_MAX` expired ones of all threads.
 */

import { hash, timingSafeEqual } from "node:crypto";
import { join } from "node:path";
import { parseThreadId, parseUserId, SandlotError } from "@sandlot/contract";
import { z } from "zod";
import { ENTRIES_MAX, type SharedEntries } from "../../fleet.ts";
import { tryJson } from "../../world/try-json.ts";
import type { World } from "../../world/world.ts";
import { LookUpLimit } from "../guards/look-up-limit.ts";
import { FileTexts } from "../named-texts/file-texts.ts";
import { type NamedTexts, noRoom } from "../named-texts/named-texts.ts";
import { SharedTexts } from "../named-texts/shared-texts.ts";
import type { ProvisionedSandboxes } from "../provisioner/provisioned-sandboxes.ts";
import type { ThreadKey } from "../thread-key.ts";
import type { LinkClaims } from "./link-use.ts";
import type { PreviewLinks } from "./links.ts";

/** Enough for every client of a thread; stops a loop that forgets to revoke. */
const URLS_MAX = 64;
/** Some threads' worth. Without it one user could fill the store with URLs of many threads. */
const USER_URLS_MAX = 256;
/** The other half of the store's entries stays free for keys, secrets and rates. */
const SHARED_URLS_MAX = ENTRIES_MAX / 2;
/** Bounds how long a caller waits for the removal of expired URLs. More than one, so that they become fewer. */
const SWEEP_MAX = 100;

/** URLs remembered as valid; beyond it all are forgotten, and each is looked up as a new one once. */
const REMEMBERED_MAX = 10_000;

/** How long an open request may outlive a URL that another gateway revoked. */
const RECHECK_MS = 2_000;
const LINK_ID_PATTERN = /^[0-9a-f]{48}$/;
const ADDRESS_PATTERN = /^\/aio\/(p?)([0-9a-f]{48})([0-9a-f]{48})(?:\/+([^?]*))?(\?.*)?$/;

const storedSchema = z.strictObject({
  ...{ user: z.string(), thread: z.string(), keyId: z.string() },
  hash: z.string().regex(/^[0-9a-f]{64}$/),
});

export interface AioUse extends Disposable {
  readonly claims: LinkClaims;
}

interface NewUrl {
  readonly linkId: string;
  readonly secret: string;
  readonly expiresAt: number;
}

interface Present {
  /** The ids of the live URLs. */
  readonly live: readonly string[];
  /** With the expired ones. */
  readonly count: number;
}

export interface AioAddress {
  readonly isProvisioned: boolean;
  readonly linkId: string;
  readonly secret: string;
  /** The path inside the AIO API. */
  readonly path: string;
}

export function aioPath(linkId: string, secret: string): string {
  return `/aio/${linkId}${secret}`;
}

/** `null` for an address that is not of this form. */
export function aioAddress(address: string): AioAddress | null {
  const [, kind, linkId, secret, path = "", query = ""] = ADDRESS_PATTERN.exec(address) ?? [];
  if (linkId === undefined || secret === undefined) return null;
  return { isProvisioned: kind === "p", linkId, secret, path: `/${path}${query}` };
}

export class AioLinks {
  readonly #texts: NamedTexts;
  readonly #links: PreviewLinks;
  readonly #world: World;
  /** Whether the texts are entries of a store. */
  readonly #isShared: boolean;
  readonly #provisioned: Pick<ProvisionedSandboxes, "claimsOf"> | null;
  /** Open uses of each URL in this process. */
  readonly #uses = new Map<string, Set<() => void>>();

  /** The user of each live URL. A URL never changes its user. */
  #owners: ReadonlyMap<string, string> = new Map();
  /** Hashes of the id and secret of URLs that were valid when last read. */
  readonly #valid = new Set<string>();
  readonly #unknown = new LookUpLimit("AIO URLs");
  /** Ends with the last requested create. */
  #creating: Promise<unknown> = Promise.resolve();

  private constructor(
    texts: NamedTexts,
    links: PreviewLinks,
    world: World,
    isShared: boolean,
    provisioned: Pick<ProvisionedSandboxes, "claimsOf"> | null,
  ) {
    this.#texts = texts;
    this.#isShared = isShared;
    this.#provisioned = provisioned;
    this.#links = links;
    this.#world = world;
  }

  /** `entries`: the store's, where it has them. */
  static async open(
    home: string,
    links: PreviewLinks,
    world: World,
    entries: SharedEntries | null = null,
    provisioned: Pick<ProvisionedSandboxes, "claimsOf"> | null = null,
  ): Promise<AioLinks> {
    const texts =
      entries === null
        ? await FileTexts.open(join(home, "aio-urls"), LINK_ID_PATTERN, world)
        : new SharedTexts(entries, "aio");
    return new AioLinks(texts, links, world, entries !== null, provisioned);
  }

  /** Returns the secret, which is not stored. */
  create(key: ThreadKey, keyId: string, ttlMs: number): Promise<NewUrl> {
    const made = this.#creating.then(() => this.#create(key, keyId, ttlMs));
    this.#creating = made.catch(() => undefined);
    return made;
  }

  async #create(key: ThreadKey, keyId: string, ttlMs: number): Promise<NewUrl> {
    const label = this.#links.threadLabel(key);
    await this.#requireRoom(key, await this.#sweep(), 1);
    const expiresAt = this.#world.wallMs() + ttlMs;
    const linkId = `${label}${expiresAt.toString(16).padStart(12, "0")}${this.#world.randomHex(6)}`;
    const secret = this.#world.randomHex(24);
    const stored = { user: key.user, thread: key.thread, keyId, hash: hashOf(secret).toString("hex") };
    if (!(await this.#texts.create(linkId, JSON.stringify(stored))))
      throw new SandlotError("internal", { problem: "there is an AIO URL of this id already; ask again" });
    try {
      await this.#requireRoom(key, await this.#present(), 0);
    } catch (error) {
      // Where the store does not answer, the URL stays until it expires. Its secret is unknown to everyone.
      await this.#remove(linkId).catch(() => false);
      throw error;
    }
    return { linkId, secret, expiresAt };
  }

  /** Refuses when there are too many URLs together with `more`. */
  async #requireRoom(key: ThreadKey, { live, count }: Present, more: 0 | 1): Promise<void> {
    const label = this.#links.threadLabel(key);
    if (live.filter((id) => id.startsWith(label)).length + more > URLS_MAX) {
      const problem = `it has ${URLS_MAX} AIO URLs already; revoke them with DELETE /v1/threads/${key.thread}/aio`;
      throw new SandlotError("invalid_request", { field: "thread", problem });
    }
    if ((await this.#countOf(key.user, live)) + more > USER_URLS_MAX) {
      const problem = `${key.user} has ${USER_URLS_MAX} AIO URLs already; revoke those of a thread with DELETE /v1/threads/{thread}/aio`;
      throw new SandlotError("invalid_request", { field: "user", problem });
    }
    if (this.#isShared && count + more > SHARED_URLS_MAX) throw noRoom("AIO URLs", SHARED_URLS_MAX);
  }

  /**
   * Begins a use of a URL; `null` when it is unknown, expired or revoked. `end` is called on a revocation, until the use
   * is disposed. `beforeUnknown` can refuse, by throwing, a URL that this gateway has not found before. It is called
   * before a shared store is asked; a file of the home is read without it.
   */
  async use(address: AioAddress, end: () => void, beforeUnknown?: () => void): Promise<AioUse | null> {
    const { linkId, isProvisioned } = address;
    if (!isProvisioned && expiryOf(linkId) <= this.#world.wallMs()) return null;
    const isKnown = this.#valid.has(fingerprintOf(address));
    if (!isKnown && this.#isShared) beforeUnknown?.();
    const verify = () => this.#verify(address);
    // Before reading the file: otherwise a revocation in between would go unnoticed.
    const uses = this.#uses.get(linkId) ?? new Set();
    this.#uses.set(linkId, uses.add(end));
    const stop = () => {
      uses.delete(end);
      if (uses.size === 0 && this.#uses.get(linkId) === uses) this.#uses.delete(linkId);
    };
    const claims = await (isKnown ? verify() : this.#unknown.run(verify)).catch((error: unknown) => {
      stop();
      throw error;
    });
    if (claims !== null) {
      this.#recheckLater(address, () => uses.has(end) && end);
      return { claims, [Symbol.dispose]: stop };
    }
    stop();
    return null;
  }

  /**
   * Ends a use whose URL another gateway has revoked; `endOf` is false when the use is over. A text that cannot be read
   * now is looked at again later: where the store stays silent, the check of the key ends the use (`link-use.ts`).
   */
  #recheckLater(address: AioAddress, endOf: () => false | (() => void)): void {
    const again = () => this.#recheckLater(address, endOf);
    const check = async () => {
      if (endOf() === false) return;
      const claims = await this.#verify(address).catch(() => undefined);
      const end = endOf();
      if (end !== false && claims === null) end();
      else if (end !== false) again();
    };
    this.#world.timer(RECHECK_MS, () => void check(), { background: true });
  }

  /** One URL of the thread, or all. Returns how many there were. */
  async revoke(key: ThreadKey, linkId?: string): Promise<number> {
    const label = this.#links.threadLabel(key);
    const all = (await this.#linkIds()).filter((id) => id.startsWith(label));
    const chosen = all.filter((id) => linkId === undefined || id === linkId);
    const removed = await Promise.all(chosen.map((id) => this.#remove(id)));
    return removed.filter(Boolean).length;
  }

  /** Ends open requests of a URL here; other gateways find out within `RECHECK_MS`. */
  endUses(linkId: string): void {
    for (const end of this.#uses.get(linkId) ?? []) end();
  }

  async #verify(address: AioAddress): Promise<LinkClaims | null> {
    const claims = await this.#read(address);
    if (claims === null) this.#valid.delete(fingerprintOf(address));
    else {
      if (this.#valid.size >= REMEMBERED_MAX) this.#valid.clear();
      this.#valid.add(fingerprintOf(address));
    }
    return claims;
  }

  async #read({ isProvisioned, linkId, secret }: AioAddress): Promise<LinkClaims | null> {
    if (isProvisioned) return (await this.#provisioned?.claimsOf(linkId, secret)) ?? null;
    const text = await this.#texts.read(linkId);
    if (text === null) return null;
    const { user, thread, keyId, hash: expected } = storedSchema.parse(JSON.parse(text));
    if (!timingSafeEqual(hashOf(secret), Buffer.from(expected, "hex"))) return null;
    return { user: parseUserId(user), thread: parseThreadId(thread), keyId, expiresAt: expiryOf(linkId) };
  }

  async #present(): Promise<Present> {
    const now = this.#world.wallMs();
    const all = await this.#linkIds();
    return { live: all.filter((id) => expiryOf(id) > now), count: all.length };
  }

  /** Removes expired URLs. Returns those that are left. */
  async #sweep(): Promise<Present> {
    const now = this.#world.wallMs();
    const all = await this.#linkIds();
    const expired = all.filter((id) => expiryOf(id) <= now).slice(0, SWEEP_MAX);
    await Promise.all(expired.map((id) => this.#remove(id)));
    return { live: all.filter((id) => expiryOf(id) > now), count: all.length - expired.length };
  }

  /** How many of the URLs are the user's. Texts are read only when there are enough URLs, and unread ones among them. */
  async #countOf(user: string, live: readonly string[]): Promise<number> {
    if (live.length < USER_URLS_MAX) return 0;
    if (live.some((id) => !this.#owners.has(id))) {
      const texts = await this.#texts.all();
      this.#owners = new Map([...texts].map(([id, text]) => [id, ownerOf(text)]));
    }
    return live.filter((id) => this.#owners.get(id) === user).length;
  }

  async #linkIds(): Promise<readonly string[]> {
    return (await this.#texts.names()).filter((name) => LINK_ID_PATTERN.test(name));
  }

  async #remove(linkId: string): Promise<boolean> {
    if (!(await this.#texts.remove(linkId))) return false;
    this.endUses(linkId);
    return true;
  }
}

function expiryOf(linkId: string): number {
  return Number.parseInt(linkId.slice(24, 36), 16);
}

/** A text that is no record of a URL belongs to no user; using that URL says so. */
function ownerOf(text: string): string {
  return storedSchema.safeParse(tryJson(text)).data?.user ?? "";
}

function fingerprintOf({ linkId, secret }: AioAddress): string {
  return hash("sha256", `${linkId}${secret}`, "base64");
}

function hashOf(secret: string): Buffer {
  return hash("sha256", secret, "buffer");
}
