/** Calls as the arguments that the scripts expect (`scripts.ts`). In Redis a row key begins with `:`, an id with `#`. */

import type { JoinedCommit } from "../rows/commit-gatherer.ts";
import { KEPT_TABLES, type RowKey } from "../rows/row-server.ts";

/** The part of a commit in the ordinary tables, or in the kept ones. */
interface Part {
  readonly keys: string[];
  readonly seqs: string[];
  /** Keys and bodies by turns. */
  readonly writes: string[];
  readonly deletions: string[];
}

const KEPT_PREFIXES = KEPT_TABLES.map((table) => `${table}/`);

export function commitArguments(commit: JoinedCommit, channel: string): string[] {
  const { ids, epoch, seen, seenAt, notAfter, reads, writes, topics, isDurable } = commit;
  const [live, kept] = [newPart(), newPart()];
  const partOf = (key: RowKey) => (KEPT_PREFIXES.some((prefix) => key.startsWith(prefix)) ? kept : live);
  for (const [key, seq] of reads) {
    const part = partOf(key);
    part.keys.push(rowField(key));
    part.seqs.push(String(seq));
  }
  for (const [key, body] of writes) {
    if (body === null) partOf(key).deletions.push(rowField(key));
    else partOf(key).writes.push(rowField(key), body);
  }
  return [
    epoch,
    String(Math.floor(seenAt)),
    String(Math.floor(notAfter)),
    isDurable ? "1" : "0",
    channel,
    String(seen.length),
    String(topics.length),
    ...countsOf(live),
    ...countsOf(kept),
    String(ids.length),
    ...ids.map(commitField),
    ...seen.map(commitField),
    ...topics,
    ...textsOf(live),
    ...textsOf(kept),
  ];
}

/** The name of a row in Redis. */
export function rowField(key: RowKey): string {
  return `:${key}`;
}

function commitField(id: string): string {
  return `#${id}`;
}

function newPart(): Part {
  return { keys: [], seqs: [], writes: [], deletions: [] };
}

function countsOf({ keys, writes, deletions }: Part): string[] {
  return [String(keys.length), String(writes.length / 2), String(deletions.length)];
}

function textsOf({ keys, seqs, writes, deletions }: Part): string[] {
  return [...keys, ...seqs, ...writes, ...deletions];
}
