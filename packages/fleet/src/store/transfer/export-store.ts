/**
 * Exports a store. Two kinds of export:
 *
 * - whole: the store gets the mark `moved` and no session is left. From then on it does not change, so the rows are
 *   everything it will ever know. The mark stays after the export: two stores with the same sandboxes would end each
 *   other's. `sandlot store resume` removes it.
 * - while running: no mark, and no records. A record that is older than its sandbox is worse than none: a fleet that
 *   trusted it would end sandboxes that are held, or start a second one for a thread. Such a file brings tombstones,
 *   the homes of threads and the generation counter; the sandboxes come back through recovery, as after a loss of the store.
 *
 * A whole export ends with a look at the mark and the epoch. If either has changed, the file has no last line.
 *
 * An export judges peers like an instance (rule 6): a session is dead when its process is known to be gone, or when its
 * beat has not changed for a whole lifetime. A store that does not answer fails the export, so the view is unbroken.
 */

import { type InstanceId, SandlotError } from "@sandlot/contract";
import { sleep } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import type { SandboxRecord } from "../record.ts";
import type { Session, Store } from "../store.ts";
import type { TransferRow } from "./store-transfer.ts";

/** Rows in memory at a time. */
const PAGE_ROWS = 500;
/** A hint only: a person decides when to export again. */
const RETRY_AFTER_MS = 1_000;

export interface ExportRequest {
  readonly world: World;
  readonly store: Store;
  /** The store in errors, without secrets. */
  readonly description: string;
  readonly lifetimeMs: number;
  readonly isWhole: boolean;
  /** The engine of a record that an older version wrote without one; `null`: unknown. */
  engineOf(record: SandboxRecord): Promise<string | null>;
  readonly signal: AbortSignal;
}

export interface ExportHeader {
  readonly id: string;
  readonly store: string;
  /** The former store's clock. */
  readonly at: number;
  readonly epoch: string;
  readonly generation: number;
  readonly isWhole: boolean;
}

/**
 * A row of the store, a text that gateways share, or an engine: `isRecovered` says that the export has everything that
 * there is to know of it.
 */
export type ExportedRow =
  | TransferRow
  | { readonly kind: "entry"; readonly name: string; readonly body: string }
  | { readonly kind: "engine"; readonly engine: string; readonly isRecovered: boolean };

/** The destination of an export. */
export interface ExportSink {
  begin(header: ExportHeader): Promise<void>;
  write(rows: readonly ExportedRow[]): Promise<void>;
  /** The sink has everything, also after a crash. */
  end(): Promise<void>;
}

/** Resolves with the number of rows. When it fails, the store serves as before. */
export async function exportStore(request: ExportRequest, sink: ExportSink): Promise<number> {
  const { world, store, isWhole } = request;
  if (!isWhole) return writeAll(request, `while-running-${world.randomHex(8)}`, sink);
  const wanted = { state: "moved", id: world.randomHex(16) } as const;
  const mark = await store.beginTransfer(wanted);
  if (mark === null || mark.state !== "moved") throw moving(mark?.since ?? 0);
  const isOurs = mark.id === wanted.id;
  try {
    await awaitNoSession(request);
    return await writeAll(request, mark.id, sink);
  } catch (error) {
    // The mark of an earlier export stays: its file may be in use.
    if (isOurs) await store.endTransfer(wanted);
    throw error;
  }
}

function moving(since: number): SandlotError {
  return new SandlotError("store_moved", { state: "importing", since });
}

async function writeAll(request: ExportRequest, id: string, sink: ExportSink): Promise<number> {
  const { store, isWhole, signal } = request;
  const { epoch, generation, now } = await store.overview();
  await sink.begin({ id, store: store.kind, at: now, epoch, generation, isWhole });
  const engines = new Set<string>();
  let written = isWhole ? await writeEntries(request, sink) : 0;
  let after: string | null = null;
  do {
    signal.throwIfAborted();
    const page = await store.exportPage(after, PAGE_ROWS);
    const rows: TransferRow[] = [];
    for (const row of page.rows) {
      const named = row.kind === "record" ? { ...row, record: await withEngine(request, row.record) } : row;
      if (named.kind === "home") engines.add(named.home.engine);
      else if (named.kind === "record") engines.add(named.record.engine);
      if (isWhole || named.kind !== "record") rows.push(named);
    }
    await sink.write(rows);
    written += rows.length;
    after = page.next;
  } while (after !== null);
  for (const engine of isWhole ? engines : []) {
    const { recovering } = await store.meta(engine);
    await sink.write([{ kind: "engine", engine, isRecovered: !recovering }]);
  }
  if (isWhole) await requireUnchanged(request, id, epoch);
  await sink.end();
  return written;
}

/** A store that lost writes, or was opened again, has changed meanwhile: the file would miss sandboxes. */
async function requireUnchanged({ store }: ExportRequest, id: string, begun: string): Promise<void> {
  const { epoch, transfer } = await store.overview();
  if (epoch === begun && transfer?.state === "moved" && transfer.id === id) return;
  const problem =
    epoch === begun
      ? "it was opened to instances again during the export; export again"
      : "it lost its last writes during the export, and its records with them; export again when its fleet has recovered";
  throw new SandlotError("store_unavailable", { operation: "export", problem, retryAfterMs: RETRY_AFTER_MS });
}

/** Only in a whole export: a key that is revoked after it must not come back. */
async function writeEntries({ store }: ExportRequest, sink: ExportSink): Promise<number> {
  const entries = (await store.entries?.list("")) ?? [];
  await sink.write(entries.map(({ name, body }) => ({ kind: "entry", name, body })));
  return entries.length;
}

async function withEngine({ engineOf }: ExportRequest, record: SandboxRecord): Promise<SandboxRecord> {
  return record.engine === "" ? { ...record, engine: (await engineOf(record)) ?? "" } : record;
}

/** Ends dead sessions. Rejects with `store_in_use` as soon as one is known to be alive. */
async function awaitNoSession({ world, store, description, lifetimeMs, signal }: ExportRequest): Promise<void> {
  const first = new Map<InstanceId, { readonly beat: number; readonly at: number }>();
  for (;;) {
    signal.throwIfAborted();
    const sessions = await store.sessions();
    if (sessions.length === 0) return;
    const now = world.monotonicMs();
    const alive: Session[] = [];
    for (const session of sessions) {
      const { instance, beat, identity } = session;
      const liveness = world.processLiveness(identity);
      const seen = first.get(instance);
      if (seen === undefined) first.set(instance, { beat, at: now });
      if (liveness === "alive" || (seen !== undefined && seen.beat !== beat)) alive.push(session);
      else if (liveness === "dead" || (seen !== undefined && now - seen.at >= lifetimeMs))
        await store.endDeadSession(instance, beat);
    }
    if (alive.length > 0) throw inUse(description, alive);
    await sleep(world, lifetimeMs / 16, signal);
  }
}

function inUse(store: string, sessions: readonly Session[]): SandlotError {
  const instances = sessions.map(({ instance, identity }) => `${instance} (process ${identity.pid})`);
  return new SandlotError("store_in_use", { store, instances });
}
