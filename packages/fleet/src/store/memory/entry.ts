/** The memory store in the registry. */

import type { StoreEntry } from "../entry.ts";

export const MEMORY_STORE = {
  name: "memory",
  about: "records in this process, which end with it",
  keys: {},
  resolve: () => ({ type: "memory" }),
  describe: () => "memory",
  async open(_, world) {
    const { MemoryStore, newMemoryTables } = await import("./memory-store.ts");
    return new MemoryStore(newMemoryTables(world));
  },
  exists: () => false,
  doctor: async () => [{ name: "store", status: "ok", detail: "memory" }],
} as const satisfies StoreEntry<unknown, { readonly type: "memory" }>;
