/**
 * A pod as the API server shows it: the parts of it that decide whether something runs.
 */

import { z } from "zod";
import type { ApiObject } from "../api/api.ts";
import { apiObjectSchema } from "../api/api.ts";

const terminated = z.looseObject({
  exitCode: z.int().default(0),
  reason: z.string().default(""),
  message: z.string().default(""),
  finishedAt: z.string().nullish(),
});

const waiting = z.looseObject({ reason: z.string().default(""), message: z.string().default("") });

const containerStatus = z.looseObject({
  name: z.string(),
  state: z
    .looseObject({
      waiting: waiting.optional(),
      running: z.looseObject({}).optional(),
      terminated: terminated.optional(),
    })
    .default({}),
});

const condition = z.looseObject({
  type: z.string(),
  status: z.string(),
  reason: z.string().default(""),
  message: z.string().default(""),
  lastTransitionTime: z.string().nullish(),
});

const named = z.looseObject({ name: z.string() });
const statuses = z.array(containerStatus).nullish();

const podSchema = apiObjectSchema.extend({
  spec: z.looseObject({
    nodeName: z.string().default(""),
    hostUsers: z.boolean().optional(),
    schedulingGates: z.array(named).nullish(),
    containers: z.array(named),
    initContainers: z.array(named).nullish(),
    ephemeralContainers: z.array(named).nullish(),
    volumes: z.array(named).nullish(),
  }),
  status: z
    .looseObject({
      phase: z.string().default(""),
      reason: z.string().default(""),
      message: z.string().default(""),
      podIP: z.string().default(""),
      hostIP: z.string().default(""),
      conditions: z.array(condition).nullish(),
      containerStatuses: statuses,
      initContainerStatuses: statuses,
      ephemeralContainerStatuses: statuses,
    })
    .prefault({}),
});

export type Pod = z.output<typeof podSchema>;
export type ContainerStatus = z.output<typeof containerStatus>;
export type Condition = z.output<typeof condition>;

export function podOf(object: ApiObject): Pod {
  return podSchema.parse(object);
}

export function conditionOf(pod: Pod, type: string): Condition | undefined {
  return pod.status.conditions?.find((one) => one.type === type);
}

export function isBeingDeleted(pod: Pod): boolean {
  return typeof pod.metadata.deletionTimestamp === "string";
}

export function isGated(pod: Pod, gate: string): boolean {
  return pod.spec.schedulingGates?.some(({ name }) => name === gate) === true;
}

export function isTerminal(pod: Pod): boolean {
  return pod.status.phase === "Failed" || pod.status.phase === "Succeeded";
}
