import { describe, expect, it } from "vitest";
import { MemoryEntries } from "../../src/store/memory/memory-entries.ts";
import { describeEntries } from "../../src/testing/entry-suite.ts";

describeEntries({
  name: "memory",
  tools: { describe, it, expect },
  open: async () => {
    const entries = new MemoryEntries();
    return { first: entries, second: entries, dispose: async () => undefined };
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
