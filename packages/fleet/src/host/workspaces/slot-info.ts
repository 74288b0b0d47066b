/** Information about a slot. */

import type { Generation, SandboxId, ThreadKey } from "@sandlot/contract";
import type { Owner } from "./homes.ts";
import type { SlotPlace } from "./layout.ts";

export interface SlotInfo {
  readonly place: SlotPlace;
  readonly sandboxId: SandboxId;
  /** The generation of the blank that it was created for. */
  readonly generation: Generation;
  readonly tenant: SlotTenant | null;
  /** Its sandbox was confirmed gone. */
  readonly released: boolean;
}

/** The thread whose workspace is in a slot. */
export interface SlotTenant {
  readonly threadKey: ThreadKey;
  readonly generation: Generation;
  /** `null` when none is recorded. */
  readonly owner: Owner | null;
}
