/** What a server forgets is no loss: a healthy fleet keeps its epoch. */

import type { LeaseId } from "@sandlot/contract";
import { expect, it } from "vitest";
import type { RowKey } from "../../src/store/rows/row-server.ts";
import { newRows, writeRaw } from "./row-fixture.ts";

const MINUTE_MS = 60_000;

it("a deleted row whose number the server has forgotten begins no epoch", async () => {
  const { rows, open } = newRows();
  const { store } = open();
  const { epoch } = await store.meta();
  await store.list();
  const lease = "lease-1" as LeaseId;
  // Deleted long before this process learns of it.
  writeRaw(rows, `lease/${lease}`, () => JSON.stringify({ sandboxId: "s" }));
  writeRaw(rows, `lease/${lease}`, () => null);
  rows.age(7 * MINUTE_MS);
  expect(await store.renewLease(lease)).toBe(null);
  rows.age(4 * MINUTE_MS);
  expect(await store.renewLease(lease)).toBe(null);
  expect((await store.meta()).epoch).toBe(epoch);
});

it("a row that another client deleted while the server's clock jumped begins no epoch", async () => {
  const { rows, clock, open } = newRows();
  const { store } = open();
  const { epoch } = await store.meta();
  const lease = "lease-2" as LeaseId;
  writeRaw(rows, `lease/${lease}`, () => JSON.stringify({ sandboxId: "s" }));
  expect(await store.findLease(lease)).toBe(null);
  writeRaw(rows, `lease/${lease}`, () => null);
  clock.offsetMs += 11 * MINUTE_MS;
  expect(await store.findLease(lease)).toBe(null);
  expect((await store.meta()).epoch).toBe(epoch);
});

it("a scan from the beginning that fails begins there again, and shows no rows that are gone", async () => {
  const { rows, clock, open } = newRows();
  const { server, store } = open();
  const { epoch } = await store.meta();
  const names = Array.from({ length: 1_500 }, (_, number): RowKey => `entry/keys/${number}`);
  for (const name of names) writeRaw(rows, name, () => '"x"');
  expect(await store.entries?.list("keys/")).toHaveLength(names.length);
  for (const name of names.slice(0, 400)) writeRaw(rows, name, () => null);
  // The cursor of this store is too old now, so the next scan begins anew. Its second page is lost.
  clock.offsetMs += 11 * MINUTE_MS;
  const scan = server.scan.bind(server);
  let pages = 0;
  server.scan = async (...args) => {
    pages += 1;
    // The first call only learns that the cursor is too old.
    if (pages >= 3 && pages <= 8) throw new Error("the page is lost");
    return scan(...args);
  };
  await expect(store.entries?.list("keys/")).rejects.toThrow();
  server.scan = scan;
  expect(await store.entries?.list("keys/")).toHaveLength(names.length - 400);
  expect((await store.meta()).epoch).toBe(epoch);
});
