/**
 * Brings the three policies of sandboxes into the namespace, where this process may do so. The chart installs them itself, and
 * its gateways have no right to change them: then they are left as they are, and the trial shows whether they hold.
 *
 * Invariants
 * - A policy that something else made is never changed: an operator may have a stricter one.
 * - Of two processes that install at once, one finds those of the other.
 */

import { isDeepStrictEqual } from "node:util";
import { isSandlotError } from "@sandlot/contract";
import { z } from "zod";
import { type Api, isRefusal, type PatchStep } from "../api/api.ts";
import type { KubernetesConfig } from "../config.ts";
import { networkPolicies } from "./policies.ts";

/** Who made an object, by the label that Kubernetes recommends. */
const MANAGED_BY = "app.kubernetes.io/managed-by";
const OURS = "sandlot";

const policySchema = z.looseObject({
  metadata: z.looseObject({ name: z.string() }),
  spec: z.looseObject({ ingress: z.array(z.unknown()).default([]), egress: z.array(z.unknown()).default([]) }),
});

/** `foreign`: something else made it, and it is another one than ours. */
export type Installed = "present" | "made" | "mended" | "foreign" | "forbidden";

export async function installPolicies(
  api: Api,
  { egress, clusterRanges }: Pick<KubernetesConfig, "egress" | "clusterRanges">,
  gatewaysAreInside: boolean,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, Installed>> {
  const done = new Map<string, Installed>();
  for (const policy of networkPolicies({ egressPort: egress.port, clusterRanges, gatewaysAreInside })) {
    const { name } = policySchema.parse(policy).metadata;
    done.set(name, await install(api, name, policy, signal).catch(forbidden));
  }
  return done;
}

async function install(api: Api, name: string, policy: object, signal: AbortSignal): Promise<Installed> {
  const wanted = policySchema.parse(policy).spec;
  const found = await api.get("networkpolicies", name, signal);
  if (found === null) {
    const labelled = { ...policy, metadata: { name, labels: { [MANAGED_BY]: OURS } } };
    try {
      await api.create("networkpolicies", labelled, signal);
      return "made";
    } catch (error) {
      if (!isRefusal(error, 409)) throw error;
      return "present";
    }
  }
  if (isDeepStrictEqual(plain(policySchema.parse(found).spec), plain(wanted))) return "present";
  if (found.metadata.labels[MANAGED_BY] !== OURS) return "foreign";
  const steps: PatchStep[] = [
    { op: "test", path: "/metadata/uid", value: found.metadata.uid },
    { op: "replace", path: "/spec", value: wanted },
  ];
  await api.patch("networkpolicies", name, steps, signal);
  return "mended";
}

function forbidden(error: unknown): "forbidden" {
  if (isSandlotError(error, "engine_forbidden")) return "forbidden";
  throw error;
}

function plain(value: object): unknown {
  return JSON.parse(JSON.stringify(value));
}
