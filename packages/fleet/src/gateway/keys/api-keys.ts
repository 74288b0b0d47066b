/**
 * API keys at rest: one file per key, so that two processes that create and revoke at the same time need no lock.
 *
 * Invariants
 * - A file holds the hash of a key, never the key. The secret has 192 random bits, so a plain hash cannot be searched.
 * - The secret of a request is hashed and compared in a time that does not depend on where the hashes differ.
 * - Files are 0600 in a directory that is 0700, and appear whole: written beside and then linked into place.
 * - A revoked key stops working within `RECHECK_MS` in every process.
 * - File names are ids that this file has made up; nothing a caller sent becomes part of a path unchecked.
 */

import { hash, timingSafeEqual } from "node:crypto";
import { mkdir, readdir, readFile, rename, unlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type ApiKeyInfo, apiKeyInfoSchema, type KeyScope, parseUserId, SandlotError } from "@sandlot/contract";
import { z } from "zod";
import { isMissing } from "../../world/disk-trouble.ts";
import { tryJson } from "../../world/try-json.ts";
import type { World } from "../../world/world.ts";

const KEY_PATTERN = /^slk_([0-9a-f]{12})_([0-9a-f]{48})$/;
const ID_PATTERN = /^[0-9a-f]{12}$/;
/** Cache time of a key: a revocation takes this long, and a key's file is read once per this time. */
const RECHECK_MS = 1_000;
/** Cached keys; beyond it the cache is cleared. */
const REMEMBERED_MAX = 10_000;

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
}

export class ApiKeys {
  readonly #directory: string;
  readonly #world: World;
  readonly #known = new Map<string, KnownKey>();

  private constructor(directory: string, world: World) {
    this.#directory = directory;
    this.#world = world;
  }

  static async open(home: string, world: World): Promise<ApiKeys> {
    const directory = join(home, "keys");
    await mkdir(directory, { recursive: true, mode: 0o700 });
    return new ApiKeys(directory, world);
  }

  /** Returns the key itself, which is not stored. */
  async create({ scope, user, label, blueprints }: NewKey): Promise<ApiKeyInfo & { readonly key: string }> {
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
    };
    const stored: StoredKey = { ...info, hash: hashOf(secret).toString("hex") };
    const staged = join(this.#directory, `.${id}.part`);
    await writeFile(staged, `${JSON.stringify(stored)}\n`, { mode: 0o600, flag: "wx" });
    await rename(staged, this.#path(id));
    return { ...info, key: `slk_${id}_${secret}` };
  }

  async list(): Promise<readonly ApiKeyInfo[]> {
    const names = (await readdir(this.#directory)).filter((name) => /^[0-9a-f]{12}\.json$/.test(name));
    const keys = await Promise.all(names.map((name) => this.#read(name.slice(0, 12))));
    return keys
      .filter((key) => key !== null)
      .map(({ hash: _, ...info }) => info)
      .sort((a, b) => a.createdAt - b.createdAt);
  }

  /** False when there is no such key. */
  async revoke(id: string): Promise<boolean> {
    if (!ID_PATTERN.test(id)) return false;
    this.#known.delete(id);
    try {
      await unlink(this.#path(id));
      return true;
    } catch (error) {
      if (isMissing(error)) return false;
      throw error;
    }
  }

  /** The owner of this key, or `null` when it is unknown. Synchronous for a cached key. */
  verify(text: string): ApiKeyInfo | null | Promise<ApiKeyInfo | null> {
    const [, id, secret] = KEY_PATTERN.exec(text) ?? [];
    if (id === undefined || secret === undefined) return null;
    const known = this.#fresh(id);
    return known !== null ? matching(known, secret) : this.#lookUp(id).then((found) => matching(found, secret));
  }

  /** The present key of this id, or `null` when there is none. Synchronous for a cached key. */
  find(id: string): ApiKeyInfo | null | Promise<ApiKeyInfo | null> {
    if (!ID_PATTERN.test(id)) return null;
    return this.#fresh(id)?.key ?? this.#lookUp(id).then((found) => found?.key ?? null);
  }

  #fresh(id: string): KnownKey | null {
    const known = this.#known.get(id);
    return known !== undefined && this.#world.monotonicMs() - known.checkedAt < RECHECK_MS ? known : null;
  }

  async #lookUp(id: string): Promise<KnownKey | null> {
    const checkedAt = this.#world.monotonicMs();
    const key = await this.#read(id);
    if (this.#known.size >= REMEMBERED_MAX) this.#known.clear();
    if (key === null) {
      this.#known.delete(id);
      return null;
    }
    const known = { key, hash: Buffer.from(key.hash, "hex"), checkedAt };
    this.#known.set(id, known);
    return known;
  }

  async #read(id: string): Promise<StoredKey | null> {
    let text: string;
    try {
      text = await readFile(this.#path(id), "utf8");
    } catch (error) {
      if (isMissing(error)) return null;
      throw error;
    }
    const parsed = storedKeySchema.safeParse(tryJson(text));
    if (parsed.success) return parsed.data;
    throw new SandlotError("store_corrupt", { path: this.#path(id), problem: "it is not the record of a key" });
  }

  #path(id: string): string {
    return join(this.#directory, `${id}.json`);
  }
}

function matching(known: KnownKey | null, secret: string): ApiKeyInfo | null {
  return known !== null && timingSafeEqual(hashOf(secret), known.hash) ? known.key : null;
}

function hashOf(secret: string): Buffer {
  return hash("sha256", secret, "buffer");
}
