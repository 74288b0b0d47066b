/**
 * The step of a stop that changes the workspace to a checkpoint: after the sandbox is confirmed gone and its workspace is
 * home, and before the record leaves.
 *
 * Invariants
 * - It runs again after every failure, here or at the instance that takes the record over, until the backend has
 *   restored the workspace or has refused. So the thread is never acquired with half of a restore.
 * - A refusal changed nothing: the record leaves, and the thread goes on as it was.
 * - It takes as long as it makes progress. An instance that is no longer certain to be the actor stops.
 */

import { isSandlotError, SandlotError } from "@sandlot/contract";
import type { Backend, WorkspaceSpot } from "../../backend/backend.ts";
import type { Budget, CheckpointProgress, RestoreTarget } from "../../backend/checkpoints.ts";
import { type EventBus, problemOf } from "../../observe/event-bus.ts";
import { whileProgressing } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";

export interface RestoreParts {
  readonly world: World;
  readonly backend: Backend;
  readonly bus: EventBus;
  readonly budgetOf: (blueprint: string) => Budget | null;
  /** How long the backend may make no progress. */
  readonly quietMs: number;
  /** Fires when the fleet closes: another instance goes on. */
  readonly ending: AbortSignal;
}

/** How many refusals are remembered for callers that still wait. */
const REFUSALS_MAX = 100;
/** A slow reader of events must not be flooded by files. */
const PROGRESS_EVERY_MS = 1_000;

export class RestoreStep {
  readonly #parts: RestoreParts;
  readonly #refusals = new Map<string, unknown>();

  constructor(parts: RestoreParts) {
    this.#parts = parts;
  }

  /** Why the backend refused this request, if this instance has asked it. */
  refusal(requestId: string): unknown {
    return this.#refusals.get(requestId);
  }

  /** `isActor` is asked at every sign of progress. */
  async run(spot: WorkspaceSpot, target: RestoreTarget, blueprint: string, isActor: () => boolean): Promise<void> {
    const { world, backend, bus, budgetOf, quietMs, ending } = this.#parts;
    const { checkpoints, workspaces } = backend;
    const { user, thread, sandboxId } = spot;
    const { checkpoint, requestId } = target;
    const neededBy = "restoring a checkpoint";
    if (checkpoints === undefined)
      throw new SandlotError("capability_missing", { backend: backend.name, capability: "checkpoints", neededBy });
    // A later generation has the workspace now; this request was made before it.
    if ((await workspaces.look(spot)).stale) return;
    const problem = `its workspace made no progress for ${quietMs} ms`;
    const late = () => new SandlotError("sandbox_unreachable", { sandboxId, problem, retryAfterMs: quietMs });
    try {
      const { safety, checkpoint: head } = await whileProgressing(
        world,
        quietMs,
        ending,
        late,
        (signal, progressed) => {
          const doubt = new AbortController();
          const told = this.#teller(spot, requestId);
          const onProgress = (progress: CheckpointProgress) => {
            progressed();
            if (isActor()) told(progress);
            else
              doubt.abort(new SandlotError("sandbox_unreachable", { sandboxId, problem: DOUBT, retryAfterMs: 1_000 }));
          };
          const call = { signal: AbortSignal.any([signal, doubt.signal]), onProgress };
          return checkpoints.restore({ ...spot, place: "home" }, target, budgetOf(blueprint), call);
        },
      );
      const { as } = target;
      bus.emit({ type: "workspace-restored", user, thread, checkpoint: head.id, safety: safety.id, as, requestId });
    } catch (error) {
      if (!isRefusal(error)) throw error;
      this.#refusals.set(requestId, error);
      if (this.#refusals.size > REFUSALS_MAX) this.#refusals.delete(this.#refusals.keys().next().value ?? "");
      bus.emit({ type: "workspace-restore-refused", user, thread, checkpoint, requestId, problem: problemOf(error) });
    }
  }

  #teller({ user, thread }: WorkspaceSpot, requestId: string): (progress: CheckpointProgress) => void {
    return progressTeller(this.#parts, { user, thread, requestId });
  }
}

const DOUBT = "it is not certain that this instance is still the one to restore its workspace";

/** Emits events of progress, but not one for each file. */
export function progressTeller(
  { world, bus }: Pick<RestoreParts, "world" | "bus">,
  about: Pick<WorkspaceSpot, "user" | "thread"> & { readonly requestId: string },
): (progress: CheckpointProgress) => void {
  let lastAt = world.monotonicMs();
  return ({ phase, files, bytes, totalFiles }) => {
    const now = world.monotonicMs();
    if (now - lastAt < PROGRESS_EVERY_MS) return;
    lastAt = now;
    bus.emit({ type: "checkpoint-progress", ...about, phase, files, bytes, totalFiles });
  };
}

/** The backend has looked, and has changed nothing (`Checkpoints.restore`). */
function isRefusal(error: unknown): boolean {
  return (
    isSandlotError(error, "checkpoint_not_found") ||
    isSandlotError(error, "checkpoint_damaged") ||
    isSandlotError(error, "disk_limit_exceeded")
  );
}
