/**
 * Workspaces of a fleet whose file system may hold them to their budgets: who removes one gives its quota back.
 */

import type { WorkspaceSpot } from "../../backend/backend.ts";
import { threadKeyOf } from "../../backend/labels.ts";
import type { ProjectQuotas } from "../limits/index.ts";
import { DiskWorkspaces } from "./disk-workspaces.ts";
import type { DiskOptions } from "./parts.ts";

export class QuotaWorkspaces extends DiskWorkspaces {
  readonly #quotas: ProjectQuotas;

  constructor(options: DiskOptions, quotas: ProjectQuotas) {
    super(options);
    this.#quotas = quotas;
  }

  override async purge(spot: WorkspaceSpot): Promise<void> {
    await super.purge(spot);
    await this.#quotas.release(threadKeyOf(spot.user, spot.thread));
  }

  override async sweep(): Promise<void> {
    await super.sweep();
    await this.#quotas.sweep();
  }
}
