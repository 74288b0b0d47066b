/**
 * API keys at rest: files of a home, or entries of the store that all its gateways share.
 *
 * Invariants
 * - What is stored is the hash of a key, never the key. The secret has 192 random bits, so a plain hash cannot be
 *   searched.
 * - The secret of a request is hashed and compared in a time that does not depend on where the hashes differ.
 * - A key with an expiry is refused from that moment on, everywhere, also for sessions and links made with it.
 * - A revoked key stops working within `RECHECK_MS` in every process. Where the store does not answer a gateway, a key
 *   that it has checked before goes on for `UNANSWERED_MAX_MS`: a store that pauses must not stop work under way.
 * - Keys that were never found valid here cost the store at most `LOOK_UPS_MAX` look-ups at once. A key that was, the
 *   home's operator key too, waits for none of them.
 * - Keys in files are not keys of a shared store until an operator imports them. Only the operator key of a home works
 *   at that home's gateways without: its file is the way in.
 */

import { hash, timingSafeEqual } from "node:crypto";
import { join } from "node:path";
import {
  type ApiKeyInfo,
  apiKeyInfoSchema,
  isSandlotError,
  type KeyScope,
  parseUserId,
  SandlotError,
} from "@sandlot/contract";
import { z } from "zod";
import type { SharedEntries } from "../../fleet.ts";
import { tryJson } from "../../world/try-json.ts";
import { sleep } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import { LookUpLimit } from "../guards/look-up-limit.ts";
import { FileTexts } from "../named-texts/file-texts.ts";
import type { NamedTexts } from "../named-texts/named-texts.ts";
import { SharedTexts } from "../named-texts/shared-texts.ts";
import { readOperatorKey } from "./operator-key.ts";

const KEY_PATTERN = /^slk_([0-9a-f]{12})_([0-9a-f]{48})$/;
const ID_PATTERN = /^[0-9a-f]{12}$/;
/** Cache time of a key: a revocation takes this long, and a key is read about once per this time. */
const RECHECK_MS = 1_000;
/** A key in use is read again after this long, in the background: no request waits for a store on the network. */
const REFRESH_MS = 500;
/** More keys than this are read with one list. */
const FEW_KEYS = 8;
/** How long a request waits for the store when the key was checked not long ago. */
const PATIENCE_MS = 250;
/** Longer than a failover of a store. A gateway that is cut off from its store for longer refuses all keys. */
const UNANSWERED_MAX_MS = 15_000;
/** How long a key that was just created waits at an address whose failures are used up. */
const LIST_EVERY_MS = 1_000;
/** Cached keys; beyond it the cache is cleared. */
const REMEMBERED_MAX = 10_000;

const NO_IDS: Promise<ReadonlySet<string>> = Promise.resolve(new Set());

const storedKeySchema = apiKeyInfoSchema.extend({ hash: z.string().regex(/^[0-9a-f]{64}$/) });
type StoredKey = z.infer<typeof storedKeySchema>;

interface KnownKey {
  readonly key: StoredKey;
  readonly hash: Buffer;
  readonly checkedAt: number;
}

export interface NewKey {
  readonly scope: KeyScope;
  /** Required for the scope `user`, and only there. */
  readonly user?: string;
  readonly label?: string;
  /** The blueprints it may use; absent: `default` for a user's key, all for another. */
  readonly blueprints?: readonly string[];
  /** How long it works; absent: until it is revoked. */
  readonly ttlMs?: number;
}

interface KeyParts {
  readonly texts: NamedTexts;
  /** The home's own files; `null` where `texts` are these. */
  readonly home: { readonly files: FileTexts; readonly operatorId: string | null } | null;
  readonly world: World;
}

export class ApiKeys {
  readonly #texts: NamedTexts;
  readonly #home: KeyParts["home"];
  readonly #world: World;
  readonly #known = new Map<string, KnownKey>();
  readonly #lookUps = new Map<string, Promise<KnownKey | null>>();
  readonly #unknown = new LookUpLimit("keys");
  /** The ids of the store's keys, for callers that may cause no look-up. */
  #listed: { at: number; ids: Promise<ReadonlySet<string>> } = { at: Number.NEGATIVE_INFINITY, ids: NO_IDS };
  readonly #toRefresh = new Set<string>();
  #refreshing: Promise<void> | null = null;

  private constructor({ texts, home, world }: KeyParts) {
    this.#texts = texts;
    this.#home = home;
    this.#world = world;
  }

  /** `entries`: the store's, where it has them. */
  static async open(home: string, world: World, entries: SharedEntries | null = null): Promise<ApiKeys> {
    const files = await FileTexts.open(join(home, "keys"), ID_PATTERN, world);
    if (entries === null) return new ApiKeys({ texts: files, home: null, world });
    const [, operatorId = null] = KEY_PATTERN.exec((await readOperatorKey(home)) ?? "") ?? [];
    return new ApiKeys({ texts: new SharedTexts(entries, "key"), home: { files, operatorId }, world });
  }

  /** Returns the key itself, which is not stored. */
  async create({ scope, user, label, blueprints, ttlMs }: NewKey): Promise<ApiKeyInfo & { readonly key: string }> {
    if ((scope === "user") !== (user !== undefined))
      throw new SandlotError("invalid_request", {
        field: "user",
        problem: scope === "user" ? "a key of scope user needs one" : `a key of scope ${scope} has none`,
      });
    const id = this.#world.randomHex(6);
    const secret = this.#world.randomHex(24);
    const info: ApiKeyInfo = {
      id,
      scope,
      user: user === undefined ? null : parseUserId(user),
      label: label ?? null,
      blueprints: blueprints === undefined ? null : [...blueprints],
      createdAt: this.#world.wallMs(),
      expiresAt: ttlMs === undefined ? null : this.#world.wallMs() + ttlMs,
    };
    const stored: StoredKey = { ...info, hash: hashOf(secret).toString("hex") };
    if (!(await this.#texts.create(id, JSON.stringify(stored))))
      throw new SandlotError("internal", { problem: `there is a key ${id} already; ask again` });
    return { ...info, key: `slk_${id}_${secret}` };
  }

  async list(): Promise<readonly ApiKeyInfo[]> {
    const keys = [...(await this.#texts.all())].map(([id, text]) => parsed(this.#texts, id, text));
    const own = this.#home?.operatorId ?? null;
    if (own !== null && !keys.some(({ id }) => id === own)) keys.push(...orNone(await this.#read(own)));
    return keys.map(({ hash: _, ...info }) => info).sort((a, b) => a.createdAt - b.createdAt);
  }

  /** False when there is no such key. */
  async revoke(id: string): Promise<boolean> {
    if (!ID_PATTERN.test(id)) return false;
    this.#known.delete(id);
    const removed = await this.#texts.remove(id);
    const atHome = this.#home?.operatorId === id && (await this.#home.files.remove(id));
    this.#known.delete(id);
    return removed || atHome;
  }

  /**
   * The owner of this key, or `null` when it is unknown. Synchronous for a cached key. `beforeUnknown` can refuse, by
   * throwing, a key that this gateway has not found before. It is called before a shared store is asked; a file of the
   * home is read without it, so that there every valid key works at once. A refused key is still looked up if the store
   * has one of its id: at an address that others have used up, a valid key works within `LIST_EVERY_MS`.
   */
  verify(text: string, beforeUnknown?: () => void): ApiKeyInfo | null | Promise<ApiKeyInfo | null> {
    const [, id, secret] = KEY_PATTERN.exec(text) ?? [];
    if (id === undefined || secret === undefined) return null;
    const known = this.#fresh(id);
    if (known !== null) return this.#matching(known, secret);
    if (this.#known.has(id) || this.#home?.operatorId === id)
      return this.#present(id).then((found) => this.#matching(found, secret));
    // A request that joins a look-up under way costs the store nothing.
    const lookUp = () => this.#lookUps.get(id) ?? this.#unknown.run(() => this.#lookUp(id));
    try {
      if (this.#home !== null) beforeUnknown?.();
    } catch (refusal) {
      return this.#unlessUnlisted(id, refusal, lookUp).then((found) => this.#matching(found, secret));
    }
    return lookUp().then((found) => this.#matching(found, secret));
  }

  /** A key of a refused caller is looked up only if the store has one of this id. One list a second serves all of them. */
  async #unlessUnlisted<T>(id: string, refusal: unknown, lookUp: () => Promise<T>): Promise<T> {
    const now = this.#world.monotonicMs();
    if (now - this.#listed.at >= LIST_EVERY_MS)
      this.#listed = { at: now, ids: this.#texts.names().then((names) => new Set(names)) };
    if (!(await this.#listed.ids).has(id)) throw refusal;
    return lookUp();
  }

  /** The present key of this id, or `null` when there is none that is valid. Synchronous for a cached key. */
  find(id: string): ApiKeyInfo | null | Promise<ApiKeyInfo | null> {
    if (!ID_PATTERN.test(id)) return null;
    const valid = (found: KnownKey | null) => (found === null || this.#isExpired(found) ? null : found.key);
    const known = this.#fresh(id);
    return known === null ? this.#present(id).then(valid) : valid(known);
  }

  /** Says so where the key is right and only too old: its holder has to ask for another one. */
  #matching(known: KnownKey | null, secret: string): ApiKeyInfo | null {
    if (known === null || !timingSafeEqual(hashOf(secret), known.hash)) return null;
    if (!this.#isExpired(known)) return known.key;
    throw new SandlotError("unauthorized", { problem: "the key has expired; ask an operator for another one" });
  }

  #isExpired({ key: { expiresAt } }: KnownKey): boolean {
    return expiresAt !== null && expiresAt <= this.#world.wallMs();
  }

  /** How many keys the home's files have that this store does not know. 0 where the files are the keys. */
  async importableCount(): Promise<number> {
    return this.#home === null ? 0 : (await this.#home.files.names()).length;
  }

  /**
   * Moves the keys of the home's files into the shared store. The file of a key goes when the store has the key:
   * otherwise a revocation at another gateway would not reach it. Returns the ids.
   */
  async importFromHome(): Promise<readonly string[]> {
    if (this.#home === null)
      throw new SandlotError("invalid_request", {
        field: "store",
        problem: "this store is not shared; its keys are the home's files already",
      });
    const { files } = this.#home;
    const moved: string[] = [];
    for (const id of await files.names()) {
      const key = await this.#readFrom(files, id);
      if (key === null) continue;
      await this.#texts.create(id, JSON.stringify(key));
      await files.remove(id);
      moved.push(id);
    }
    return moved;
  }

  #fresh(id: string): KnownKey | null {
    const known = this.#known.get(id);
    if (known === undefined) return null;
    const ageMs = this.#world.monotonicMs() - known.checkedAt;
    if (this.#home !== null && ageMs >= REFRESH_MS) {
      this.#toRefresh.add(id);
      this.#refreshing ??= this.#refresh().finally(() => {
        this.#refreshing = null;
      });
    }
    return ageMs < RECHECK_MS ? known : null;
  }

  /** Reads keys in use again. Those that come meanwhile are read together: the cost does not grow with their number. */
  async #refresh(): Promise<void> {
    while (this.#toRefresh.size > 0) {
      const now = this.#world.monotonicMs();
      const isDue = (id: string) => now - (this.#known.get(id)?.checkedAt ?? now) >= REFRESH_MS;
      const ids = [...this.#toRefresh].filter(isDue);
      this.#toRefresh.clear();
      // A failure is the next request's, which waits for its own answer.
      if (ids.length <= FEW_KEYS) await Promise.all(ids.map((id) => this.#lookUp(id).catch(() => undefined)));
      else await this.#lookUpAll(ids).catch(() => undefined);
    }
  }

  async #lookUpAll(ids: readonly string[]): Promise<void> {
    const checkedAt = this.#world.monotonicMs();
    const texts = await this.#texts.all();
    for (const id of ids) {
      const text = texts.get(id);
      if (text !== undefined) this.#learn(id, parsed(this.#texts, id, text), checkedAt);
      else if (id !== this.#home?.operatorId) this.#known.delete(id);
    }
  }

  /** The store's answer; or, where that takes too long, what is known of a key that was checked not long ago. */
  async #present(id: string): Promise<KnownKey | null> {
    const known = this.#known.get(id);
    const lookUp = this.#lookUp(id);
    if (this.#home === null || known === undefined || this.#isTooOld(known)) return lookUp;
    const answered = new AbortController();
    const late = sleep(this.#world, PATIENCE_MS, answered.signal, { background: true }).then(() => known);
    late.catch(() => undefined);
    return Promise.race([lookUp, late]).finally(() => answered.abort());
  }

  #isTooOld({ checkedAt }: KnownKey): boolean {
    return this.#world.monotonicMs() - checkedAt >= UNANSWERED_MAX_MS;
  }

  /** Concurrent requests of a key share one look-up. */
  #lookUp(id: string): Promise<KnownKey | null> {
    const running = this.#lookUps.get(id);
    if (running !== undefined) return running;
    const lookUp = this.#lookUpNow(id).finally(() => this.#lookUps.delete(id));
    this.#lookUps.set(id, lookUp);
    return lookUp;
  }

  async #lookUpNow(id: string): Promise<KnownKey | null> {
    const checkedAt = this.#world.monotonicMs();
    let key: StoredKey | null;
    try {
      key = await this.#read(id);
    } catch (error) {
      const known = this.#known.get(id);
      if (known === undefined || this.#isTooOld(known) || !isSandlotError(error, "store_unavailable")) throw error;
      return known;
    }
    if (key !== null) return this.#learn(id, key, checkedAt);
    this.#known.delete(id);
    return null;
  }

  #learn(id: string, key: StoredKey, checkedAt: number): KnownKey {
    if (this.#known.size >= REMEMBERED_MAX) this.#known.clear();
    const known = { key, hash: Buffer.from(key.hash, "hex"), checkedAt };
    this.#known.set(id, known);
    return known;
  }

  async #read(id: string): Promise<StoredKey | null> {
    const shared = await this.#readFrom(this.#texts, id);
    return shared === null && this.#home?.operatorId === id ? this.#readFrom(this.#home.files, id) : shared;
  }

  async #readFrom(texts: NamedTexts, id: string): Promise<StoredKey | null> {
    const text = await texts.read(id);
    return text === null ? null : parsed(texts, id, text);
  }
}

function parsed(texts: NamedTexts, id: string, text: string): StoredKey {
  const key = storedKeySchema.safeParse(tryJson(text));
  if (key.success) return key.data;
  throw new SandlotError("store_corrupt", { path: texts.placeOf(id), problem: "it is not the record of a key" });
}

function orNone<T>(value: T | null): readonly T[] {
  return value === null ? [] : [value];
}

function hashOf(secret: string): Buffer {
  return hash("sha256", secret, "buffer");
}
