/**
 * The keys of the store's rows: `<table>/<id>`. Persisted words: a key never changes its meaning.
 *
 *   record/<sandbox>     the record
 *   thread/<thread key>  the thread's sandbox, and the tombstone of its last one
 *   home/<thread key>    the engine on which the thread lives; kept over epochs
 *   lease/<lease>        the sandbox of a remote lease
 *   session/<instance>   who the instance is and what it reaches
 *   beat/<instance>      its beats, apart, so that a hold does not conflict with a beat
 *   roster               all sessions: for steps that depend on which there are
 *   tombstone/<sandbox>  an ended sandbox
 *   count/…              how many records there are: all, of a user, of an engine
 *   generation           the highest generation so far
 *   recovered/<engine>   the recovery of the engine is over
 *   awaited/<engine>     until when other engines' instances wait for that
 *   transfer/mark        the store was moved, or an import has not ended; kept over epochs
 *   entry/<name>         a text that gateways share (`store/entries.ts`); kept over epochs
 *
 * An id from outside is escaped, so that a key is short, printable ASCII.
 */

import type { InstanceId, SandboxId, ThreadId, UserId } from "@sandlot/contract";
import { threadKeyOf } from "../../backend/labels.ts";
import type { RowKey } from "./row-server.ts";

export const GENERATION_KEY: RowKey = "generation";
export const TRANSFER_KEY: RowKey = "transfer/mark";
export const ROSTER_KEY: RowKey = "roster";
export const COUNT_ALL_KEY: RowKey = "count/all";

export function recordKey(sandboxId: SandboxId): RowKey {
  return `record/${escaped(sandboxId)}`;
}

export function threadRowKey(user: UserId, thread: ThreadId): RowKey {
  return `thread/${threadKeyOf(user, thread)}`;
}

export function homeKey(user: UserId, thread: ThreadId): RowKey {
  return `home/${threadKeyOf(user, thread)}`;
}

export function leaseKey(leaseId: string): RowKey {
  return `lease/${escaped(leaseId)}`;
}

export function sessionKey(instance: InstanceId): RowKey {
  return `session/${escaped(instance)}`;
}

export function beatKey(instance: InstanceId): RowKey {
  return `beat/${escaped(instance)}`;
}

export function tombstoneKey(sandboxId: SandboxId): RowKey {
  return `tombstone/${escaped(sandboxId)}`;
}

export function userCountKey(user: UserId): RowKey {
  return `count/user/${escaped(user)}`;
}

export function engineCountKey(engine: string): RowKey {
  return `count/engine/${escaped(engine)}`;
}

export function recoveredKey(engine: string): RowKey {
  return `recovered/${escaped(engine)}`;
}

export function awaitedKey(engine: string): RowKey {
  return `awaited/${escaped(engine)}`;
}

/** Names of entries are short, printable ASCII already. */
export function entryKey(name: string): RowKey {
  return `entry/${name}`;
}

/** The part before the first slash. */
export function tableOf(key: RowKey): string {
  const end = key.indexOf("/");
  return end < 0 ? key : key.slice(0, end);
}

/** The id of a row of a table. */
export function idOf(key: RowKey): string {
  return decodeURIComponent(key.slice(key.indexOf("/") + 1));
}

function escaped(id: string): string {
  return encodeURIComponent(id.toWellFormed());
}
