/** The row server in memory keeps the contract of row servers. */

import type { Epoch } from "@sandlot/contract";
import { describe, expect, it } from "vitest";
import { MemoryRowServer } from "../../src/store/rows/memory-row-server.ts";
import { MemoryRows } from "../../src/store/rows/memory-rows.ts";
import { describeRowServer } from "../../src/testing/row-server-suite.ts";
import { systemWorld } from "../../src/world/system-world.ts";

describeRowServer({
  name: "memory",
  tools: { describe, it, expect },
  async open() {
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
  },
});
