/** Moves between stores of different kinds, through the file of an export. */

import type { Epoch, InstanceId, ThreadId } from "@sandlot/contract";
import { expect, test } from "vitest";
import { MemoryStore, newMemoryTables } from "../../src/store/memory/memory-store.ts";
import { lineSink } from "../../src/store/transfer/export-file.ts";
import { exportStore } from "../../src/store/transfer/export-store.ts";
import { ENGINE, NO_LIMITS, takeOf, USER } from "../../src/testing/store-suite/stage.ts";
import { exported, formerStore, imported, signal, stageOf, world } from "./move-fixture.ts";
import { openRows, openSqlite } from "./stores.ts";

test("a store of one host moves to a shared one: its engine is recovered, and its threads have their home there", async () => {
  const former = await formerStore();
  const tables = newMemoryTables(world, true);
  const store = new MemoryStore(tables);
  await imported(store, await exported(former.store));
  expect((await store.meta(ENGINE)).recovering).toBe(false);
  expect((await store.meta("another engine")).recovering).toBe(true);
  expect(await store.find(USER, "t" as ThreadId)).toEqual(former.parked);
  expect(tables.homeOf(USER, "t" as ThreadId)).toBe(ENGINE);
  await former.dispose();
});

test("a store of one host moves to rows, and an instance finds its sandbox there", async () => {
  const former = await formerStore();
  const rows = await openRows(world);
  await imported(rows.store, await exported(former.store));
  const stage = stageOf(rows.store);
  expect(await rows.store.census()).toMatchObject({ parked: 1, leased: 0 });
  expect((await stage.take("t", await stage.join("here"), 1)).sandboxId).toBe(former.parked.sandboxId);
  await rows.dispose();
  await former.dispose();
});

test("the entries of gateways move along, except into a store of one host, and that is counted", async () => {
  const [former, rows, host] = [await openRows(world), await openRows(world), await openSqlite(world)];
  await former.store.entries?.put("keys/abc", "hash", null);
  const text = await exported(former.store);
  expect(await imported(rows.store, text)).toBe(0);
  expect(await rows.store.entries?.get("keys/abc")).toMatchObject({ body: "hash" });
  expect(await imported(host.store, text)).toBe(1);
  for (const one of [former, rows, host]) await one.dispose();
});

test("an export while instances run has no entries: a key that is revoked later must not come back", async () => {
  const former = await openRows(world);
  await former.store.entries?.put("keys/abc", "hash", null);
  expect(await exported(former.store, { isWhole: false })).not.toContain("keys/abc");
  await former.dispose();
});

test("no key is made or revoked in a store that was exported: it would still work at the new one", async () => {
  const [former, rows] = [await openRows(world), await openRows(world)];
  await former.store.entries?.put("keys/abc", "hash", null);
  const { entries } = await former.second();
  const { seq = 0 } = (await entries?.get("keys/abc")) ?? {};
  const text = await exported(former.store);
  const moved = { code: "store_moved", details: { state: "moved" } };
  await expect(entries?.delete("keys/abc", seq)).rejects.toMatchObject(moved);
  await expect(entries?.put("keys/abc", "other", seq)).rejects.toMatchObject(moved);
  await expect(entries?.put("keys/new", "hash", null)).rejects.toMatchObject(moved);
  expect((await entries?.list(""))?.map(({ body }) => body)).toEqual(["hash"]);
  await imported(rows.store, text);
  expect((await rows.store.entries?.put("keys/new", "hash", null))?.kind).toBe("put");
  for (const one of [former, rows]) await one.dispose();
});

test("only the import writes entries while it goes on", async () => {
  const rows = await openRows(world);
  const { entries } = rows.store;
  const claim = { id: "x", importer: "p" };
  expect(await entries?.put("keys/a", "1", null, claim)).toEqual({ kind: "unmarked" });
  await rows.store.beginTransfer({ state: "importing", ...claim });
  await expect(entries?.put("keys/a", "1", null)).rejects.toMatchObject({ code: "store_moved" });
  expect(await entries?.put("keys/a", "1", null, { ...claim, id: "y" })).toEqual({ kind: "unmarked" });
  expect(await entries?.put("keys/a", "1", null, { ...claim, importer: "q" })).toEqual({ kind: "taken-over" });
  const written = await entries?.put("keys/a", "1", null, claim);
  expect(written?.kind).toBe("put");
  const seq = written?.kind === "put" ? written.seq : 0;
  await expect(entries?.delete("keys/a", seq)).rejects.toMatchObject({ code: "store_moved" });
  await rows.dispose();
});

test("an import refuses a shared store that has homes or entries, and leaves it open", async () => {
  const former = await formerStore();
  const text = await exported(former.store);
  const homes = await openRows(world);
  const stage = stageOf(homes.store);
  // An idle connection does not know yet what others have written.
  const idle = await homes.second();
  await idle.list();
  await stage.endRecovery();
  const a = await stage.join("a");
  const stopping = await stage.stopping(a, "t");
  await homes.store.remove({ sandboxId: stopping.sandboxId, revision: stopping.revision, actor: a });
  await homes.store.leave(a);
  const entries = await openRows(world);
  await entries.store.entries?.put("keys/abc", "hash", null);
  for (const [store, problem] of [
    [idle, "it has homes of threads"],
    [entries.store, "it has 1 entries of gateways"],
  ] as const) {
    await expect(imported(store, text)).rejects.toMatchObject({ code: "store_not_empty", details: { problem } });
    expect((await store.overview()).transfer).toBe(null);
    await stageOf(store).join("b");
  }
  expect((await entries.store.entries?.list(""))?.length).toBe(1);
  for (const one of [former, homes, entries]) await one.dispose();
});

test("an import that fails before its first write removes its mark, and a later one keeps it", async () => {
  const former = await formerStore();
  const text = await exported(former.store);
  const rows = await openRows(world);
  // An engine that has served from here, and has left nothing else.
  await stageOf(rows.store).endRecovery();
  await expect(imported(rows.store, text)).rejects.toMatchObject({ code: "store_not_empty" });
  expect((await rows.store.overview()).transfer).toBe(null);
  const { id } = (await former.store.overview()).transfer ?? { id: "" };
  await rows.store.beginTransfer({ state: "importing", id, importer: "x" });
  await expect(imported(rows.store, text)).rejects.toMatchObject({ code: "store_not_empty" });
  expect((await rows.store.overview()).transfer).toMatchObject({ state: "importing", id });
  for (const one of [former, rows]) await one.dispose();
});

test("imported rows never replace another home of a thread", async () => {
  const tables = newMemoryTables(world, true);
  const store = new MemoryStore(tables);
  const claim = { id: "x", importer: "p" };
  await store.beginTransfer({ state: "importing", ...claim });
  tables.putHome(USER, "t" as ThreadId, "engine-here");
  const home = { user: USER, thread: "t" as ThreadId, engine: "engine-there" };
  const other = { ...home, thread: "other" as ThreadId };
  const rows = [other, home].map((one) => ({ kind: "home", home: one }) as const);
  expect(await store.importRows(claim, rows)).toEqual({ kind: "rehomed", home });
  expect(tables.homes()).toEqual([{ ...home, engine: "engine-here" }]);
  expect(await store.importRows(claim, [{ kind: "home", home: { ...home, engine: "engine-here" } }])).toEqual({
    kind: "imported",
  });
});

test("a mark on rows stays over a new epoch", async () => {
  const rows = await openRows(world);
  await rows.store.beginTransfer({ state: "moved", id: "x" });
  const { epoch } = await rows.store.overview();
  rows.rows.beginEpoch(epoch, "another" as Epoch);
  await expect(stageOf(await rows.second()).join("a")).rejects.toMatchObject({ code: "store_moved" });
  await rows.dispose();
});

test("the homes of threads move between shared stores, also of threads without a sandbox", async () => {
  const tables = newMemoryTables(world, true);
  tables.putHome(USER, "resting" as ThreadId, ENGINE);
  tables.endRecovery(ENGINE);
  const moved = newMemoryTables(world, true);
  await imported(new MemoryStore(moved), await exported(new MemoryStore(tables)));
  expect(moved.homeOf(USER, "resting" as ThreadId)).toBe(ENGINE);
  expect(moved.isRecovering(ENGINE)).toBe(false);
});

test("an engine whose recovery was not over when its store was exported recovers in the new one", async () => {
  const tables = newMemoryTables(world, true);
  tables.putHome(USER, "resting" as ThreadId, ENGINE);
  const moved = newMemoryTables(world, true);
  await imported(new MemoryStore(moved), await exported(new MemoryStore(tables)));
  expect(moved.isRecovering(ENGINE)).toBe(true);
});

test("a record without an engine gets the one of its host, or no shared store takes it", async () => {
  const former = await formerStore("");
  const shared = () => new MemoryStore(newMemoryTables(world, true));
  const unnamed = await exported(former.store);
  await expect(imported(shared(), unnamed)).rejects.toThrow("names no engine");
  const store = shared();
  await imported(store, await exported(former.store, { engineOf: async () => ENGINE }));
  expect((await store.list()).map(({ engine }) => engine)).toEqual([ENGINE]);
  await former.dispose();
});

test("a session whose process cannot be seen from here is ended after a lifetime without a beat", async () => {
  const former = await formerStore();
  await stageOf(former.store).join("far-away");
  const began = world.monotonicMs();
  await exported(former.store);
  expect(world.monotonicMs() - began).toBeGreaterThanOrEqual(200);
  expect(await former.store.sessions()).toEqual([]);
  await former.dispose();
});

test("a session that beats keeps the store in use, and the store serves on", async () => {
  const former = await formerStore();
  const stage = stageOf(former.store);
  await stage.join("far-away");
  let beat = 1;
  const beating = setInterval(() => void stage.beat("far-away", ++beat), 20);
  await expect(exported(former.store)).rejects.toMatchObject({ code: "store_in_use" });
  clearInterval(beating);
  expect((await former.store.overview()).transfer).toBe(null);
  await stage.join("another");
  await former.dispose();
});

test("a session that ended between the look and the mark cannot come back", async () => {
  const former = await formerStore();
  const stage = stageOf(former.store);
  await stage.join("paused");
  await exported(former.store);
  const again = { instance: "paused" as InstanceId };
  expect(await stage.beat(again.instance, 2)).toEqual({ kind: "unknown-session" });
  await expect(stage.beat(again.instance, 3, { register: true })).rejects.toMatchObject({ code: "store_moved" });
  const request = takeOf("t", again.instance, 1, { orReserve: { ...stage.newRecord(), limits: NO_LIMITS } });
  expect(await former.store.take(request)).toEqual({ kind: "unknown-session" });
  await former.dispose();
});

test("a sink that fails leaves the store open", async () => {
  const former = await formerStore();
  const sink = lineSink(async () => {
    throw new Error("no space left");
  });
  const request = { world, store: former.store, description: "", lifetimeMs: 200, engineOf: async () => null, signal };
  await expect(exportStore({ ...request, isWhole: true }, sink)).rejects.toThrow("no space left");
  expect((await former.store.overview()).transfer).toBe(null);
  await former.dispose();
});
