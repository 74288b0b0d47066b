/**
 * Imports an export into a new store.
 *
 * - The mark `importing` carries the id of the export. So a repeated import of the same file goes on where it broke off,
 *   and another file is refused.
 * - The mark also names the process (`importer`). A repeated import takes it over, and the process before is refused at
 *   its next step. So of processes that import the same file at once, the last one goes on alone.
 * - A store that loses writes begins a new epoch, without the imported records. The import then fails, and is repeated.
 * - The check that the store is unused comes twice: with the mark, and after it. A store of several hosts may learn of
 *   a session late; after the mark no session can begin.
 * - An import that fails before its first write removes its mark: a store that turns out to be in use serves on. After
 *   that nothing is undone. The mark keeps instances out until the import is repeated or the store removed.
 */

import { SandlotError } from "@sandlot/contract";
import type { Store } from "../store.ts";
import type { ExportedRow, ExportHeader } from "./export-store.ts";
import type { ExportPage, ImportClaim, ImportRefusal, TransferRow } from "./store-transfer.ts";

/** One transaction each: a shared store sends them in one message. */
const PAGE_ROWS = 100;
/** A hint only: a person decides when to import again. */
const RETRY_AFTER_MS = 1_000;

export interface ImportRequest {
  readonly store: Store;
  /** Random: names this process in the mark. */
  readonly importer: string;
  /** The store in errors, without secrets. */
  readonly description: string;
  readonly header: ExportHeader;
  /** A sandbox without an engine, if there is one (`checkFile`). */
  readonly withoutEngine: string | null;
  /** In the order of the export. */
  readonly rows: AsyncIterable<ExportedRow>;
  /** The file in errors. */
  readonly file: string;
  readonly signal: AbortSignal;
}

/** Resolves with how many entries the store could not take: a store of one host has none. */
export async function importStore(request: ImportRequest): Promise<number> {
  const isNew = await claim(request);
  const progress = { hasWritten: false };
  try {
    return await writeAll(request, progress);
  } catch (error) {
    // A process that has taken over keeps the mark: it names that one.
    if (isNew && !progress.hasWritten && (await problemOf(request.store)) === null) await unmark(request);
    throw error;
  }
}

async function writeAll(request: ImportRequest, progress: { hasWritten: boolean }): Promise<number> {
  const { store, signal } = request;
  const claim = claimOf(request);
  const recovered: string[] = [];
  let leftOut = 0;
  let page: TransferRow[] = [];
  const send = async () => {
    signal.throwIfAborted();
    const answer = await written(progress, store.importRows(claim, page), ({ kind }) => kind === "imported");
    if (isRefusal(answer)) throw refused(request, answer);
    if (answer.kind === "clash") throw clash(request, answer.sandboxId);
    if (answer.kind === "used") throw notEmpty(request, `an instance of engine ${answer.engine} has used it before`);
    if (answer.kind === "rehomed")
      throw notEmpty(request, `thread ${answer.home.thread} lives on another engine than ${answer.home.engine} there`);
    page = [];
  };
  for await (const row of request.rows) {
    if (row.kind === "engine") {
      if (row.isRecovered) recovered.push(row.engine);
    } else if (row.kind === "entry") {
      if (!(await putEntry(request, progress, row))) leftOut += 1;
    } else if (page.push(row) === PAGE_ROWS) await send();
  }
  await send();
  const answer = await store.finishImport({ ...claim, generation: request.header.generation, recovered });
  if (isRefusal(answer)) throw refused(request, answer);
  return leftOut;
}

/** False: this store has no entries. An entry that is there already is the same, from a try before. */
async function putEntry(
  request: ImportRequest,
  progress: { hasWritten: boolean },
  { name, body }: { name: string; body: string },
): Promise<boolean> {
  const { entries } = request.store;
  if (entries === null) return false;
  const put = entries.put(name, body, null, claimOf(request));
  const answer = await written(progress, put, ({ kind }) => kind === "put");
  if (isRefusal(answer)) throw refused(request, answer);
  const { kind } = answer;
  if (kind === "put" || (kind === "changed" && (await entries.get(name))?.body === body)) return true;
  throw notEmpty(request, kind === "full" ? "it has no room for more entries" : `it has another entry ${name} already`);
}

/** A write without an answer may have taken effect. */
async function written<T>(progress: { hasWritten: boolean }, write: Promise<T>, isDone: (answer: T) => boolean) {
  const hadWritten = progress.hasWritten;
  progress.hasWritten = true;
  const answer = await write;
  progress.hasWritten = hadWritten || isDone(answer);
  return answer;
}

/** Marks the store and makes sure that it is unused. True: the mark is new. */
async function claim(request: ImportRequest): Promise<boolean> {
  const { store, header, withoutEngine, file } = request;
  if (store.isShared && withoutEngine !== null) {
    const problem = `its sandbox ${withoutEngine} names no engine, and several can use the new store; end it, export again`;
    throw new SandlotError("export_invalid", { file, problem });
  }
  const mark = await store.beginTransfer({ state: "importing", ...claimOf(request) });
  if (mark === null) throw notEmpty(request, await usedBy(store));
  if (mark.state === "moved") throw notEmpty(request, "it was exported itself and still has its records");
  if (mark.id !== header.id) throw notEmpty(request, "the import of another file has begun and not ended");
  if ((mark.attempt ?? 1) > 1) return false;
  const problem = await problemOf(store);
  if (problem === null) return true;
  await unmark(request);
  throw notEmpty(request, problem);
}

function unmark(request: ImportRequest): Promise<boolean> {
  return request.store.endTransfer({ state: "importing", ...claimOf(request) });
}

function claimOf({ header, importer }: ImportRequest): ImportClaim {
  return { id: header.id, importer };
}

async function usedBy(store: Store): Promise<string> {
  return (await problemOf(store)) ?? "an instance has used it before, or an import into it has ended";
}

/** What the store has already; `null`: nothing that an instance or a gateway has left there. */
async function problemOf(store: Store): Promise<string | null> {
  const sessions = (await store.sessions()).length;
  const records = Object.values(await store.census()).reduce((sum, count) => sum + count, 0);
  if (sessions > 0 || records > 0) return `it has ${records} sandboxes and ${sessions} instances`;
  const entries = (await store.entries?.list(""))?.length ?? 0;
  if (entries > 0) return `it has ${entries} entries of gateways`;
  return (await hasHomes(store)) ? "it has homes of threads" : null;
}

async function hasHomes(store: Store): Promise<boolean> {
  for (let after: string | null = null; ; ) {
    const { rows, next }: ExportPage = await store.exportPage(after, 1);
    if (rows.some(({ kind }) => kind === "home")) return true;
    if (next === null) return false;
    after = next;
  }
}

function notEmpty({ description }: ImportRequest, problem: string): SandlotError {
  return new SandlotError("store_not_empty", { store: description, problem });
}

function isRefusal(answer: { readonly kind: string }): answer is ImportRefusal {
  return answer.kind === "unmarked" || answer.kind === "taken-over" || answer.kind === "new-epoch";
}

function refused(request: ImportRequest, { kind }: ImportRefusal): SandlotError {
  if (kind === "unmarked") return notEmpty(request, "another process has ended this import meanwhile");
  if (kind === "taken-over") return notEmpty(request, "another process imports the same file, and goes on alone");
  const problem =
    "it lost its last writes during the import, and what was imported with them; run the same import again, " +
    "no instance can use the store before";
  return new SandlotError("store_unavailable", { operation: "import", problem, retryAfterMs: RETRY_AFTER_MS });
}

function clash({ file }: ImportRequest, sandboxId: string): SandlotError {
  const problem = `it has two records for the thread of sandbox ${sandboxId}; the new store stays closed, remove it`;
  return new SandlotError("export_invalid", { file, problem });
}
