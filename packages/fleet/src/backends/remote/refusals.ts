/** The errors of the remote backend: what it cannot pass on, and what the provisioner and its sandboxes do not answer. */

import { SandlotError } from "@sandlot/contract";
import type { Capability, Target } from "../../backend/backend.ts";
import type { Blueprint } from "../../backend/blueprint.ts";
import { ServerAway } from "../../compat/aio/wire/answers.ts";
import { NoAnswer } from "../../compat/aio/wire/wire.ts";
import { Refused, Silent } from "./provisioner-client.ts";

export const NAME = "remote";
export const RETRY_AFTER_MS = 500;

/** Nothing of a blueprint but its variables can be passed on. */
export function requireNothing({ image, runtime, limits, mounts, network }: Blueprint): void {
  const wanted: readonly (readonly [Capability, boolean])[] = [
    ["image", image !== undefined],
    ["runtime", runtime !== undefined],
    ["limits", Object.values(limits).some((limit) => limit !== undefined)],
    ["mounts", mounts.length > 0],
    ["network", network.mode !== "none"],
  ];
  const [capability] = wanted.find(([, isWanted]) => isWanted) ?? [];
  if (capability !== undefined) throw missing(capability, "the blueprint");
}

export function missing(capability: Capability, neededBy: string): SandlotError {
  return new SandlotError("capability_missing", { backend: NAME, capability, neededBy });
}

export function createFailed(error: unknown): unknown {
  const isAnswer = error instanceof Silent || error instanceof Refused;
  if (!isAnswer && !(error instanceof NoAnswer) && !(error instanceof ServerAway)) return error;
  return new SandlotError("create_failed", { backend: NAME, problem: error.message }, { cause: error });
}

export function lost({ sandboxId, generation }: Pick<Target, "sandboxId" | "generation">): SandlotError {
  return new SandlotError("sandbox_lost", { sandboxId, generation, reason: "crashed" });
}

export function unreachable(sandboxId: string, error: unknown): unknown {
  const isSilence =
    error instanceof NoAnswer ||
    error instanceof ServerAway ||
    error instanceof Silent ||
    (error instanceof Refused && error.status !== 404);
  if (!isSilence) return error;
  const details = { sandboxId, problem: error.message, retryAfterMs: RETRY_AFTER_MS };
  return new SandlotError("sandbox_unreachable", details, { cause: error });
}
