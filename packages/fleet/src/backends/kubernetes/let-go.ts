/**
 * Ends the sandboxes of a fleet that has no gateway any more, and takes their finalizers off: the chart's hook does the
 * same when it is removed (`deploy/helm/sandlot/files/let-go.mjs`); this is for a namespace that hangs.
 *
 * Invariants
 * - A pod whose end is not proved keeps its finalizer, unless the operator says that its machine is off.
 * - Gateways that still run are a refusal: they would replace what is ended.
 * - Volumes and claims stay.
 */

import { SandlotError } from "@sandlot/contract";
import type { LetGo } from "../../backend/entry.ts";
import { sideBySide, within } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import { type ApiClient, openApi } from "./api/client.ts";
import { explainStop } from "./explain.ts";
import { PodLiveness } from "./liveness.ts";
import { fleetSelector, formatRef, LABEL, ROLE } from "./pod/names.ts";
import { type Pod, podOf } from "./pod/pod.ts";
import { Remover } from "./remover.ts";
import type { KubernetesSettings } from "./settings.ts";

const AT_ONCE = 8;
/** The grace period of a pod, and the kubelet's rounds. */
const PROOF_MS = 20_000;

export async function letGo(
  settings: KubernetesSettings,
  world: World,
  machinesAreOff: boolean,
  signal: AbortSignal,
): Promise<LetGo> {
  const api = await openApi(settings.kubernetes, world);
  try {
    const gateways = await api.list("pods", { labelSelector: `${LABEL.role}=${ROLE.gateway},!${LABEL.trial}` }, signal);
    const [gateway] = gateways.items.filter(({ metadata }) => typeof metadata.deletionTimestamp !== "string");
    if (gateway !== undefined)
      throw new SandlotError("invalid_request", {
        field: "kubernetes.namespace",
        problem: `the gateway ${gateway.metadata.name} still runs there: remove the installation first`,
      });
    return await endAll(api, world, settings, machinesAreOff, signal);
  } finally {
    api.close();
  }
}

async function endAll(
  api: ApiClient,
  world: World,
  settings: KubernetesSettings,
  machinesAreOff: boolean,
  signal: AbortSignal,
): Promise<LetGo> {
  const liveness = new PodLiveness({ api, nodeLoss: settings.kubernetes.nodeLoss, answers: async () => false });
  const nothing = { release: async () => "dropped" as const, isOccupied: async () => false };
  const quiet = { ending: () => {}, onChange: () => () => {} };
  const remover = new Remover({ ...quiet, api, world, liveness, workspaces: nothing });
  const pods = (await api.list("pods", { labelSelector: fleetSelector(settings.fleetId) }, signal)).items.map(podOf);
  const left: { name: string; because: string }[] = [];
  const end = async (pod: Pod): Promise<void> => {
    const { name, uid } = pod.metadata;
    const late = () => new Error("its end was not confirmed in time");
    try {
      await within(world, PROOF_MS, signal, late, (either) => remover.end(name, uid, either));
    } catch (error) {
      signal.throwIfAborted();
      if (machinesAreOff) return remover.letGo(pod, signal);
      const said = await explainStop(api, settings, formatRef({ namespace: api.namespace, name, uid }), signal);
      left.push({ name: `pod ${name}`, because: said ?? (error instanceof Error ? error.message : String(error)) });
    }
  };
  await sideBySide(pods, AT_ONCE, end);
  if (left.length === 0) await forget(api, settings, signal);
  return { ended: pods.length - left.length, left };
}

/** The fleet's own objects, and pods of trials. */
async function forget(api: ApiClient, { fleetId }: KubernetesSettings, signal: AbortSignal): Promise<void> {
  const trials = await api.list("pods", { labelSelector: `${LABEL.trial}=${fleetId}` }, signal);
  for (const { metadata } of trials.items)
    await api.remove("pods", metadata.name, { uid: metadata.uid, gracePeriodSeconds: 0 }, signal);
  for (const [kind, name] of [
    ["configmaps", `sandlot-fleet-${fleetId}`],
    ["secrets", `sandlot-key-${fleetId}`],
  ] as const) {
    const found = await api.get(kind, name, signal);
    if (found !== null) await api.remove(kind, name, { uid: found.metadata.uid }, signal);
  }
}
