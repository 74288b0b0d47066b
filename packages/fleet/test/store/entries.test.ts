import type { Epoch } from "@sandlot/contract";
import { describe, expect, it } from "vitest";
import { MemoryEntries } from "../../src/store/memory/memory-entries.ts";
import { MemoryRowServer } from "../../src/store/rows/memory-row-server.ts";
import { describeEntries } from "../../src/testing/entry-suite.ts";
import { openRows } from "./stores.ts";

describeEntries({
  name: "memory",
  tools: { describe, it, expect },
  open: async () => {
    const entries = new MemoryEntries();
    return { first: entries, second: entries, dispose: async () => undefined };
  },
});

describeEntries({
  name: "rows",
  tools: { describe, it, expect },
  open: async () => {
    const { store, second, dispose } = await openRows();
    const [first, other] = [store.entries, (await second()).entries];
    if (first === null || other === null) throw new Error("a row store has entries");
    return { first, second: other, dispose };
  },
});

describe("shared entries in memory", () => {
  it("refuse one more than their limit, and take it after a deletion", async () => {
    const entries = new MemoryEntries(2);
    await entries.put("key/a", "1", null);
    await entries.put("key/b", "1", null);
    expect(await entries.put("key/c", "1", null)).toEqual({ kind: "full", max: 2 });
    const seq = (await entries.get("key/a"))?.seq ?? 0;
    expect((await entries.put("key/a", "2", seq)).kind).toBe("put");
    expect(await entries.delete("key/a", (await entries.get("key/a"))?.seq ?? 0)).toBe(true);
    expect((await entries.put("key/c", "1", null)).kind).toBe("put");
  });
});

describe("shared entries as rows", () => {
  it("survive a new epoch, with their numbers", async () => {
    const { rows, store, second, dispose } = await openRows();
    await store.entries?.put("key/a", "kept", null);
    const before = await store.entries?.get("key/a");
    const { epoch } = await store.meta();
    await new MemoryRowServer(rows).beginEpoch(epoch, "another" as Epoch, new AbortController().signal);
    expect((await store.meta()).epoch).toBe("another");
    expect(await store.entries?.get("key/a")).toEqual(before);
    expect(await store.entries?.list("key/")).toEqual([before]);
    expect(await (await second()).entries?.list("key/")).toEqual([before]);
    await dispose();
  });
});
