/**
 * Provisioned sandboxes at rest: which thread's sandbox a client has under which id. Files in
 * `$SANDLOT_HOME/provisioned`, or entries of a store that several hosts share, so that every gateway knows them and a
 * restart loses none.
 *
 *   /aio/p{name}{secret}/v1/…    both hex (48); the name follows from owner and id; the secret is the id of the key that
 *                                asked (12) and a code (36) that follows from name, nonce and that id
 *
 * Invariants
 * - The secret is not stored. It is derived with the gateways' own secret from a nonce of the record, so every gateway
 *   answers with the same URL, and a record that is made again under its id has another one.
 * - A URL has the rights of the key that it was shown to. Another key of the same user is shown another URL.
 * - A record names one sandbox of the fleet. Its URL leads to that sandbox and to no later one of the thread.
 * - Ids are the owner's own: a user's, for all keys of that user, or those of one platform's or operator's key.
 * - What a request sent becomes part of a name only through a hash.
 */

import { timingSafeEqual } from "node:crypto";
import { join } from "node:path";
import {
  isSandlotError,
  parseThreadId,
  parseUserId,
  SandlotError,
  type ThreadId,
  type UserId,
} from "@sandlot/contract";
import { z } from "zod";
import { ENTRIES_MAX, type SharedEntries } from "../../fleet.ts";
import { tryJson } from "../../world/try-json.ts";
import type { World } from "../../world/world.ts";
import { FileTexts } from "../named-texts/file-texts.ts";
import { type NamedTexts, noRoom } from "../named-texts/named-texts.ts";
import { SharedTexts } from "../named-texts/shared-texts.ts";
import type { LinkClaims } from "../previews/link-use.ts";
import type { PreviewLinks } from "../previews/links.ts";

/** Far more than sandboxes of one fleet; the rest of a store's entries stays free for keys and URLs. */
const RECORDS_MAX = ENTRIES_MAX / 4;
const NAME_PATTERN = /^[0-9a-f]{48}$/;
const NONCE_BYTES = 16;
const KEY_ID_LENGTH = 12;

/** Loose: during an upgrade of several gateways a later version may have written more. */
const storedSchema = z.object({
  ...{ id: z.string(), owner: z.string(), keyId: z.string(), user: z.string(), thread: z.string() },
  ownsThread: z.boolean(),
  sandboxId: z.string(),
  generation: z.int(),
  nonce: z.string(),
  leaseId: z.string().optional(),
  createdAt: z.number(),
});

export interface ProvisionedSandbox {
  readonly name: string;
  /** The client's. */
  readonly id: string;
  readonly owner: string;
  /** The key that made it. */
  readonly keyId: string;
  readonly user: UserId;
  readonly thread: ThreadId;
  /** The thread is named by the id, and its files end with it. */
  readonly ownsThread: boolean;
  /** The fleet's. */
  readonly sandboxId: string;
  readonly generation: number;
  readonly nonce: string;
  /** The lease that the sandbox was made with. Absent in records of an earlier version. */
  readonly leaseId?: string | undefined;
  readonly createdAt: number;
}

export type NewProvisioned = Omit<ProvisionedSandbox, "name" | "nonce" | "createdAt">;

export class ProvisionedSandboxes {
  readonly #texts: NamedTexts;
  readonly #links: PreviewLinks;
  readonly #world: World;

  private constructor(texts: NamedTexts, links: PreviewLinks, world: World) {
    this.#texts = texts;
    this.#links = links;
    this.#world = world;
  }

  /** `entries`: the store's, where it has them. */
  static async open(
    home: string,
    links: PreviewLinks,
    world: World,
    entries: SharedEntries | null,
  ): Promise<ProvisionedSandboxes> {
    const texts =
      entries === null
        ? await FileTexts.open(join(home, "provisioned"), NAME_PATTERN, world)
        : new SharedTexts(entries, "provisioned");
    return new ProvisionedSandboxes(texts, links, world);
  }

  find(owner: string, id: string): Promise<ProvisionedSandbox | null> {
    return this.#read(this.#nameOf(owner, id));
  }

  /** One that cannot be read concerns its own id only, where `find` reports it. */
  async all(): Promise<readonly ProvisionedSandbox[]> {
    return [...(await this.#texts.all())].flatMap(([name, text]) => {
      try {
        return [this.#parsed(name, text)];
      } catch (error) {
        if (isSandlotError(error, "store_corrupt")) return [];
        throw error;
      }
    });
  }

  /** `null`: there is one of this id already. */
  async add(record: NewProvisioned): Promise<ProvisionedSandbox | null> {
    const name = this.#nameOf(record.owner, record.id);
    const stored = { ...record, nonce: this.#world.randomHex(NONCE_BYTES), createdAt: this.#world.wallMs() };
    if ((await this.#texts.names()).length >= RECORDS_MAX) throw noRoom("provisioned sandboxes", RECORDS_MAX);
    return (await this.#texts.create(name, JSON.stringify(stored))) ? { ...stored, name } : null;
  }

  /** Removes exactly this record, and none that was made since under its id. */
  async remove({ name, nonce }: ProvisionedSandbox): Promise<void> {
    await this.#texts.removeIf(name, (text) => this.#parsed(name, text).nonce === nonce);
  }

  /** The path of the URL that a key is shown. */
  pathOf(record: Pick<ProvisionedSandbox, "name" | "nonce">, keyId: string): string {
    return `/aio/p${record.name}${this.#secretOf(record, keyId)}`;
  }

  /** What a URL gives access to; `null` when it is not the URL of a record. */
  async claimsOf(name: string, secret: string): Promise<LinkClaims | null> {
    const record = await this.#read(name);
    if (record === null) return null;
    const keyId = secret.slice(0, KEY_ID_LENGTH);
    if (!timingSafeEqual(Buffer.from(secret), Buffer.from(this.#secretOf(record, keyId)))) return null;
    const { user, thread } = record;
    return { user, thread, keyId, expiresAt: Number.POSITIVE_INFINITY, provisioned: record };
  }

  #nameOf(owner: string, id: string): string {
    return this.#links.derived(`provisioned\n${owner}\n${id}`);
  }

  #secretOf({ name, nonce }: Pick<ProvisionedSandbox, "name" | "nonce">, keyId: string): string {
    const code = this.#links.derived(`provisioned-url\n${name}\n${nonce}\n${keyId}`);
    return `${keyId}${code.slice(KEY_ID_LENGTH)}`;
  }

  async #read(name: string): Promise<ProvisionedSandbox | null> {
    const text = await this.#texts.read(name);
    return text === null ? null : this.#parsed(name, text);
  }

  #parsed(name: string, text: string): ProvisionedSandbox {
    const stored = storedSchema.safeParse(tryJson(text));
    if (!stored.success)
      throw new SandlotError("store_corrupt", {
        path: this.#texts.placeOf(name),
        problem: "it is not the record of a provisioned sandbox",
      });
    const { user, thread, ...rest } = stored.data;
    return { ...rest, name, user: parseUserId(user), thread: parseThreadId(thread) };
  }
}
