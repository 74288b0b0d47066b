/**
 * What a blueprint may set on its pods, for an engine that has pods. Everything else of a pod belongs to the backend:
 * another field could weaken the isolation, so it is an error.
 *
 * The values keep the shape that Kubernetes gives them. The API server checks the parts that are lists of objects.
 */

import { z } from "zod";

const name = z.string().min(1, "must not be empty");
const words = z.record(name, z.string());
/** An object of the Kubernetes API, passed on as it is. */
const apiObject = z.record(z.string(), z.unknown());

export const podSettingsSchema = z
  .strictObject({
    nodeSelector: words.optional().describe("Labels that a node must have."),
    tolerations: z.array(apiObject).optional().describe("Taints of nodes that its pods accept, as in a pod."),
    affinity: apiObject.optional().describe("Affinity and anti-affinity, as in a pod."),
    topologySpreadConstraints: z.array(apiObject).optional().describe("How pods spread over nodes, as in a pod."),
    priorityClassName: name.optional().describe("The priority class. Default: `kubernetes.priorityClassName`."),
    schedulerName: name.optional().describe("Another scheduler than the cluster's default."),
    imagePullSecrets: z.array(name).optional().describe("Secrets of the namespace for pulling the image."),
    extendedResources: words
      .optional()
      .describe('Resources such as `nvidia.com/gpu: "1"`, set as request and as limit.'),
    seLinuxLevel: name.optional().describe("The SELinux level, such as `s0:c1,c2`."),
    labels: words.optional().describe("Further labels of its pods. None may begin with `sandlot.dev/`."),
  })
  .describe("Where and how its pods are scheduled, for the kubernetes backend.");

export type PodSettings = Readonly<z.output<typeof podSettingsSchema>>;
