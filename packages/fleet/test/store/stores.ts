/**
 * Opens each store for the tests of this folder. Everything is below one temporary directory that `dispose` removes.
 */

import { mkdtempSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Epoch } from "@sandlot/contract";
import { MemoryStore, newMemoryTables } from "../../src/store/memory/memory-store.ts";
import { MemoryRowServer } from "../../src/store/rows/memory-row-server.ts";
import { MemoryRows } from "../../src/store/rows/memory-rows.ts";
import type { RowServer } from "../../src/store/rows/row-server.ts";
import { RowStore } from "../../src/store/rows/row-store.ts";
import { openSqliteStore } from "../../src/store/sqlite/sqlite-store.ts";
import type { Store } from "../../src/store/store.ts";
import type { StoreHarness } from "../../src/testing/store-suite.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import type { World } from "../../src/world/world.ts";

/** `isShared`: as a store on the network. */
export async function openMemory(world: World = systemWorld(), isShared = false): Promise<StoreHarness> {
  const tables = newMemoryTables(world, isShared);
  return {
    store: new MemoryStore(tables),
    second: async () => new MemoryStore(tables),
    async empty() {
      tables.empty();
      tables.putTransfer(null);
      for (const { user, thread } of tables.homes()) tables.dropHome(user, thread);
    },
    beginEpoch: async () => tables.empty(),
    dispose: async () => {},
  };
}

/** A `RowStore` on rows in memory. */
export async function openRows(world: World = systemWorld()): Promise<RowsHarness> {
  const rows = new MemoryRows(
    () => world.wallMs(),
    () => world.randomHex(16) as Epoch,
  );
  const opened: Store[] = [];
  const open = () => {
    const store = new RowStore({ server: new MemoryRowServer(rows), world });
    opened.push(store);
    return store;
  };
  return {
    rows,
    store: open(),
    second: async () => open(),
    empty: async () => rows.lose(),
    beginEpoch: async () => void rows.beginEpoch(rows.epoch, world.randomHex(16) as Epoch),
    dispose: async () => {
      await Promise.all(opened.map((store) => store.close()));
    },
  };
}

export interface RowsHarness extends StoreHarness {
  readonly rows: MemoryRows;
}

export async function openSqlite(world: World = systemWorld()): Promise<StoreHarness> {
  const home = temporaryDirectory();
  const path = join(home.path, "store.db");
  const opened: Store[] = [];
  let replaced = 0;
  const open = async () => {
    const store = await openSqliteStore({ path, world });
    opened.push(store);
    return store;
  };
  return {
    store: await open(),
    second: open,
    // The loss of a file: another one replaces it while it is open.
    async empty() {
      replaced += 1;
      const other = join(home.path, `other-${replaced}.db`);
      await (await openSqliteStore({ path: other, world })).close();
      renameSync(other, path);
    },
    async dispose() {
      await Promise.all(opened.map((store) => store.close()));
      home.remove();
    },
  };
}

export function temporaryDirectory(): { readonly path: string; remove(): void } {
  const path = mkdtempSync(join(tmpdir(), "sandlot-store-"));
  return { path, remove: () => rmSync(path, { recursive: true, force: true }) };
}

/** Begins another epoch, as a store that noticed lost writes. */
export async function beginNewEpoch(server: RowServer, world: World): Promise<void> {
  const signal = AbortSignal.timeout(10_000);
  const { epoch } = await server.read([], signal);
  await server.beginEpoch(epoch, world.randomHex(16) as Epoch, signal);
}
