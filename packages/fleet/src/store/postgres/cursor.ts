/**
 * Where a scan has come to.
 *
 *   all: pages of everything, by key         changes: pages of what was written since a transaction, by its id and key
 *   (start) ──▶ all, key k ──▶ … ──▶ changes from xid x ──▶ changes at (x', k') ──▶ … ──▶ changes from a later xid
 *
 * While pages follow each other, `next` is where the scan after them begins: the lowest transaction that was under way at
 * the first page.
 */

import { z } from "zod";
import type { Cursor } from "../rows/row-server.ts";

export interface Position {
  readonly phase: "all" | "changes";
  readonly incarnation: string;
  readonly xid: string;
  readonly key: string;
  /** `null`: the first page of changes decides it. */
  readonly next: string | null;
}

const XID = z.string().regex(/^\d{1,20}$/);
const CURSOR = z.tuple([z.enum(["all", "changes"]), z.string(), XID, z.string(), XID.nullable()]);

export function cursorText({ phase, incarnation, xid, key, next }: Position): Cursor {
  return JSON.stringify([phase, incarnation, xid, key, next]);
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
  const [phase, incarnation, xid, key, next] = parsed.data;
  return { phase, incarnation, xid, key, next };
}

/** Whether a scan from here still finds every change. `purgedXid`: the last transaction whose deletion markers are gone. */
export function isCurrent(position: Position, incarnation: string, purgedXid: string): boolean {
  const { phase, xid, next } = position;
  if (position.incarnation !== incarnation) return false;
  const from = phase === "all" ? next : xid;
  return from !== null && BigInt(from) > BigInt(purgedXid);
}
