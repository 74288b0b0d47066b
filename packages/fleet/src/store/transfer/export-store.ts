/**
 * Exports a store. Two kinds of export:
 *
 * - whole: the store gets the mark `moved` and no session is left. From then on it does not change, so the rows are
 *   everything it will ever know. The mark stays after the export: two stores with the same sandboxes would end each
 *   other's. `sandlot store resume` removes it.
 * - while running: no mark, and no records. A record that is older than its sandbox is worse than none: a fleet that
 *   trusted it would end sandboxes that are held, or start a second one for a thread. Such a file brings tombstones and
 *   the generation counter; the sandboxes come back through recovery, as after a loss of the store.
 *
 * An export judges peers like an instance (rule 6): a session is dead when its process is known to be gone, or when its
 * beat has not changed for a whole lifetime. A store that does not answer fails the export, so the view is unbroken.
 */

import { type InstanceId, SandlotError } from "@sandlot/contract";
import { sleep } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import type { Session, Store, TransferRow } from "../store.ts";

/** Rows in memory at a time. */
const PAGE_ROWS = 500;

export interface ExportRequest {
  readonly world: World;
  readonly store: Store;
  /** The store in errors, without secrets. */
  readonly description: string;
  readonly lifetimeMs: number;
  readonly isWhole: boolean;
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

/** The destination of an export. */
export interface ExportSink {
  begin(header: ExportHeader): Promise<void>;
  write(rows: readonly TransferRow[]): Promise<void>;
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

async function writeAll({ store, isWhole, signal }: ExportRequest, id: string, sink: ExportSink): Promise<number> {
  const { epoch, generation, now } = await store.overview();
  await sink.begin({ id, store: store.kind, at: now, epoch, generation, isWhole });
  let written = 0;
  let after: string | null = null;
  do {
    signal.throwIfAborted();
    const page = await store.exportPage(after, PAGE_ROWS);
    await sink.write(page.rows);
    written += page.rows.length;
    after = page.next;
  } while (after !== null && isWhole);
  await sink.end();
  return written;
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
