/** Pods as the API server shows them, for tests. */

import type { ApiObject } from "../../../src/backends/kubernetes/api/api.ts";
import { type Pod, podOf } from "../../../src/backends/kubernetes/pod/pod.ts";

export const RUNNING = { running: {} };
export const WAITING = { waiting: { reason: "ContainerCreating" } };
export const ended = (exitCode = 0, reason = "Completed", finishedAt?: string) => ({
  terminated: { exitCode, reason, ...(finishedAt !== undefined && { finishedAt }) },
});

export interface PodLook {
  readonly phase?: string;
  readonly reason?: string;
  readonly nodeName?: string;
  readonly state?: object;
  readonly init?: object;
  readonly debug?: object | null;
  readonly conditions?: readonly object[];
  readonly deletionTimestamp?: string;
  readonly deletionGracePeriodSeconds?: number;
  readonly annotations?: Record<string, string>;
  readonly gated?: boolean;
  readonly podIP?: string;
  readonly statuses?: "missing";
}

export function pod(look: PodLook = {}): Pod {
  const {
    phase = "Running",
    reason = "",
    nodeName = "node1",
    state = RUNNING,
    conditions = [],
    podIP = "10.0.0.1",
  } = look;
  const status = (name: string, one: object) => [{ name, state: one }];
  return podOf({
    metadata: {
      ...{ name: "sandlot-a", uid: "u", resourceVersion: "1", labels: {}, finalizers: [] },
      annotations: look.annotations ?? {},
      ...(look.deletionTimestamp !== undefined && {
        deletionTimestamp: look.deletionTimestamp,
        deletionGracePeriodSeconds: look.deletionGracePeriodSeconds ?? 0,
      }),
    },
    spec: {
      nodeName,
      containers: [{ name: "sandbox" }],
      ...(look.init !== undefined && { initContainers: [{ name: "daemon" }] }),
      ...(look.debug !== undefined && { ephemeralContainers: [{ name: "debug" }] }),
      ...(look.gated === true && { schedulingGates: [{ name: "sandlot.dev/intent" }] }),
    },
    status: {
      ...{ phase, reason, conditions, podIP },
      ...(look.statuses !== "missing" && { containerStatuses: status("sandbox", state) }),
      ...(look.init !== undefined && { initContainerStatuses: status("daemon", look.init) }),
      ...(look.debug != null && { ephemeralContainerStatuses: status("debug", look.debug) }),
    },
  } as unknown as ApiObject);
}
