/**
 * One instance's checkpoints: single steps on the ledger, between which its process may die, and each of which may fail
 * before or after it took effect. A checkpoint is the set of tokens in a workspace.
 *
 * A restore is three steps (begin, take away, add and end), so that half a restore can be seen.
 */

import { type Checkpoint, SandlotError } from "@sandlot/contract";
import type { WorkspaceSpot } from "../../../packages/fleet/src/backend/backend.ts";
import type {
  Checkpoints,
  Restored,
  RestoreTarget,
  WorkspaceOwner,
} from "../../../packages/fleet/src/backend/checkpoints.ts";
import type { Instance } from "../process/instance.ts";
import { type EngineLedger, nameOf, type Workspace } from "./ledger.ts";
import type { EngineParts } from "./sim-backend.ts";
import type { Step } from "./sim-workspaces.ts";

export interface SimHistory {
  readonly checkpoints: Map<string, ReadonlySet<string>>;
  readonly outcomes: Map<string, { readonly checkpoint: string; readonly safety: string }>;
  /** Since when a restore is half done, and by which generation. */
  unfinished: { readonly target: RestoreTarget; readonly generation: number; readonly since: number } | null;
  /** The generation of the last complete restore. */
  restoredBy: number;
}

export function historyOf(ledger: EngineLedger, owner: string): SimHistory {
  const history = ledger.histories.get(owner) ?? {
    checkpoints: new Map(),
    outcomes: new Map(),
    unfinished: null,
    restoredBy: 0,
  };
  ledger.histories.set(owner, history);
  return history;
}

type Served = Pick<Checkpoints, "take" | "newest" | "find" | "check" | "restore" | "outcome" | "unfinished">;

export function simCheckpoints(instance: Instance, parts: EngineParts, step: Step): Checkpoints {
  const { ledger, audit, scheduler } = parts;
  const history = (owner: WorkspaceOwner) => historyOf(ledger, nameOf(owner));
  const idOf = (owner: WorkspaceOwner) => `c${history(owner).checkpoints.size + 1}-${scheduler.now}`;
  const find = (owner: WorkspaceOwner, id: string) => {
    const tokens = history(owner).checkpoints.get(id);
    if (tokens === undefined) throw new SandlotError("checkpoint_not_found", { thread: owner.thread, checkpoint: id });
    return tokens;
  };
  const outcome = (owner: WorkspaceOwner, requestId: string): Restored | null => {
    const done = history(owner).outcomes.get(requestId);
    return done === undefined ? null : { checkpoint: shown(done.checkpoint), safety: shown(done.safety) };
  };
  const fenced = (spot: WorkspaceSpot) => {
    const { sandboxId, generation } = spot;
    if (ledger.isStale(spot)) throw new SandlotError("stale_generation", { sandboxId, generation, current: null });
  };
  const homeOf = (spot: WorkspaceSpot): Workspace => ledger.homeFor(spot);
  const served: Served = {
    take: (owner) =>
      step("take", () => {
        const workspace = ledger.workspaceFor(nameOf(owner));
        if (workspace === null) return { kind: "nothing" };
        const id = idOf(owner);
        history(owner).checkpoints.set(id, new Set(workspace.tokens));
        return { kind: "taken", checkpoint: shown(id) };
      }),
    // Without a call: what it tells a lease is no part of the protocol.
    newest: () => Promise.resolve(null),
    find: (owner, id) =>
      step("find", () => {
        find(owner, id);
        return shown(id);
      }),
    check: (owner, target) => step("check", () => void find(owner, target.checkpoint)),
    async restore(spot, target) {
      const begun = await step("restore", () => {
        const known = outcome(spot, target.requestId);
        if (known !== null) return known;
        fenced(spot);
        find(spot, target.checkpoint);
        const workspace = homeOf(spot);
        const kept = history(spot);
        kept.unfinished ??= { target, generation: spot.generation, since: scheduler.now };
        if (!kept.checkpoints.has(target.requestId)) kept.checkpoints.set(target.requestId, new Set(workspace.tokens));
        audit.restoring(instance, spot, workspace, new Set());
        return null;
      });
      if (begun !== null) return begun;
      // What another actor has ended meanwhile is not touched again.
      const isOpen = () => history(spot).unfinished?.target.requestId === target.requestId;
      await step("restore: take away", () => {
        if (!isOpen()) return;
        fenced(spot);
        const wanted = find(spot, target.checkpoint);
        const workspace = homeOf(spot);
        const gone = [...workspace.tokens].filter((token) => !wanted.has(token));
        for (const token of gone) workspace.tokens.delete(token);
        audit.restoring(instance, spot, workspace, new Set(gone));
      });
      return step("restore: add", () => {
        const known = outcome(spot, target.requestId);
        if (known !== null) return known;
        fenced(spot);
        const workspace = homeOf(spot);
        for (const token of find(spot, target.checkpoint)) workspace.tokens.add(token);
        const kept = history(spot);
        const id = idOf(spot);
        kept.checkpoints.set(id, new Set(workspace.tokens));
        kept.outcomes.set(target.requestId, { checkpoint: id, safety: target.requestId });
        kept.unfinished = null;
        kept.restoredBy = spot.generation;
        audit.restored(instance, spot, workspace);
        return { checkpoint: shown(id), safety: shown(target.requestId) };
      });
    },
    outcome: (owner, requestId) => step("outcome", () => outcome(owner, requestId)),
    // Without a call: a look of housekeeping that finds nothing leaves the run as it is.
    unfinished: () =>
      Promise.resolve(
        [...ledger.histories].flatMap(([owner, { unfinished }]) => {
          const [user, thread] = owner.split("/") as [WorkspaceOwner["user"], WorkspaceOwner["thread"]];
          return unfinished === null ? [] : [{ owner: { user, thread }, target: unfinished.target }];
        }),
      ),
  };
  return served as Checkpoints;
}

function shown(id: string): Checkpoint {
  const none = { count: 0, paths: [] };
  const counts = { fileCount: 0, sizeBytes: 0, addedBytes: 0, torn: none, leftOut: none };
  const about = { parent: null, label: null, cause: "requested", takenAt: 0, generation: null, environment: null };
  return { id, ...about, ...counts, restoredFrom: null, isHead: true };
}
