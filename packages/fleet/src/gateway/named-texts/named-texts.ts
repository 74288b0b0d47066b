/**
 * Named texts of a gateway: keys, AIO URLs and secrets at rest.
 *
 *   one host         files in the gateway's home                     file-texts.ts
 *   a shared store   entries, the same for every gateway of the store  shared-texts.ts
 *
 * Invariants of every implementation
 * - A text appears whole or not at all, and `create` never replaces one.
 * - A name is an id that its caller has checked; nothing that a request sent becomes a name unchecked.
 */

import { SandlotError } from "@sandlot/contract";

export interface NamedTexts {
  /** `null` when there is none. */
  read(name: string): Promise<string | null>;
  /** False when there is one already. Rejects when there is no room for one more. */
  create(name: string, text: string): Promise<boolean>;
  /** False when there was none. */
  remove(name: string): Promise<boolean>;
  /** Removes the text if it is one of these, and none that was made since under its name. */
  removeIf(name: string, isMeant: (text: string) => boolean): Promise<boolean>;
  names(): Promise<readonly string[]>;
  /** Every text, by its name. */
  all(): Promise<ReadonlyMap<string, string>>;
  /** Where a text is, for messages. */
  placeOf(name: string): string;
}

export function noRoom(what: string, max: number): SandlotError {
  const problem = `the store has ${max} ${what} already; remove some of them`;
  return new SandlotError("invalid_request", { field: what, problem });
}
