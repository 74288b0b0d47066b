/** The row server in memory keeps the contract of row servers. */

import { type Epoch, SandlotError } from "@sandlot/contract";
import { describe, expect, it } from "vitest";
import { MemoryRowServer } from "../../src/store/rows/memory-row-server.ts";
import { MemoryRows } from "../../src/store/rows/memory-rows.ts";
import { type RowServerHarness, RowStage } from "../../src/testing/row-server-suite/stage.ts";
import { describeRowServer } from "../../src/testing/row-server-suite.ts";
import { systemWorld } from "../../src/world/system-world.ts";

const PROBLEM = { operation: "read", problem: "cut", retryAfterMs: 1 };
const tools = { describe, it, expect };
describeRowServer({ name: "memory", tools, open: openMemoryRows });

it("the suite notices a call that is answered, or fails otherwise, where it must be refused", async () => {
  const stage = await RowStage.begin(await openMemoryRows(), expect);
  await expect(stage.failureOf(async () => "an answer")).rejects.toThrow("it was answered");
  await expect(stage.failureOf(() => Promise.reject(new TypeError("a mistake")))).rejects.toThrow("a mistake");
  await stage.failureOf(() => Promise.reject(new SandlotError("store_unavailable", PROBLEM)));
  await stage.harness.dispose();
});

async function openMemoryRows(): Promise<RowServerHarness> {
  const world = systemWorld();
  const rows = new MemoryRows(
    () => world.wallMs(),
    () => world.randomHex(16) as Epoch,
  );
  const server = new MemoryRowServer(rows);
  const opened = [server];
  return {
    server,
    async second() {
      const other = new MemoryRowServer(rows);
      opened.push(other);
      return other;
    },
    async cut() {
      server.cut();
      server.connect();
    },
    async interrupt() {
      server.cut();
      return async () => server.connect();
    },
    async age(ms) {
      rows.age(ms);
    },
    async dispose() {
      for (const one of opened) await one.close();
    },
  };
}
