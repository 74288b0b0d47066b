/** Names of uploaded files. Pure. */

import { isDraft } from "../../world/drafts.ts";
import { STAGED_PREFIX, STAGED_SUFFIX } from "../workspace-access.ts";

const NAME_MAX_BYTES = 255;

/** The last part of the client's file name, or `null` when that is no valid name. */
export function safeName(given: string): string | null {
  if (given.includes("\\")) return null;
  const name = given.slice(given.lastIndexOf("/") + 1);
  if (name === "" || name === "." || name === ".." || /\p{Cc}/u.test(name)) return null;
  if (Buffer.byteLength(name) > NAME_MAX_BYTES || isStaged(name)) return null;
  return name;
}

/** Includes drafts on this host's disk: a file of that name would be mistaken for one. */
export function isStaged(name: string): boolean {
  if (isDraft(name)) return true;
  return name.startsWith(STAGED_PREFIX) && name.endsWith(STAGED_SUFFIX);
}

/** `name`, or `stem_1.ext`, `stem_2.ext`, … when it is taken; adds the result to `taken`. */
export function claimName(name: string, taken: Set<string>): string {
  const extension = extensionOf(name);
  let claimed = name;
  for (let number = 1; taken.has(claimed); number += 1) {
    const suffix = `_${number}${extension}`;
    claimed = `${shortened(name.slice(0, name.length - extension.length), NAME_MAX_BYTES - Buffer.byteLength(suffix))}${suffix}`;
  }
  taken.add(claimed);
  return claimed;
}

/** With its dot, as written; empty when there is none. */
export function extensionOf(name: string): string {
  const dot = name.lastIndexOf(".");
  return dot <= 0 ? "" : name.slice(dot);
}

function shortened(text: string, maxBytes: number): string {
  let short = text;
  while (Buffer.byteLength(short) > maxBytes) short = short.slice(0, -1);
  return short;
}
