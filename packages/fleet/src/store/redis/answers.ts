/** The answers of the scripts, checked and typed, and the cursors of scans. */

import type { Epoch } from "@sandlot/contract";
import type { JoinedAnswer } from "../rows/commit-gatherer.ts";
import type { Cursor, Page, ReadAnswer, Row, RowKey } from "../rows/row-server.ts";

export function parseCommit(answer: unknown): JoinedAnswer {
  const [kind, time, value, ...rest] = listOf(answer);
  const now = numberOf(time);
  switch (kind) {
    case "committed":
      return { kind, seq: numberOf(value), now };
    case "conflict":
      return { kind, rows: rowsOf([value, ...rest]), now };
    case "new-epoch":
      return { kind, epoch: epochOf(value), now };
    case "rewound":
    case "late":
      return { kind, now };
    case "split":
      return { kind };
    default:
      throw unexpected(kind);
  }
}

export function parseRead(answer: unknown, keys: readonly RowKey[]): ReadAnswer {
  const [now, epoch, ...rest] = listOf(answer);
  if (rest.length !== 2 * keys.length) throw unexpected(`${rest.length} values for ${keys.length} rows`);
  const rows = keys.map((key, index) => ({
    key,
    seq: numberOf(rest[2 * index]),
    body: bodyOf(rest[2 * index + 1]),
  }));
  return { rows, epoch: epochOf(epoch), now: numberOf(now) };
}

export function parseEpoch(answer: unknown): Epoch {
  return epochOf(listOf(answer)[1]);
}

/** `null`: the cursor is too old. */
export function parsePage(answer: unknown): Page | null {
  const list = listOf(answer);
  const [now, epoch, more, seq, key, base, kind, ...rest] = list;
  if (list.length === 2) return null;
  const cursor = JSON.stringify([epochOf(epoch), textOf(seq), textOf(base), textOf(kind), textOf(key)]);
  return { rows: rowsOf(rest), cursor, more: more === 1, epoch: epochOf(epoch), now: numberOf(now) };
}

const FIRST_PAGE = ["", "0", "0", "full", ""];

/** The arguments of the script for this cursor. `null`: it is not one of ours. */
export function cursorFrom(cursor: Cursor | null): readonly string[] | null {
  if (cursor === null) return FIRST_PAGE;
  let parts: unknown;
  try {
    parts = JSON.parse(cursor);
  } catch {
    return null;
  }
  if (!Array.isArray(parts) || parts.length !== FIRST_PAGE.length || parts[0] === "") return null;
  const texts = parts.filter((part): part is string => typeof part === "string");
  const [, seq = "", base = ""] = texts;
  return texts.length === parts.length && /^\d+$/.test(seq) && /^\d+$/.test(base) ? texts : null;
}

/** Triples of key, seq and body. */
function rowsOf(values: readonly unknown[]): Row[] {
  if (values.length % 3 !== 0) throw unexpected(`${values.length} values for rows`);
  const rows: Row[] = [];
  for (let index = 0; index < values.length; index += 3)
    rows.push({ key: keyOf(values[index]), seq: numberOf(values[index + 1]), body: bodyOf(values[index + 2]) });
  return rows;
}

/** A row key begins with a colon in Redis. */
function keyOf(value: unknown): RowKey {
  const field = textOf(value);
  if (!field.startsWith(":")) throw unexpected(value);
  return field.slice(1);
}

function listOf(answer: unknown): readonly unknown[] {
  if (Array.isArray(answer)) return answer;
  throw unexpected(answer);
}

/** A number, or the text of a score: `1.79e+15` on some servers. */
function numberOf(value: unknown): number {
  const number = typeof value === "string" && value !== "" ? Number(value) : value;
  if (typeof number === "number" && Number.isSafeInteger(number) && number >= 0) return number;
  throw unexpected(value);
}

function textOf(value: unknown): string {
  if (typeof value === "string") return value;
  throw unexpected(value);
}

function bodyOf(value: unknown): string | null {
  return value === null ? null : textOf(value);
}

function epochOf(value: unknown): Epoch {
  const text = textOf(value);
  if (text === "") throw unexpected(text);
  return text as Epoch;
}

function unexpected(value: unknown): Error {
  return new Error(`an answer that no script of the store gives: ${String(value).slice(0, 80)}`);
}
