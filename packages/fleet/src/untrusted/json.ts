/**
 * Parses JSON from a sandbox.
 *
 * Invariants
 * - It parses a piece at a time and yields in between: a long text cannot block the event loop.
 * - The result equals that of `JSON.parse` for the same bytes, value by value, and invalid input is refused alike. A
 *   long text with a number of over 64 characters is refused too.
 * - Nesting is at most `DEPTH_MAX` and the number of values is limited; beyond that, reading stops.
 * - A list is checked entry by entry and refused at its first wrong one: a schema that explains every wrong entry of a
 *   long list would take seconds.
 *
 * It is written by hand because incremental parsers of the registry (@streamparser/json) cost the same per byte and
 * have no limit for depth or values. `json-fuzz.test.ts` compares it with `JSON.parse`.
 */

import { unfinishedBytes } from "@sandlot/contract";
import { z } from "zod";
import { nextTurn } from "../world/system-world.ts";
import { tryJson } from "../world/try-json.ts";

/** Our responses are four deep. Encoding an error fails when values are nested by the thousand. */
const DEPTH_MAX = 32;
/** Up to this size `JSON.parse` takes a millisecond or two for any content. */
const AT_ONCE_BYTES = 64 * 1024;
/** How much of a longer text is parsed per turn. At least 8, so that every step makes progress. */
const PIECE_BYTES = 128 * 1024;
/** Entries of a list checked per turn. */
const ENTRIES_AT_ONCE = 1_000;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const LETTER_U = 0x75;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_ARRAY = 0x5b;
const CLOSE_ARRAY = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
const WORD_PATTERN = /^(?:true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)$/;
const WORD_MAX_BYTES = 64;

/** The value, or `undefined` for an invalid or forbidden text. */
export function readJson(body: Buffer, maxValues: number): Promise<unknown> | unknown {
  if (body.length > AT_ONCE_BYTES) return readJsonInPieces(body, maxValues);
  return isModest(body, maxValues) ? tryJson(body.toString("utf8")) : undefined;
}

/** The same for a naturally short text: a line, a frame. A longer one is `undefined`. */
export function readShortJson(body: Buffer, maxValues = 256): unknown {
  return body.length <= AT_ONCE_BYTES && isModest(body, maxValues) ? tryJson(body.toString("utf8")) : undefined;
}

/** The value parsed by a schema; `undefined` when it does not fit. */
export async function checked<T>(schema: z.ZodType<T>, value: unknown): Promise<T | undefined> {
  const inner = schema instanceof z.ZodDefault ? (schema.unwrap() as z.ZodType) : schema;
  if (inner instanceof z.ZodArray && Array.isArray(value))
    return (await checkedList(inner.element as z.ZodType, value)) as T | undefined;
  if (inner instanceof z.ZodObject && isRecord(value)) {
    const lists = Object.entries(inner.shape as Readonly<Record<string, z.ZodType>>).filter(
      ([name, field]) => isList(field) && Array.isArray(value[name]),
    );
    if (lists.length > 0) return checkedFields(inner, value, lists) as Promise<T | undefined>;
  }
  const parsed = schema.safeParse(value);
  return parsed.success ? parsed.data : undefined;
}

function isList(field: z.ZodType): boolean {
  return field instanceof z.ZodArray || (field instanceof z.ZodDefault && field.unwrap() instanceof z.ZodArray);
}

async function checkedFields(
  schema: z.ZodObject,
  value: Readonly<Record<string, unknown>>,
  lists: readonly (readonly [string, z.ZodType])[],
): Promise<unknown> {
  const done: Record<string, unknown> = {};
  for (const [name, field] of lists) {
    done[name] = await checked(field, value[name]);
    if (done[name] === undefined) return undefined;
  }
  const empty = Object.fromEntries(lists.map(([name]) => [name, []]));
  const parsed = schema.safeParse({ ...value, ...empty });
  return parsed.success ? { ...parsed.data, ...done } : undefined;
}

async function checkedList(element: z.ZodType, values: readonly unknown[]): Promise<readonly unknown[] | undefined> {
  const done: unknown[] = [];
  for (const value of values) {
    const parsed = element.safeParse(value);
    if (!parsed.success) return undefined;
    done.push(parsed.data);
    if (done.length % ENTRIES_AT_ONCE === 0) await nextTurn();
  }
  return done;
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Whether nesting and number of values are within the limits. Invalid JSON may pass. */
function isModest(body: Buffer, maxValues: number): boolean {
  let depth = 0;
  let values = 0;
  for (let at = 0; at < body.length; at++) {
    const byte = body[at];
    if (byte === QUOTE) at = endOfString(body, at + 1);
    else if (byte === OPEN_ARRAY || byte === OPEN_OBJECT) {
      values++;
      if (++depth > DEPTH_MAX) return false;
    } else if (byte === CLOSE_ARRAY || byte === CLOSE_OBJECT) depth--;
    else if (byte === COMMA && ++values > maxValues) return false;
  }
  return values <= maxValues;
}

/** The position of the closing quote, or the end. */
function endOfString(body: Buffer, from: number): number {
  for (let at = from; at < body.length; at++) {
    if (body[at] === BACKSLASH) at++;
    else if (body[at] === QUOTE) return at;
  }
  return body.length;
}

/** For a text of any length. */
export async function readJsonInPieces(body: Buffer, maxValues: number, pieceBytes = PIECE_BYTES): Promise<unknown> {
  const pieces = new JsonPieces(body, maxValues, pieceBytes);
  while (!pieces.readOn()) await nextTurn();
  return pieces.value;
}

class NotJson extends Error {}

interface Open {
  readonly value: unknown[] | Record<string, unknown>;
  /** Of an object: the name of the next value. */
  key: string | null;
}

/** Parses one JSON text, a piece at a time. */
class JsonPieces {
  readonly #body: Buffer;
  readonly #maxValues: number;
  readonly #pieceBytes: number;
  readonly #open: Open[] = [];
  #at = 0;
  #values = 0;
  /** The text of an unfinished string. */
  #text: string | null = null;
  #nextQuote = -1;
  #nextBackslash = -1;
  /** What may come: a value or name, that or the end of what was opened, a name's colon, what follows a value. */
  #wants: "value" | "first" | "colon" | "behind" = "value";
  value: unknown = undefined;

  constructor(body: Buffer, maxValues: number, pieceBytes: number) {
    this.#body = body;
    this.#maxValues = maxValues;
    this.#pieceBytes = pieceBytes;
  }

  /** Returns whether everything is read. */
  readOn(): boolean {
    const until = this.#at + this.#pieceBytes;
    try {
      while (this.#at < until) if (this.#take()) return true;
      return false;
    } catch (error) {
      if (!(error instanceof NotJson || error instanceof SyntaxError)) throw error;
      this.value = undefined;
      return true;
    }
  }

  #take(): boolean {
    if (this.#text !== null) {
      this.#takeText();
      return false;
    }
    const byte = this.#body[this.#at];
    if (byte === undefined) {
      if (this.#open.length > 0 || this.#wants !== "behind") throw new NotJson();
      return true;
    }
    if (isSpace(byte)) this.#at++;
    else if (this.#wants === "colon") this.#takeColon(byte);
    else if (this.#wants === "behind") this.#takeBehind(byte);
    else if (this.#wants === "first" && (byte === CLOSE_ARRAY || byte === CLOSE_OBJECT)) this.#close(byte);
    else if (byte === QUOTE) this.#beginText();
    else if (this.#isNameWanted()) throw new NotJson();
    else if (byte === OPEN_ARRAY || byte === OPEN_OBJECT) this.#begin(byte === OPEN_ARRAY ? [] : {});
    else this.#takeWord();
    return false;
  }

  #isNameWanted(): boolean {
    const open = this.#open.at(-1);
    return open !== undefined && !Array.isArray(open.value) && open.key === null;
  }

  #begin(value: Open["value"]): void {
    if (this.#open.length >= DEPTH_MAX) throw new NotJson();
    this.#put(value);
    this.#open.push({ value, key: null });
    this.#at++;
    this.#wants = "first";
  }

  #close(byte: number): void {
    const open = this.#open.pop();
    if (open === undefined || open.key !== null || Array.isArray(open.value) !== (byte === CLOSE_ARRAY))
      throw new NotJson();
    this.#at++;
    this.#wants = "behind";
  }

  #takeBehind(byte: number): void {
    if (byte === CLOSE_ARRAY || byte === CLOSE_OBJECT) this.#close(byte);
    else if (byte === COMMA && this.#open.length > 0) {
      this.#at++;
      this.#wants = "value";
    } else throw new NotJson();
  }

  #beginText(): void {
    this.#at++;
    this.#text = "";
  }

  /** Up to its closing quote, or a piece that ends between two characters. */
  #takeText(): void {
    const body = this.#body;
    const start = this.#at;
    const until = start + this.#pieceBytes;
    let at = start;
    for (;;) {
      if (this.#nextQuote < at) this.#nextQuote = indexOrEnd(body, QUOTE, at);
      if (this.#nextBackslash < at) this.#nextBackslash = indexOrEnd(body, BACKSLASH, at);
      if (this.#nextQuote < this.#nextBackslash || this.#nextBackslash >= Math.min(until, body.length)) break;
      at = this.#nextBackslash + (body[this.#nextBackslash + 1] === LETTER_U ? 6 : 2);
      if (at >= until) break;
    }
    if (at < until && this.#nextQuote < this.#nextBackslash && this.#nextQuote < until) {
      this.#addText(start, this.#nextQuote);
      this.#at = this.#nextQuote + 1;
      this.#endText();
      return;
    }
    const cut = at >= until ? at : characterStart(body, until);
    if (cut >= body.length) throw new NotJson();
    this.#addText(start, cut);
    this.#at = cut;
  }

  #addText(from: number, to: number): void {
    this.#text += JSON.parse(`"${this.#body.toString("utf8", from, to)}"`) as string;
  }

  #endText(): void {
    const text = this.#text ?? "";
    this.#text = null;
    const open = this.#open.at(-1);
    if (open === undefined || Array.isArray(open.value) || open.key !== null) {
      this.#put(text);
      this.#wants = "behind";
      return;
    }
    open.key = text;
    this.#wants = "colon";
  }

  #takeColon(byte: number): void {
    if (byte !== COLON) throw new NotJson();
    this.#at++;
    this.#wants = "value";
  }

  #takeWord(): void {
    let end = this.#at;
    const most = this.#at + WORD_MAX_BYTES;
    while (end < most && isWordByte(this.#body[end])) end++;
    const word = this.#body.toString("latin1", this.#at, end);
    if (!WORD_PATTERN.test(word)) throw new NotJson();
    this.#put(JSON.parse(word));
    this.#at = end;
    this.#wants = "behind";
  }

  #put(value: unknown): void {
    if (++this.#values > this.#maxValues) throw new NotJson();
    const open = this.#open.at(-1);
    if (open === undefined) this.value = value;
    else if (Array.isArray(open.value)) open.value.push(value);
    else {
      setOwn(open.value, open.key ?? "", value);
      open.key = null;
    }
  }
}

function indexOrEnd(body: Buffer, byte: number, from: number): number {
  const at = body.indexOf(byte, from);
  return at < 0 ? body.length : at;
}

/** As `JSON.parse` does: a name never sets the object's prototype. */
function setOwn(object: Record<string, unknown>, name: string, value: unknown): void {
  if (name !== "__proto__") object[name] = value;
  else Object.defineProperty(object, name, { value, writable: true, enumerable: true, configurable: true });
}

/** The start of the character that contains the byte at `at`. An invalid byte is its own start. */
function characterStart(body: Buffer, at: number): number {
  return at >= body.length ? body.length : at - unfinishedBytes(body, at);
}

function isSpace(byte: number | undefined): boolean {
  return byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;
}

/** Letters, digits, and the signs of numbers. */
function isWordByte(byte: number | undefined): boolean {
  if (byte === undefined) return false;
  return (
    (byte >= 0x30 && byte <= 0x39) ||
    (byte >= 0x61 && byte <= 0x7a) ||
    byte === 0x2d ||
    byte === 0x2b ||
    byte === 0x2e ||
    byte === 0x45
  );
}
