/** What the API server shows of a pod proves that nothing runs, or it does not. Unknown never means dead. */

import { describe, expect, it } from "vitest";
import { livenessOf, proofOf } from "../../../src/backends/kubernetes/pod/proof.ts";
import { ended, pod, RUNNING, WAITING } from "./pods.ts";

const DELETED = { deletionTimestamp: "2030-01-01T00:00:00Z" };
const READY = { conditions: [{ type: "Ready", status: "True" }] };

describe("proof that nothing of a pod runs", () => {
  it("is a terminal phase with every container terminated", () => {
    expect(proofOf(pod({ phase: "Failed", state: ended(137) }))).toBe("ended");
    expect(proofOf(pod({ phase: "Succeeded", state: ended() }))).toBe("ended");
    expect(proofOf(pod({ phase: "Running", state: ended() }))).toBeNull();
  });

  it("is not a phase that the collector set while a container runs, waits or is not reported", () => {
    expect(proofOf(pod({ phase: "Failed", state: RUNNING }))).toBeNull();
    expect(proofOf(pod({ phase: "Failed", state: WAITING }))).toBeNull();
    expect(proofOf(pod({ phase: "Failed", statuses: "missing" }))).toBeNull();
    expect(proofOf(pod({ phase: "Failed", statuses: "missing", ...DELETED }))).toBeNull();
  });

  it("needs the word about a debug container that was added to the pod", () => {
    expect(proofOf(pod({ phase: "Failed", state: ended(1), debug: null }))).toBeNull();
    expect(proofOf(pod({ phase: "Failed", state: ended(1), debug: RUNNING }))).toBeNull();
    expect(proofOf(pod({ phase: "Failed", state: ended(1), debug: ended() }))).toBe("ended");
  });

  it("lets containers behind a failed init container wait", () => {
    expect(proofOf(pod({ phase: "Failed", init: ended(1), state: WAITING }))).toBe("ended");
    expect(proofOf(pod({ phase: "Failed", init: ended(0), state: WAITING }))).toBeNull();
    expect(proofOf(pod({ phase: "Failed", init: ended(1), state: RUNNING }))).toBeNull();
  });

  it("is a deletion before any node was chosen, and not one after", () => {
    expect(proofOf(pod({ phase: "Pending", nodeName: "", statuses: "missing", ...DELETED }))).toBe("never-scheduled");
    expect(proofOf(pod({ phase: "Pending", nodeName: "", statuses: "missing" }))).toBeNull();
    expect(proofOf(pod({ phase: "Pending", nodeName: "node1", statuses: "missing", ...DELETED }))).toBeNull();
  });

  it("is an administrator's word", () => {
    const annotations = { "sandlot.dev/confirmed-dead": "2030-01-01T00:00:00Z ann" };
    expect(proofOf(pod({ state: RUNNING, annotations }))).toBe("confirmed");
  });
});

describe("the liveness of a pod", () => {
  it("is alive only where it runs and is ready", () => {
    expect(livenessOf(pod(READY))).toBe("alive");
    expect(livenessOf(pod())).toBe("unknown");
    expect(livenessOf(pod({ ...READY, state: ended() }))).toBe("unknown");
    expect(livenessOf(pod({ ...READY, ...DELETED }))).toBe("unknown");
  });

  it("is unknown while it is gated, and dead at proof", () => {
    expect(livenessOf(pod({ phase: "Pending", nodeName: "", gated: true, statuses: "missing" }))).toBe("unknown");
    expect(livenessOf(pod({ phase: "Failed", state: ended(1) }))).toBe("dead");
  });
});
