/**
 * Restores that no record asks for any more, because the store was lost while they changed a workspace.
 *
 * The backend refuses every other use of such a workspace, so housekeeping claims the thread and finishes the restore.
 * While a store recovers, or a record of the thread exists, nothing is claimed: the record's own actor finishes it.
 */

import type { SandboxId, Token } from "@sandlot/contract";
import type { Backend } from "../../backend/backend.ts";
import { blueprintNamed } from "../../config/blueprint-named.ts";
import { DEFAULT_BLUEPRINT } from "../../config/defaults.ts";
import type { Settings } from "../../config/settings.ts";
import type { Store } from "../../store/store.ts";
import type { World } from "../../world/world.ts";
import type { Membership } from "../session/membership.ts";
import type { Retirement } from "../stop/retirement.ts";

interface UnfinishedRestoresParts {
  readonly settings: Settings;
  readonly world: World;
  readonly store: Store;
  readonly backend: Backend;
  readonly membership: Membership;
  readonly retirement: Retirement;
}

export class UnfinishedRestores {
  readonly #parts: UnfinishedRestoresParts;

  constructor(parts: UnfinishedRestoresParts) {
    this.#parts = parts;
  }

  async finish(): Promise<void> {
    const { backend, membership, store, world, settings, retirement } = this.#parts;
    const { epoch } = membership;
    if (backend.checkpoints === undefined || epoch === null || !membership.trusted()) return;
    for (const { owner, target } of await backend.checkpoints.unfinished()) {
      if (membership.epoch !== epoch || !membership.trusted()) return;
      if ((await store.find(owner.user, owner.thread)) !== null) continue;
      const { name: blueprint, hash: blueprintHash } = blueprintNamed(settings, DEFAULT_BLUEPRINT);
      const record = await store.claimForRemoval({
        ...{ key: owner, blueprint, blueprintHash, ref: null, place: "home", generation: null, epoch },
        sandboxId: world.randomHex(10) as SandboxId,
        token: world.randomHex(24) as Token,
        ...{ backend: backend.name, engine: backend.engineId },
        ...{ actor: membership.instance, restore: target },
      });
      if (record === null) continue;
      membership.sawGeneration(record.generation);
      void retirement.finishStop(record);
    }
  }
}
