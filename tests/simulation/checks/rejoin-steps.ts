/** The parts of a `rejoin`: the checks judge each as the `hold` or `restore` that it is. */

import type { SandboxId } from "@sandlot/contract";
import type { HoldAnswer, RejoinHold, RejoinRequest } from "../../../packages/fleet/src/store/store.ts";
import type { StoreStep } from "../store/sim-store.ts";

/** The part of a step that touches a sandbox; any other step is its own part. */
export function partFor(step: StoreStep, sandboxId: SandboxId): StoreStep {
  if (step.method !== "rejoin") return step;
  const { instance, holds } = step.args[0] as RejoinRequest;
  const one = holds.find((hold) => sandboxOf(hold) === sandboxId);
  return one === undefined ? step : { ...step, method: one.kind, args: [{ ...one, instance }] };
}

/** Each part of an answered step, with its own answer. */
export function answeredParts(
  step: StoreStep,
  result: unknown,
): readonly { readonly step: StoreStep; readonly result: unknown }[] {
  if (step.method !== "rejoin") return [{ step, result }];
  const { holds } = step.args[0] as RejoinRequest;
  const answers = result as readonly HoldAnswer[];
  return holds.map((hold, index) => ({ step: partFor(step, sandboxOf(hold)), result: answers[index] }));
}

function sandboxOf(hold: RejoinHold): SandboxId {
  return hold.kind === "hold" ? hold.sandboxId : hold.record.sandboxId;
}
