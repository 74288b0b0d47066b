/**
 * Refusals of the API server that have a code of their own. All others stay an `ApiRefusal`, for the caller to judge.
 */

import { SandlotError } from "@sandlot/contract";
import type { ApiRefusal } from "./api.ts";

export interface Asked {
  readonly verb: string;
  readonly resource: string;
  readonly namespace: string;
}

/** The texts are those of the admission plugins. Both refuse with 403, as a missing permission does. */
const QUOTA = /exceeded quota: ([^,\s]+)/;
const LIMIT_RANGE = /(?:maximum|minimum|must be less than or equal to).*(?:per Pod|per Container|usage)/i;
const POD_SECURITY = /violates PodSecurity/;
const NO_PERMISSION = /cannot \w+ resource/;

export function knownRefusal(refusal: ApiRefusal, { verb, resource, namespace }: Asked): Error {
  const { status, message } = refusal;
  const cause = { cause: refusal };
  if (status === 404 && /namespaces? .* not found/.test(message))
    return unavailable(`there is no namespace ${namespace}`, refusal);
  if (status === 403 && /because it is being terminated/.test(message))
    return unavailable(`the namespace ${namespace} is being deleted`, refusal);
  if (status !== 403) return refusal;
  const quota = QUOTA.exec(message)?.[1];
  if (quota !== undefined) return new SandlotError("quota_exceeded", { quota, problem: message }, cause);
  if (LIMIT_RANGE.test(message))
    return new SandlotError("quota_exceeded", { quota: "LimitRange", problem: message }, cause);
  if (POD_SECURITY.test(message)) {
    const fix = "Remove what the namespace's Pod Security level forbids from the blueprint's `pod`.";
    return new SandlotError("isolation_unavailable", { backend: "kubernetes", problem: message, fix }, cause);
  }
  if (!NO_PERMISSION.test(message)) return refusal;
  return new SandlotError("engine_forbidden", { verb, resource, namespace, fix: ruleFor(verb, resource) }, cause);
}

/** The rule of a Role that would grant it. */
export function ruleFor(verb: string, resource: string): string {
  const group = resource === "networkpolicies" ? "networking.k8s.io" : "";
  return `- apiGroups: ["${group}"]\n  resources: ["${resource}"]\n  verbs: ["${verb}"]`;
}

function unavailable(problem: string, refusal: ApiRefusal): SandlotError {
  const details = { engine: "kubernetes", problem, tried: [], retryAfterMs: 5_000 };
  return new SandlotError("engine_unavailable", details, { cause: refusal });
}
