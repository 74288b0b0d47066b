/** Moving to another store: the mark, the rows of an export, and their import. */

import { type EngineRef, type Generation, isSandlotError, type SandboxId, type ThreadId } from "@sandlot/contract";
import type { ReadyRecord, SandboxRecord } from "../../store/record.ts";
import type { Store } from "../../store/store.ts";
import type { TransferRow } from "../../store/transfer/store-transfer.ts";
import { ENGINE, NO_LIMITS, type Stage, type StoreCase, takeOf, USER } from "./stage.ts";

const MOVED = { state: "moved", id: "export-1" } as const;
const CLAIM = { id: "export-1", importer: "process-1" } as const;
const IMPORTING = { state: "importing", ...CLAIM } as const;

const ALL = { generation: 1, recovered: [ENGINE] } as const;

export const movingCases: readonly StoreCase[] = [
  {
    name: "a store with a mark begins no session, and keeps the present ones",
    async run(stage) {
      const { store, expect } = stage;
      await stage.join("a");
      expect(await store.beginTransfer(MOVED)).toMatchObject(MOVED);
      expect(await refusal(() => stage.beat("b", 1, { register: true }))).toBe("store_moved");
      expect(await stage.beat("a", 2)).toMatchObject({ kind: "ok" });
      expect((await store.overview()).transfer).toMatchObject(MOVED);
      expect(await store.endTransfer({ ...MOVED, id: "another" })).toBe(false);
      expect(await store.endTransfer(MOVED)).toBe(true);
      await stage.join("b");
    },
  },
  {
    name: "the first mark stays, and every connection sees it",
    async run(stage) {
      const { store, expect } = stage;
      await store.beginTransfer(MOVED);
      const other = await stage.second();
      expect(await other.beginTransfer({ state: "moved", id: "export-2" })).toMatchObject(MOVED);
      expect(await other.beginTransfer(IMPORTING)).toMatchObject(MOVED);
      expect(await refusal(() => stage.beat("a", 1, { register: true }, other))).toBe("store_moved");
    },
  },
  {
    name: "an export has every record once, in pages, without holders",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const held = await stage.ready(a, "held", 1);
      const parked = await stage.ready(a, "parked");
      const leased = await stage.ready(a, "leased");
      await stage.lease(leased, "lease");
      const blank = await stage.ready(a, null);
      const acting = [await stage.creating(a, "creating"), await stage.stopping(a, "stopping")];
      const ended = await stage.stopping(a, "ended");
      await store.remove({ sandboxId: ended.sandboxId, revision: ended.revision, actor: a });

      const rows = await exportAll(store, 2);
      const records = new Map(
        rows.flatMap((row) => (row.kind === "record" ? [[row.record.sandboxId, row.record]] : [])),
      );
      expect(records.size).toBe(6);
      expect(rows.filter(({ kind }) => kind === "record").length).toBe(6);
      for (const same of [parked, blank, ...acting]) expect(records.get(same.sandboxId)).toEqual(same);
      expect(records.get(held.sandboxId)).toMatchObject({ holders: {}, arrival: null, leases: {} });
      expect(records.get(leased.sandboxId)).toMatchObject({ parkedAt: null });
      const tombstones = rows.flatMap((row) => (row.kind === "tombstone" ? [row.tombstone.sandboxId] : []));
      expect(tombstones).toEqual([ended.sandboxId]);
    },
  },
  {
    name: "an import makes the new store answer like the former one",
    async run(stage) {
      const { expect } = stage;
      const a = await stage.join("a");
      const parked = await stage.ready(a, "parked");
      const held = await stage.ready(a, "held", 1);
      const leased = await stage.ready(a, "leased");
      const leaseId = await stage.lease(leased, "lease");
      const blank = await stage.ready(a, null);
      const creating = await stage.creating(a, "creating");
      const ended = await stage.stopping(a, "ended");
      await stage.store.remove({ sandboxId: ended.sandboxId, revision: ended.revision, actor: a });
      const { generation } = await stage.store.overview();
      const rows = await exportAll(stage.store, 100);

      const store = await emptied(stage);
      expect((await store.meta(ENGINE)).recovering).toBe(true);
      expect(await store.beginTransfer(IMPORTING)).toMatchObject(IMPORTING);
      expect(await store.importRows(CLAIM, rows)).toEqual({ kind: "imported" });
      const later = generation + 1_000_000;
      expect(await store.finishImport({ ...CLAIM, generation: later, recovered: [ENGINE] })).toEqual({
        kind: "finished",
      });

      expect(await store.overview()).toMatchObject({ transfer: null, generation: later });
      expect((await store.meta(ENGINE)).recovering).toBe(false);
      expect(await store.census()).toEqual({ leased: 1, parked: 2, blank: 1, creating: 1, stopping: 0 });
      expect(await store.get(blank.sandboxId)).toEqual(blank);
      expect(await store.find(USER, "parked" as never)).toEqual(parked);
      expect(await store.tombstone(ended.sandboxId)).toMatchObject({ generation: ended.generation });
      const lease = await store.findLease(leaseId);
      expect(lease).toMatchObject({ record: { sandboxId: leased.sandboxId } });
      expect(lease?.beat ?? 0).toBeGreaterThan(1);

      const { parkedAt } = stage.some(await store.get(held.sandboxId));
      expect(parkedAt ?? 0).toBeGreaterThanOrEqual(held.createdAt);

      const b = "b" as typeof a;
      expect(await stage.beat(b, 1, { register: true }, store)).toMatchObject({ kind: "ok" });
      expect((await stage.take("parked", b, 1, store)).sandboxId).toBe(parked.sandboxId);
      const { sandboxId, revision } = creating;
      expect(await store.takeOver({ sandboxId, revision, actor: b })).toMatchObject({ state: "stopping", actor: b });
      const next = await stage.tryReserve(b, "next", {}, store);
      if (next.kind !== "reserved") throw new Error(`reserve answered ${next.kind}`);
      expect(next.record.generation).toBeGreaterThan(later);
    },
  },
  {
    name: "a half-done import keeps instances out, and repeating it finishes it",
    async run(stage) {
      const { expect } = stage;
      const rows = await someRows(stage);
      const store = await emptied(stage);
      await store.beginTransfer(IMPORTING);
      expect(await store.importRows(CLAIM, rows.slice(0, 2))).toEqual({ kind: "imported" });
      expect(await refusal(() => stage.beat("b", 1, { register: true }, store))).toBe("store_moved");
      expect(await store.importRows({ ...CLAIM, id: "export-2" }, rows)).toEqual({ kind: "unmarked" });
      expect(await store.finishImport({ ...CLAIM, id: "export-2", ...ALL })).toEqual({ kind: "unmarked" });
      expect(await store.beginTransfer(IMPORTING)).toMatchObject(IMPORTING);
      expect(await store.importRows(CLAIM, rows)).toEqual({ kind: "imported" });
      expect(await store.finishImport({ ...CLAIM, ...ALL })).toEqual({ kind: "finished" });
      const records = rows.flatMap((row) => (row.kind === "record" ? [row.record.sandboxId] : []));
      expect((await store.list()).map(({ sandboxId }) => sandboxId).sort()).toEqual(records.sort());
      expect(await stage.beat("b", 1, { register: true }, store)).toMatchObject({ kind: "ok" });
      expect(await store.importRows(CLAIM, rows)).toEqual({ kind: "unmarked" });
    },
  },
  {
    name: "of two processes that import one file the last one goes on alone",
    async run(stage) {
      const { expect } = stage;
      const rows = await someRows(stage);
      const store = await emptied(stage);
      const other = await stage.second();
      const later = { ...CLAIM, importer: "process-2" };
      expect(await store.beginTransfer(IMPORTING)).toMatchObject({ ...CLAIM, attempt: 1 });
      expect(await store.importRows(CLAIM, rows.slice(0, 2))).toEqual({ kind: "imported" });
      expect(await other.beginTransfer({ state: "importing", ...later })).toMatchObject({ ...later, attempt: 2 });
      expect(await store.importRows(CLAIM, rows)).toEqual({ kind: "taken-over" });
      expect(await store.finishImport({ ...CLAIM, ...ALL })).toEqual({ kind: "taken-over" });
      expect(await store.endTransfer(IMPORTING)).toBe(false);
      expect(await other.importRows(later, rows)).toEqual({ kind: "imported" });
      expect(await other.finishImport({ ...later, ...ALL })).toEqual({ kind: "finished" });
      expect(await store.finishImport({ ...CLAIM, ...ALL })).toEqual({ kind: "unmarked" });
    },
  },
  {
    name: "an import ends with the epoch in which it began, and is repeated in the next one",
    async run(stage) {
      const { expect } = stage;
      const rows = await someRows(stage);
      const store = await emptied(stage);
      await store.beginTransfer(IMPORTING);
      expect(await store.importRows(CLAIM, rows)).toEqual({ kind: "imported" });
      await stage.beginEpoch();
      // A store of one host loses the mark as well.
      const refusal = { kind: store.isShared ? "new-epoch" : "unmarked" };
      expect(await store.importRows(CLAIM, rows)).toEqual(refusal);
      expect(await store.finishImport({ ...CLAIM, ...ALL })).toEqual(refusal);
      expect((await store.meta(ENGINE)).recovering).toBe(true);
      await store.beginTransfer(IMPORTING);
      expect(await store.importRows(CLAIM, rows)).toEqual({ kind: "imported" });
      expect(await store.finishImport({ ...CLAIM, ...ALL })).toEqual({ kind: "finished" });
      const records = rows.filter(({ kind }) => kind === "record");
      expect((await store.list()).length).toBe(records.length);
    },
  },
  {
    name: "an import needs a store that no instance has used",
    async run(stage) {
      const { store, expect } = stage;
      // The recovery is over: an instance has served from it. A shared store knows that for each engine.
      const mark = await store.beginTransfer(IMPORTING);
      if (!store.isShared) expect(mark).toBe(null);
      else {
        const answer = await store.importRows(CLAIM, [{ kind: "record", record: parkedRecord(stage) }]);
        expect(answer).toEqual({ kind: "used", engine: ENGINE });
      }
    },
  },
  {
    name: "an import needs a store without sessions",
    begins: "recovering",
    async run(stage) {
      await stage.join("a");
      stage.expect(await stage.store.beginTransfer(IMPORTING)).toBe(null);
    },
  },
  {
    name: "a file with two records for one thread is refused as a whole page",
    async run(stage) {
      const { expect } = stage;
      const rows = await someRows(stage);
      const [one] = rows.flatMap((row) => (row.kind === "record" && row.record.thread !== null ? [row.record] : []));
      const twin = { ...stage.some<SandboxRecord>(one ?? null), sandboxId: "sandbox-twin" as SandboxId };
      const store = await emptied(stage);
      await store.beginTransfer(IMPORTING);
      await store.importRows(CLAIM, rows);
      const clash = { kind: "clash", sandboxId: "sandbox-twin" };
      expect(await store.importRows(CLAIM, [{ kind: "record", record: twin }])).toEqual(clash);
      expect(await store.get("sandbox-twin" as SandboxId)).toBe(null);
    },
  },
  {
    name: "an import of a file without the sandboxes leaves the store recovering",
    async run(stage) {
      const { expect } = stage;
      const rows = (await someRows(stage)).filter(({ kind }) => kind === "tombstone");
      const store = await emptied(stage);
      await store.beginTransfer(IMPORTING);
      await store.importRows(CLAIM, rows);
      await store.finishImport({ ...CLAIM, generation: 1, recovered: [] });
      expect((await store.overview()).transfer).toBe(null);
      expect((await store.meta(ENGINE)).recovering).toBe(true);
      const b = "b" as never;
      await stage.beat(b, 1, { register: true }, store);
      const answer = await store.take(takeOf("t", b, 1, { orReserve: { ...stage.newRecord(), limits: NO_LIMITS } }));
      expect(answer).toMatchObject({ kind: "recovering" });
    },
  },
  {
    name: "a time from the future is not imported",
    async run(stage) {
      const { expect } = stage;
      const rows = await someRows(stage);
      const future = (await stage.store.overview()).now + 3_600_000;
      const ahead = rows.map((row) =>
        row.kind === "record" && row.record.state === "ready"
          ? { ...row, record: { ...row.record, createdAt: future, parkedAt: future } }
          : row,
      );
      const store = await emptied(stage);
      await store.beginTransfer(IMPORTING);
      await store.importRows(CLAIM, ahead);
      const { now } = await store.overview();
      for (const { createdAt, parkedAt } of await store.list()) {
        expect(createdAt).toBeLessThanOrEqual(now);
        expect(parkedAt ?? 0).toBeLessThanOrEqual(now);
      }
    },
  },
  {
    name: "a probe takes a generation and leaves nothing else",
    async run(stage) {
      const { store, expect } = stage;
      await stage.ready(await stage.join("a"), "t");
      const before = {
        records: await store.list(),
        sessions: await store.sessions(),
        overview: await store.overview(),
      };
      await store.probe();
      expect(await store.list()).toEqual(before.records);
      expect(await store.sessions()).toEqual(before.sessions);
      const { generation, epoch } = await store.overview();
      expect(epoch).toBe(before.overview.epoch);
      expect(generation).toBeGreaterThan(before.overview.generation);
    },
  },
];

async function exportAll(store: Store, limit: number): Promise<readonly TransferRow[]> {
  const rows: TransferRow[] = [];
  let after: string | null = null;
  do {
    const page = await store.exportPage(after, limit);
    rows.push(...page.rows);
    after = page.next;
  } while (after !== null);
  return rows;
}

/** Two parked sandboxes, a blank and a tombstone. */
async function someRows(stage: Stage): Promise<readonly TransferRow[]> {
  const a = await stage.join("a");
  await stage.ready(a, "one");
  await stage.ready(a, "two");
  await stage.ready(a, null);
  const ended = await stage.stopping(a, "ended");
  await stage.store.remove({ sandboxId: ended.sandboxId, revision: ended.revision, actor: a });
  return exportAll(stage.store, 100);
}

function parkedRecord(stage: Stage): ReadyRecord {
  return {
    ...stage.newRecord(),
    ...{ user: USER, thread: "t" as ThreadId, revision: 1, generation: 1 as Generation, ref: "ref" as EngineRef },
    ...{ state: "ready", actor: null, holders: {}, leases: {}, place: "home", arrival: null, boundFrom: null },
    ...{ createdAt: 1, parkedAt: 1, purge: false, reason: null },
  };
}

/** A new store in the place of the former one. */
async function emptied(stage: Stage): Promise<Store> {
  await stage.empty();
  return stage.second();
}

async function refusal(call: () => Promise<unknown>): Promise<string | null> {
  try {
    await call();
    return null;
  } catch (error) {
    return isSandlotError(error) ? error.code : String(error);
  }
}
