/** Moves between stores through the text of an export. */

import { expect } from "vitest";
import type { Store } from "../../src/store/store.ts";
import { checkFile, lineSink, rowsOf } from "../../src/store/transfer/export-file.ts";
import { type ExportRequest, exportStore } from "../../src/store/transfer/export-store.ts";
import { importStore } from "../../src/store/transfer/import-store.ts";
import { ENGINE, Stage } from "../../src/testing/store-suite/stage.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import { openSqlite } from "./stores.ts";

export const world = systemWorld();
export const signal = new AbortController().signal;

export function stageOf(store: Store): Stage {
  return new Stage({ store, second: async () => store, empty: async () => {}, dispose: async () => {} }, expect);
}

export async function exported(store: Store, more: Partial<ExportRequest> = {}): Promise<string> {
  let text = "";
  const sink = lineSink(async (part) => {
    text += part;
  });
  const request = {
    world,
    store,
    description: "former",
    lifetimeMs: 200,
    isWhole: true,
    engineOf: async () => null,
    signal,
  };
  await exportStore({ ...request, ...more }, sink);
  return text;
}

export async function imported(store: Store, text: string, importer = world.randomHex(8)): Promise<number> {
  async function* chunks() {
    yield Buffer.from(text);
  }
  const { header, withoutEngine } = await checkFile(chunks());
  return importStore({
    store,
    importer,
    description: "new",
    header,
    withoutEngine,
    rows: rowsOf(chunks()),
    file: "file",
    signal,
  });
}

/** A store of one host with a parked sandbox on `ENGINE`, and without sessions. */
export async function formerStore(engine = ENGINE) {
  const harness = await openSqlite(world);
  const stage = stageOf(harness.store);
  await stage.endRecovery();
  const a = await stage.join("a");
  const parked = await stage.ready(a, "t", null, { engine });
  await harness.store.leave(a);
  return { ...harness, parked };
}
