/** Restores, compared with the truth: what they change, and who uses a workspace meanwhile. */

import type { WorkspaceSpot } from "../../../packages/fleet/src/backend/backend.ts";
import type { SandboxRecord } from "../../../packages/fleet/src/store/record.ts";
import { nameOf, type SimObject, type Workspace } from "../engine/ledger.ts";
import type { Instance } from "../process/instance.ts";
import type { Findings } from "./findings.ts";
import { ownerOf, type Truth } from "./truth.ts";

export class RestoreChecks {
  readonly #truth: Truth;
  readonly #findings: Findings;

  constructor(truth: Truth, findings: Findings) {
    this.#truth = truth;
    this.#findings = findings;
  }

  /** A step of a restore took `gone` from the workspace. */
  restoring(by: Instance, spot: WorkspaceSpot, workspace: Workspace, gone: ReadonlySet<string>): void {
    const owner = nameOf(spot);
    const ledger = this.#truth.ledger.of(by.engine);
    const living = [...ledger.objects.values()].find(
      (object) => object.alive && ledger.workspaceOf(object) === workspace,
    );
    this.#findings.check(
      "restored-only-without-process",
      living === undefined,
      () => `${by.name} restores ${owner} under ${living?.ref}`,
    );
    const { acknowledged } = this.#truth.thread(owner);
    for (const token of gone) {
      acknowledged.delete(token);
      this.#truth.purgedTokens.add(token);
    }
  }

  /** What it brought back must stay from here on. */
  restored(by: Instance, spot: WorkspaceSpot, workspace: Workspace): void {
    this.restoring(by, spot, workspace, new Set());
    const { acknowledged } = this.#truth.thread(nameOf(spot));
    for (const token of workspace.tokens) {
      acknowledged.set(token, this.#truth.now);
      this.#truth.purgedTokens.delete(token);
    }
  }

  /** A sandbox gets the workspace, at its create or at a bind. */
  used(by: Instance, spot: WorkspaceSpot): void {
    const unfinished = this.#truth.ledger.of(by.engine).histories.get(nameOf(spot))?.unfinished ?? null;
    // A lost store knows nothing of the restore; the backend refuses the workspace then, and housekeeping goes on.
    if (unfinished !== null && this.#truth.emptiedAt >= unfinished.since) return;
    this.#findings.check(
      "nothing-uses-half-a-restore",
      unfinished === null,
      () => `${by.name}: ${spot.sandboxId} ${spot.generation} of ${nameOf(spot)}`,
    );
  }

  /** A record in `stopping` changes: another actor, or a purge. */
  put(before: SandboxRecord | null, after: SandboxRecord): void {
    if (before?.state !== "stopping" || before.restore === undefined || after.purge) return;
    const kept = after.state === "stopping" ? after.restore : undefined;
    this.#findings.check(
      "restore-is-kept",
      kept?.requestId === before.restore.requestId && kept.checkpoint === before.restore.checkpoint,
      () => `${after.sandboxId} by ${after.actor}: ${JSON.stringify(kept)}`,
    );
  }

  /** A record leaves. */
  deleted(before: SandboxRecord): void {
    const owner = ownerOf(before);
    if (before.state !== "stopping" || before.restore === undefined || before.purge || owner === null) return;
    const { checkpoint, requestId } = before.restore;
    const ledger = this.#truth.ledgerOf(before);
    const history = ledger.histories.get(owner);
    const { user, thread, sandboxId, generation } = before;
    const spot =
      user === null || thread === null ? null : { user, thread, sandboxId, generation, place: "home" as const };
    const isDone = history?.outcomes.has(requestId) === true;
    // A purge has removed the checkpoint, or a later generation uses the workspace.
    const isVoid = history?.checkpoints.has(checkpoint) !== true || (spot !== null && ledger.isStale(spot));
    this.#findings.check("restored-before-it-leaves", isDone || isVoid, () => `${sandboxId} of ${owner}`);
  }

  wrote(by: Instance, object: SimObject, token: string): void {
    const ledger = this.#truth.ledger.of(by.engine);
    const workspace = ledger.workspaceOf(object);
    const restoredBy = workspace === null ? 0 : (ledger.histories.get(workspace.owner)?.restoredBy ?? 0);
    // A new store may give a generation twice.
    if (this.#truth.emptiedAt > 0) return;
    this.#findings.check(
      "older-leave-the-restored-alone",
      object.generation > restoredBy,
      () => `${by.name} wrote ${token} as generation ${object.generation} into what ${restoredBy} restored`,
    );
  }
}
