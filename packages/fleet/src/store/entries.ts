/**
 * Shared entries: small named texts that all gateways of one store see, such as the hash of an API key. A store that one
 * host uses alone has none; its gateways keep the same texts as files in their home.
 *
 * Invariants of every implementation (`testing/entry-suite.ts` tests them)
 * - A write names the sequence number that it replaces, so that of two writers at the same time one loses and is told.
 * - A reader sees every write that was acknowledged before it asked.
 * - A number is used once: an entry that was deleted and written again has another one.
 * - Entries survive the store's epochs: they say nothing about sandboxes.
 * - A store with a transfer mark refuses every write with `store_moved`, except those of its import.
 * - Both the size of an entry and their number are bounded. The store is no place for data.
 */

import { SandlotError } from "@sandlot/contract";
import type { ImportClaim, ImportRefusal } from "./transfer/store-transfer.ts";

export interface SharedEntry {
  readonly name: string;
  readonly body: string;
  /** Another one with every write. */
  readonly seq: number;
}

export interface SharedEntries {
  get(name: string): Promise<SharedEntry | null>;
  /** In no particular order. */
  list(prefix: string): Promise<readonly SharedEntry[]>;
  /**
   * Writes an entry if its number is still `expected`; `null`: if there is none. `claim`: under the mark of this
   * import, and only under it.
   */
  put(name: string, body: string, expected: number | null, claim?: ImportClaim): Promise<PutAnswer>;
  /** False: the entry is gone, or has another number. */
  delete(name: string, expected: number): Promise<boolean>;
}

export type PutAnswer =
  | { readonly kind: "put"; readonly seq: number }
  /** Another writer was first. */
  | { readonly kind: "changed" }
  | ImportRefusal
  /** There are `ENTRIES_MAX` entries already, and this would be one more. */
  | { readonly kind: "full"; readonly max: number };

/** Room for every text of a gateway, and small enough to read all of them. */
export const ENTRY_MAX_BYTES = 64 * 1024;
/** Some thousands of keys and links. Stores may go over it by as many writers as create entries at the same time. */
export const ENTRIES_MAX = 20_000;

const NAME_PATTERN = /^[a-z][a-z0-9-]{0,31}\/[A-Za-z0-9_.-]{1,160}$/;

/** Refuses a name or a body that no store has to keep. */
export function checkEntry(name: string, body: string): void {
  if (!NAME_PATTERN.test(name))
    throw new SandlotError("invalid_request", {
      field: "entry",
      problem: `${name.slice(0, 200)} is no name of an entry`,
    });
  if (Buffer.byteLength(body) > ENTRY_MAX_BYTES)
    throw new SandlotError("payload_too_large", { what: `The entry ${name}`, maxBytes: ENTRY_MAX_BYTES });
}
