/**
 * How far a new pod has come, and why it does not come further. Pure, but for the log of a container that has ended.
 *
 * A pod that waits is an error only at its deadline: an autoscaler or a registry may take minutes. Only what cannot
 * change any more fails at once.
 */

import { SandlotError } from "@sandlot/contract";
import { z } from "zod";
import type { ApiObject } from "../api/api.ts";
import { conditionOf, isTerminal, type Pod } from "./pod.ts";

export type Stage = "scheduling" | "pulling" | "starting" | "running";

const HOPELESS: ReadonlySet<string> = new Set(["ErrImageNeverPull", "InvalidImageName"]);
const PULL_TROUBLE: ReadonlySet<string> = new Set(["ErrImagePull", "ImagePullBackOff", ...HOPELESS]);
/** The daemon's exit code when the canary was reached: policies are not enforced. */
const NOT_ISOLATED = 3;
const RETRY_AFTER_MS = 10_000;

const eventSchema = z.looseObject({
  type: z.string().default(""),
  reason: z.string().default(""),
  message: z.string().default(""),
});

export function stageOf(pod: Pod): Stage {
  if (pod.status.phase === "Running") return "running";
  if (pod.spec.nodeName === "") return "scheduling";
  const waiting = waitingOf(pod);
  return waiting !== undefined && PULL_TROUBLE.has(waiting.reason) ? "pulling" : "starting";
}

/** Why it can never become ready; `null` while it can. */
export async function failureOf(pod: Pod, image: string, log: () => Promise<string>): Promise<SandlotError | null> {
  const waiting = waitingOf(pod);
  if (waiting !== undefined && HOPELESS.has(waiting.reason)) return imageUnavailable(image, waiting);
  if (!isTerminal(pod)) return null;
  const ended = [...(pod.status.initContainerStatuses ?? []), ...(pod.status.containerStatuses ?? [])].find(
    ({ state }) => state.terminated !== undefined && state.terminated.exitCode !== 0,
  );
  const said = lastLine(await log());
  if (ended?.state.terminated?.exitCode === NOT_ISOLATED && /canary|isolat/i.test(said)) {
    const fix =
      "Install a network plugin that enforces NetworkPolicy, or set kubernetes.networkPolicy to external if something else isolates pods.";
    return new SandlotError("isolation_unavailable", { backend: "kubernetes", problem: said, fix });
  }
  const how = ended?.state.terminated;
  const why = [
    pod.status.reason || how?.reason || "it ended",
    ...(how === undefined ? [] : [`exit code ${how.exitCode}`]),
    ...(pod.status.message || how?.message ? [pod.status.message || how?.message] : []),
    ...(said === "" ? [] : [said]),
  ];
  return failed(why.join(": "));
}

/** The error for a pod that was not ready at its deadline. */
export function explainWaiting(pod: Pod, image: string, pendingMs: number, events: readonly ApiObject[]): SandlotError {
  const scheduled = conditionOf(pod, "PodScheduled");
  if (scheduled?.status === "False" && scheduled.reason === "Unschedulable") {
    const reason = scheduled.message || "no node fits";
    return new SandlotError("cluster_full", { reason, pendingMs, retryAfterMs: RETRY_AFTER_MS });
  }
  const waiting = waitingOf(pod);
  if (waiting !== undefined && PULL_TROUBLE.has(waiting.reason)) return imageUnavailable(image, waiting);
  const warned = events
    .map((event) => eventSchema.parse(event))
    .filter(({ type }) => type === "Warning")
    .at(-1);
  const why = warned === undefined ? [] : [`${warned.reason}: ${warned.message}`];
  const stage = waiting === undefined || waiting.reason === "" ? stageOf(pod) : waiting.reason;
  return failed([`it was not ready within ${pendingMs} ms (${stage})`, ...why].join("; "));
}

function waitingOf({ status }: Pod) {
  return [...(status.initContainerStatuses ?? []), ...(status.containerStatuses ?? [])]
    .map(({ state }) => state.waiting)
    .find((waiting) => waiting !== undefined && waiting.reason !== "PodInitializing");
}

function imageUnavailable(image: string, { reason, message }: { reason: string; message: string }): SandlotError {
  return new SandlotError("image_unavailable", { image, problem: message === "" ? reason : `${reason}: ${message}` });
}

function lastLine(log: string): string {
  return (log.trim().split("\n").at(-1) ?? "").slice(0, 500);
}

function failed(problem: string): SandlotError {
  return new SandlotError("create_failed", { backend: "kubernetes", problem });
}
