/** The cause of a death, from what the API server shows of the pod. */

import { describe, expect, it } from "vitest";
import { causeOfDeath } from "../../../src/backends/kubernetes/pod/cause.ts";
import { ended, type PodLook, pod } from "./pods.ts";

const disrupted = (reason: string, message = "") => ({
  conditions: [{ type: "DisruptionTarget", status: "True", reason, message }],
});
const cause = (look: PodLook, wasAsked = false) => causeOfDeath(pod({ phase: "Failed", ...look }), { wasAsked });

describe("the cause of a pod's death", () => {
  it.each([
    ["exited", { state: ended(1, "Error") }],
    ["exited", { phase: "Succeeded", state: ended(0) }],
    ["out-of-memory", { state: ended(137, "OOMKilled") }],
    ["deadline", { reason: "DeadlineExceeded", state: ended(137, "Error") }],
    ["disk-limit", { reason: "Evicted", state: ended(137, "Error") }],
    ["node-pressure", { reason: "Evicted", ...disrupted("TerminationByKubelet"), state: ended(137) }],
    [
      "node-shutdown",
      { ...disrupted("TerminationByKubelet", "Pod was terminated in response to imminent node shutdown.") },
    ],
    ["preempted", { ...disrupted("PreemptionByScheduler"), state: ended(143) }],
    ["drained", { ...disrupted("EvictionByEvictionAPI"), state: ended(143) }],
    ["node-lost", { ...disrupted("DeletionByPodGC") }],
  ] as const)("is %s", (expected, look) => {
    expect(cause(look as PodLook)).toBe(expected);
  });

  it("is no lack of memory where a command was killed for it once, and the sandbox ended by itself", () => {
    expect(cause({ state: ended(0, "OOMKilled") })).toBe("exited");
  });

  it("is no lack of memory where the end was asked for", () => {
    expect(cause({ state: ended(137, "OOMKilled") }, true)).not.toBe("out-of-memory");
  });

  it("is a deletion only where it was asked for before the end", () => {
    const before = { deletionTimestamp: "2030-01-01T00:00:10Z", deletionGracePeriodSeconds: 2 };
    expect(cause({ ...before, state: ended(137, "Error", "2030-01-01T00:00:09Z") }, true)).toBe("deleted");
    expect(cause({ ...before, state: ended(1, "Error", "2030-01-01T00:00:01Z") }, true)).toBe("exited");
  });
});
