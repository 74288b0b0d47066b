/**
 * The memory store: the same transactions over maps. For tests, simulations and fleets of one process.
 *
 * Several `MemoryStore`s can share one `MemoryTables`, as several processes share one database. A step is atomic
 * because it is synchronous; it is all or nothing because the transactions check before they write.
 */

import { type Epoch, SandlotError } from "@sandlot/contract";
import type { World } from "../../world/world.ts";
import type { SharedEntries } from "../entries.ts";
import { clockOfBoot, readClock } from "../store-clock.ts";
import type { Tables } from "../tables.ts";
import { TransactionalStore } from "../transactional-store.ts";
import { MemoryTables } from "./memory-tables.ts";

export class MemoryStore extends TransactionalStore {
  readonly kind = "memory";
  override readonly entries: SharedEntries | null;
  readonly isShared: boolean;
  readonly #tables: MemoryTables;
  readonly #unwatch = new Set<() => void>();
  #closed = false;

  /** `entries`: several stores over the same tables and entries stand for one store that several hosts share. */
  constructor(tables: MemoryTables, entries: SharedEntries | null = null) {
    super();
    this.entries = entries;
    this.isShared = tables.isShared;
    this.#tables = tables;
  }

  protected async run<T>(operation: string, access: "read" | "write", step: (tables: Tables) => T): Promise<T> {
    if (this.#closed)
      throw new SandlotError("store_unavailable", { operation, problem: "it is closed", retryAfterMs: 0 });
    const before = this.#tables.changeCount;
    const result = step(this.#tables);
    if (access === "write" && this.#tables.changeCount !== before) this.#tables.hint();
    return result;
  }

  watch(hint: () => void): () => void {
    const unwatch = this.#tables.watch(hint);
    this.#unwatch.add(unwatch);
    return () => {
      this.#unwatch.delete(unwatch);
      unwatch();
    };
  }

  async close(): Promise<void> {
    this.#closed = true;
    for (const unwatch of this.#unwatch) unwatch();
    this.#unwatch.clear();
  }
}

/** `isShared`: for tests of hosts with different engines. */
export function newMemoryTables(
  world: Pick<World, "wallMs" | "monotonicMs" | "identity" | "randomHex">,
  isShared = false,
): MemoryTables {
  const clock = clockOfBoot(world, null, 0);
  return new MemoryTables(
    () => readClock(world, clock),
    () => world.randomHex(16) as Epoch,
    isShared,
  );
}
