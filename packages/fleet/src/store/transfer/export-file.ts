/**
 * The file of an export: lines of JSON.
 *
 *   {"sandlot":"store","version":1,"id":…,"store":…,"at":…,"epoch":…,"generation":…,"isWhole":…}
 *   {"tombstone":{…}}      any number of each
 *   {"home":{…}}
 *   {"entry":{"name":"…","body":"…"}}
 *   {"record":{…}}
 *   {"engine":{"id":"…","isRecovered":true}}
 *   {"end":{"rows":N,"sha256":"…"}}
 *
 * The hash is that of all bytes before the last line. A file without that line was cut off, or its export has failed.
 * A reader checks the whole file before it uses a line. Records have the tokens of their sandboxes, entries the secrets of gateways: the file is secret.
 */

import { createHash } from "node:crypto";
import { isRecord, isTombstone } from "../sqlite/rows.ts";
import type { ExportedRow, ExportHeader, ExportSink } from "./export-store.ts";
import type { ThreadHome } from "./store-transfer.ts";

const VERSION = 1;
/** Far more than a record has: a longer line is no export. */
const LINE_MAX = 4 * 1_048_576;

/** A sink that writes the lines of a file. */
export function lineSink(write: (text: string) => Promise<void>): ExportSink {
  const hash = createHash("sha256");
  let rows = 0;
  const put = async (text: string) => {
    hash.update(text);
    await write(text);
  };
  return {
    begin: (header) => put(lineOf({ sandlot: "store", version: VERSION, ...header })),
    async write(page) {
      rows += page.length;
      if (page.length > 0) await put(page.map((row) => lineOf(bodyOf(row))).join(""));
    },
    end: () => write(lineOf({ end: { rows, sha256: hash.digest("hex") } })),
  };
}

function lineOf(value: object): string {
  return `${JSON.stringify(value)}\n`;
}

function bodyOf(row: ExportedRow): object {
  if (row.kind === "engine") return { engine: { id: row.engine, isRecovered: row.isRecovered } };
  if (row.kind === "entry") return { entry: { name: row.name, body: row.body } };
  if (row.kind === "home") return { home: row.home };
  return row.kind === "tombstone" ? { tombstone: row.tombstone } : { record: row.record };
}

/** What is wrong with the content of a file. */
export class BadExport extends Error {
  override readonly name = "BadExport";
}

export interface ExportFile {
  readonly header: ExportHeader;
  /** How many rows of each kind. */
  readonly counts: Readonly<Record<ExportedRow["kind"], number>>;
  /** The first record without an engine, if there is one: only a store of one host can take it. */
  readonly withoutEngine: string | null;
}

/** Checks a whole file. Rejects with `BadExport`. */
export async function checkFile(chunks: AsyncIterable<Buffer>): Promise<ExportFile> {
  const hash = createHash("sha256");
  const counts = { tombstone: 0, home: 0, entry: 0, record: 0, engine: 0 };
  let withoutEngine: string | null = null;
  let header: ExportHeader | null = null;
  let isEnded = false;
  for await (const line of linesOf(chunks)) {
    if (isEnded) throw new BadExport("there is more after its last line");
    const value = parse(line);
    if (header === null) header = toHeader(value);
    else if ("end" in value) {
      checkEnd(
        value.end,
        Object.values(counts).reduce((sum, count) => sum + count, 0),
        hash.digest("hex"),
      );
      isEnded = true;
      continue;
    } else {
      const row = toRow(value);
      counts[row.kind] += 1;
      if (row.kind === "record" && row.record.engine === "") withoutEngine ??= row.record.sandboxId;
    }
    hash.update(line).update("\n");
  }
  if (header === null) throw new BadExport("it is empty");
  if (!isEnded) throw new BadExport("it is cut off: its last line is missing");
  return { header, counts, withoutEngine };
}

/** The rows of a file that was checked. */
export async function* rowsOf(chunks: AsyncIterable<Buffer>): AsyncGenerator<ExportedRow> {
  let isFirst = true;
  for await (const line of linesOf(chunks)) {
    const value = parse(line);
    if ("end" in value) return;
    if (!isFirst) yield toRow(value);
    isFirst = false;
  }
}

async function* linesOf(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let rest: Buffer = Buffer.alloc(0);
  for await (const chunk of chunks) {
    rest = rest.length === 0 ? chunk : Buffer.concat([rest, chunk]);
    let from = 0;
    for (let at = rest.indexOf(0x0a); at >= 0; at = rest.indexOf(0x0a, from)) {
      yield rest.subarray(from, at);
      from = at + 1;
    }
    rest = rest.subarray(from);
    if (rest.length > LINE_MAX) throw new BadExport("it is not an export of a store: a line is too long");
  }
  if (rest.length > 0) throw new BadExport("it is cut off in the middle of a line");
}

type Fields = Readonly<Record<string, unknown>>;

function parse(line: Buffer): Fields {
  try {
    const value: unknown = JSON.parse(line.toString("utf8"));
    if (typeof value === "object" && value !== null) return value as Fields;
  } catch {
    // The same problem as JSON of another form.
  }
  throw new BadExport("it is damaged: a line is not JSON");
}

function toHeader(value: Fields): ExportHeader {
  if (value.sandlot !== "store") throw new BadExport("it is not an export of a store");
  if (value.version !== VERSION)
    throw new BadExport(`it has version ${String(value.version)}, and this program reads version ${VERSION}`);
  const { id, store, at, epoch, generation, isWhole } = value;
  if (typeof id !== "string" || typeof store !== "string" || typeof epoch !== "string")
    throw new BadExport("its first line is damaged");
  if (typeof at !== "number" || typeof generation !== "number" || typeof isWhole !== "boolean")
    throw new BadExport("its first line is damaged");
  return { id, store, at, epoch, generation, isWhole };
}

function toRow({ tombstone, home, entry, record, engine }: Fields): ExportedRow {
  if (isTombstone(tombstone)) return { kind: "tombstone", tombstone };
  if (isHome(home)) return { kind: "home", home };
  if (isEntry(entry)) return { kind: "entry", name: entry.name, body: entry.body };
  if (isRecord(record) && typeof record.engine === "string") return { kind: "record", record };
  if (isEngine(engine)) return { kind: "engine", engine: engine.id, isRecovered: engine.isRecovered };
  throw new BadExport("it is damaged: a line is of no known kind");
}

function isHome(value: unknown): value is ThreadHome {
  const { user, thread, engine } = fieldsOf(value);
  return typeof user === "string" && typeof thread === "string" && typeof engine === "string";
}

function isEntry(value: unknown): value is { readonly name: string; readonly body: string } {
  const { name, body } = fieldsOf(value);
  return typeof name === "string" && typeof body === "string";
}

function isEngine(value: unknown): value is { readonly id: string; readonly isRecovered: boolean } {
  const { id, isRecovered } = fieldsOf(value);
  return typeof id === "string" && typeof isRecovered === "boolean";
}

function fieldsOf(value: unknown): Fields {
  return typeof value === "object" && value !== null ? (value as Fields) : {};
}

function checkEnd(end: unknown, rows: number, sha256: string): void {
  const found = fieldsOf(end);
  if (found.rows !== rows)
    throw new BadExport(`it has ${rows} rows instead of ${String(found.rows)}: some are missing`);
  if (found.sha256 !== sha256) throw new BadExport("it was changed since its export: its checksum differs");
}
