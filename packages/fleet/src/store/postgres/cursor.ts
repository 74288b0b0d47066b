/**
 * Where a scan has come to.
 *
 *   all: pages of everything, by key         changes: pages of what a snapshot did not show, by transaction and key
 *   (start) ──▶ all, key k ──▶ … ──▶ changes since s ──▶ changes since s, at (x, k) ──▶ … ──▶ changes since a later s
 *
 * While pages follow each other, `next` is where the scan after them begins: the snapshot of the first page. What became
 * visible after it may have been passed by the pages.
 *
 * A snapshot is the server's own text, `xmin:xmax:xip,…`: transactions below `xmin` have ended, those from `xmax` on have
 * not begun, and `xip` names those in between that are under way.
 */

import { z } from "zod";
import type { Cursor } from "../rows/row-server.ts";

export type Snapshot = string;

export interface Position {
  readonly phase: "all" | "changes";
  readonly incarnation: string;
  /** A new one drops rows without markers, so a scan from before would not show that they are gone. */
  readonly epoch: string;
  /** Of changes: those that this snapshot does not show. */
  readonly since: Snapshot | null;
  readonly xid: string;
  readonly key: string;
  /** `null`: the first page of changes decides it. */
  readonly next: Snapshot | null;
}

const XID = z.string().regex(/^\d{1,20}$/);
const SNAPSHOT = z.string().regex(/^\d{1,20}:\d{1,20}:(?:\d{1,20}(?:,\d{1,20})*)?$/);
const CURSOR = z.union([
  z.tuple([z.literal("all"), z.string(), z.string(), z.null(), XID, z.string(), SNAPSHOT]),
  z.tuple([z.literal("changes"), z.string(), z.string(), SNAPSHOT, XID, z.string(), SNAPSHOT.nullable()]),
]);

export function cursorText({ phase, incarnation, epoch, since, xid, key, next }: Position): Cursor {
  return JSON.stringify([phase, incarnation, epoch, since, xid, key, next]);
}

/** `null`: it is none of ours. */
export function parseCursor(text: Cursor): Position | null {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return null;
  }
  const parsed = CURSOR.safeParse(value);
  if (!parsed.success) return null;
  const [phase, incarnation, epoch, since, xid, key, next] = parsed.data;
  return { phase, incarnation, epoch, since, xid, key, next };
}

/** What the server says of itself with every page. */
export interface Present {
  readonly incarnation: string;
  readonly epoch: string;
  /** The last transaction whose deletion markers are gone. */
  readonly purged: string;
}

/** Whether a scan from here still finds every change. */
export function isCurrent({ incarnation, epoch, since, next }: Position, present: Present): boolean {
  if (incarnation !== present.incarnation || epoch !== present.epoch) return false;
  const from = since ?? next;
  // Every transaction below `xmin` was shown, so their markers may be gone.
  return from !== null && BigInt(from.slice(0, from.indexOf(":"))) > BigInt(present.purged);
}
