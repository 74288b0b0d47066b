/** Moves that something disturbs: a store that loses writes or is opened again, and two processes at once. */

import type { Epoch } from "@sandlot/contract";
import { expect, test } from "vitest";
import type { Store } from "../../src/store/store.ts";
import { ENGINE } from "../../src/testing/store-suite/stage.ts";
import { exported, formerStore, imported, stageOf, world } from "./move-fixture.ts";
import { newRows } from "./row-fixture.ts";
import { openRows } from "./stores.ts";

/** A store that calls `before` each time a method of that name is called. */
function interrupted(store: Store, name: keyof Store, before: () => Promise<void>): Store {
  return new Proxy(store, {
    get(target, property) {
      const member: unknown = Reflect.get(target, property, target);
      if (typeof member !== "function") return member;
      return async (...args: unknown[]) => {
        if (property === name) await before();
        return Reflect.apply(member, target, args);
      };
    },
  });
}

test("an import fails when the store loses writes meanwhile, and repeating it brings everything", async () => {
  const former = await formerStore();
  const text = await exported(former.store);
  const rows = await openRows(world);
  const losing = interrupted(rows.store, "finishImport", async () => {
    rows.rows.beginEpoch(rows.rows.epoch, "next" as Epoch);
  });
  const lost = { code: "store_unavailable", details: { operation: "import" } };
  await expect(imported(losing, text)).rejects.toMatchObject(lost);
  // No instance is let in, and no engine counts as recovered.
  expect((await rows.store.overview()).transfer).toMatchObject({ state: "importing" });
  expect((await rows.store.meta(ENGINE)).recovering).toBe(true);
  await imported(rows.store, text);
  expect((await rows.store.list()).map(({ sandboxId }) => sandboxId)).toEqual([former.parked.sandboxId]);
  expect((await rows.store.meta(ENGINE)).recovering).toBe(false);
  for (const one of [former, rows]) await one.dispose();
});

test("of two imports of one file at once one wins, and the other says why it lost", async () => {
  const former = await openRows(world);
  // Entries only: nothing else shows that an import has ended.
  await former.store.entries?.put("keys/abc", "hash", null);
  const text = await exported(former.store);
  const rows = await openRows(world);
  const [first, second] = [rows.store, await rows.second()];
  let overtaken: Promise<number> | null = null;
  const slow = interrupted(first, "finishImport", async () => {
    overtaken = imported(second, text);
    await overtaken;
  });
  const lost = { code: "store_not_empty", details: { problem: "another process has ended this import meanwhile" } };
  await expect(imported(slow, text)).rejects.toMatchObject(lost);
  expect(await overtaken).toBe(0);
  for (const one of [former, rows]) await one.dispose();
});

test("an import that looked before another one ended does not begin again over what gateways did since", async () => {
  const former = await openRows(world);
  await former.store.entries?.put("keys/abc", "hash", null);
  const text = await exported(former.store);
  const rows = await openRows(world);
  const second = await rows.second();
  let end = () => {};
  const looked = new Promise<void>((resolve) => (end = resolve));
  let arrived = () => {};
  const written = new Promise<void>((resolve) => (arrived = resolve));
  const first = imported(
    interrupted(second, "finishImport", () => {
      arrived();
      return looked;
    }),
    text,
  );
  await written;
  const late = interrupted(rows.store, "beginTransfer", async () => {
    end();
    await first;
    const { seq = 0 } = (await second.entries?.get("keys/abc")) ?? {};
    await second.entries?.delete("keys/abc", seq);
    await second.entries?.put("keys/def", "hash", null);
  });
  await expect(imported(late, text)).rejects.toMatchObject({ code: "store_not_empty" });
  // The revoked key did not come back.
  expect((await rows.store.entries?.list(""))?.map(({ name }) => name)).toEqual(["keys/def"]);
  for (const one of [former, rows]) await one.dispose();
});

test.each([
  ["lost writes", "it lost its last writes during the export"],
  ["was opened again", "it was opened to instances again"],
] as const)("a whole export of a store that %s meanwhile is not finished", async (what, problem) => {
  const former = await openRows(world);
  const stage = stageOf(former.store);
  await stage.endRecovery();
  const a = await stage.join("a");
  await stage.ready(a, "t");
  await former.store.leave(a);
  let isDone = false;
  const changed = interrupted(former.store, "exportPage", async () => {
    if (isDone) return;
    isDone = true;
    const { transfer } = await former.store.overview();
    if (what === "lost writes") former.rows.beginEpoch(former.rows.epoch, "next" as Epoch);
    else await former.store.endTransfer({ state: "moved", id: transfer?.id ?? "" });
  });
  const refusal = { code: "store_unavailable", details: { operation: "export" } };
  const failed = await exported(changed).catch((error: unknown) => error);
  expect(failed).toMatchObject(refusal);
  expect(String(failed)).toContain(problem);
  expect((await former.store.overview()).transfer).toBe(null);
  await former.dispose();
});

test("every step of a move waits for a replica", async () => {
  const former = await formerStore();
  const text = await exported(former.store);
  const { open } = newRows();
  const { server, store } = open();
  await imported(store, text);
  await exported(store);
  const marking = server.commits.filter(({ writes }) => writes.size > 0);
  expect(marking.length).toBeGreaterThan(3);
  expect(marking.filter(({ isDurable }) => !isDurable)).toEqual([]);
  await store.close();
  await former.dispose();
});
