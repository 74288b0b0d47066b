/**
 * Threads of other systems: a framework's thread id may be any text, ours has a pattern. One that fits is used
 * unchanged; any other becomes its readable part and 128 bits of its hash.
 *
 * Invariant: two different foreign ids never become the same thread (short of a collision of the hash). So an id that
 * already looks like a mapped one is mapped too.
 */

import { THREAD_ID_PATTERN, USER_ID_PATTERN } from "@sandlot/contract";

const HASH_HEX_DIGITS = 32;
const MAPPED = new RegExp(`_x[0-9a-f]{${HASH_HEX_DIGITS}}$`);
const THREAD_MAX_CHARS = 64;
const USER_MAX_CHARS = 128;

/** The thread for a foreign thread id. */
export function threadFrom(foreign: string): Promise<string> {
  return mapped(foreign, THREAD_ID_PATTERN, THREAD_MAX_CHARS);
}

/** The user for a foreign account id. */
export function userFrom(foreign: string): Promise<string> {
  return mapped(foreign, USER_ID_PATTERN, USER_MAX_CHARS);
}

async function mapped(foreign: string, pattern: RegExp, maxChars: number): Promise<string> {
  if (pattern.test(foreign) && !MAPPED.test(foreign)) return foreign;
  const readable = foreign.replace(/[^A-Za-z0-9_-]+/g, "_").slice(0, maxChars - HASH_HEX_DIGITS - 2);
  return `${readable}_x${(await sha256Hex(foreign)).slice(0, HASH_HEX_DIGITS)}`;
}

/** SHA-256 as hexadecimal digits. Text is hashed as UTF-16, so that not even unpaired surrogates collide. */
export async function sha256Hex(content: string | Uint8Array<ArrayBuffer>): Promise<string> {
  const bytes = typeof content === "string" ? utf16(content) : content;
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function utf16(text: string): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(text.length * 2);
  for (let index = 0; index < text.length; index++) {
    const unit = text.charCodeAt(index);
    bytes[index * 2] = unit & 0xff;
    bytes[index * 2 + 1] = unit >> 8;
  }
  return bytes;
}
