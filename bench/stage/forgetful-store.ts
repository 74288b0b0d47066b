/**
 * A memory store that forgets a record as soon as it is ready: every result is the real store's, and nothing remains.
 * So the growth of the heap is the fleet's own. A renewal would find every hold lost, so none may happen meanwhile.
 */

import type { Epoch } from "@sandlot/contract";
import { MemoryStore } from "../../packages/fleet/src/store/memory/memory-store.ts";
import { MemoryTables } from "../../packages/fleet/src/store/memory/memory-tables.ts";
import type { SandboxRecord } from "../../packages/fleet/src/store/record.ts";
import type { Store } from "../../packages/fleet/src/store/store.ts";
import type { World } from "../../packages/fleet/src/world/world.ts";

class ForgetfulTables extends MemoryTables {
  override putRecord(record: SandboxRecord): void {
    if (record.state === "ready") this.deleteRecord(record.sandboxId);
    else super.putRecord(record);
  }
}

export function forgetfulStore(world: World): Store {
  return new MemoryStore(
    new ForgetfulTables(
      () => world.wallMs(),
      () => world.randomHex(16) as Epoch,
    ),
  );
}
