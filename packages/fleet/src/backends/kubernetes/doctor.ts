/**
 * Checks what the kubernetes backend needs of its cluster: permissions, Pod Security, policies, volumes, the runtime
 * class, quotas and images. Where pods may be made, trial pods show what images, network and volume really do; they are
 * removed, and nothing else is changed.
 */

import { isSandlotError } from "@sandlot/contract";
import { z } from "zod";
import type { Finding } from "../../backend/doctor/finding.ts";
import { systemWorld } from "../../world/system-world.ts";
import type { Kind } from "./api/api.ts";
import { type ApiClient, openApi } from "./api/client.ts";
import { ruleFor } from "./api/refusals.ts";
import { POLICY_NAMES } from "./network/policies.ts";
import { PodSecrets } from "./pod/pod-secret.ts";
import type { KubernetesSettings } from "./settings.ts";
import { imageFindings, networkFindings, userFindings, volumeTrialFindings } from "./trial/trial-findings.ts";
import { podWorkspaces } from "./workspaces/open-workspaces.ts";

/** Images may have to be fetched. */
const DEADLINE_MS = 300_000;
/** Scheduling gates are stable since then. */
const MINOR_MIN = 30;

/** What one Role must grant; see docs/backends/kubernetes.md. */
const NEEDED: readonly (readonly [Kind, readonly string[]])[] = [
  ["pods", ["create", "get", "list", "watch", "patch", "delete"]],
  ["secrets", ["create", "get", "patch", "delete"]],
  ["configmaps", ["create", "get"]],
  ["events", ["list"]],
];

const reviewSchema = z.looseObject({ status: z.looseObject({ allowed: z.boolean() }) });
const quotaSchema = z.looseObject({
  metadata: z.looseObject({ name: z.string() }),
  status: z
    .looseObject({
      hard: z.record(z.string(), z.string()).default({}),
      used: z.record(z.string(), z.string()).default({}),
    })
    .prefault({}),
});

export async function kubernetesFindings(settings: KubernetesSettings): Promise<readonly Finding[]> {
  const signal = AbortSignal.timeout(DEADLINE_MS);
  let api: ApiClient;
  let version: string;
  try {
    api = await openApi(settings.kubernetes, systemWorld());
    version = await api.version(signal);
  } catch (error) {
    if (!isSandlotError(error)) throw error;
    const fix = "check the kubeconfig with `kubectl version`, or set kubernetes.kubeconfig and kubernetes.context";
    return [{ name: "cluster", status: "fail", detail: error.message, fix }];
  }
  try {
    const policies = await policyFinding(api, settings, signal);
    const seen = [
      ...(await permissionFindings(api, settings, signal)),
      ...(await namespaceFindings(api, signal)),
      ...(await runtimeFindings(api, settings, signal)),
      ...(await volumeFindings(api, settings, signal)),
    ];
    // Pods are made only where they can start, and can be removed again.
    const mayTry = seen.every(({ status }) => status !== "fail");
    return [
      ...[versionFinding(version, api.server), ...seen, policies],
      ...(mayTry ? await trialFindings(api, settings, policies.status === "ok", signal) : []),
      ...(await quotaFindings(api, signal)),
      ...limitsFindings(),
    ];
  } finally {
    api.close();
  }
}

/** What pods show. */
async function trialFindings(
  api: ApiClient,
  settings: KubernetesSettings,
  triesNetwork: boolean,
  signal: AbortSignal,
): Promise<readonly Finding[]> {
  const world = systemWorld();
  const context = { api, settings, world };
  const images = await imageFindings(context, signal);
  if (images.some(({ status }) => status === "fail")) return images;
  const network = triesNetwork ? await networkFindings(context, signal) : [];
  const { workspaces } = settings.kubernetes;
  if (workspaces.mode !== "claim" || workspaces.claim === undefined || workspaces.root === undefined)
    return [...images, ...network, ...(workspaces.mode === "claim" ? [] : await userFindings(null, context, signal))];
  const opened = podWorkspaces(api, settings, new PodSecrets(api, settings.fleetId, signal), {
    ...{ world, signal },
    onProblem: () => {},
  });
  try {
    const volume = await volumeTrialFindings(opened, context, signal);
    return [...images, ...network, ...volume, ...(await userFindings(opened, context, signal))];
  } finally {
    await opened.close();
  }
}

function versionFinding(version: string, server: string): Finding {
  const minor = Number(/^v1\.(\d+)/.exec(version)?.[1] ?? 0);
  const detail = `Kubernetes ${version} at ${server}`;
  if (minor >= MINOR_MIN) return { name: "cluster", status: "ok", detail };
  return { name: "cluster", status: "fail", detail, fix: `upgrade to Kubernetes 1.${MINOR_MIN} or newer` };
}

async function permissionFindings(
  api: ApiClient,
  { kubernetes, fleetId }: KubernetesSettings,
  signal: AbortSignal,
): Promise<readonly Finding[]> {
  const forwards = kubernetes.connect === "port-forward" || (kubernetes.connect === "auto" && !isInside(api));
  const perThread: typeof NEEDED =
    kubernetes.workspaces.mode === "per-thread"
      ? [["persistentvolumeclaims", ["create", "get", "list", "patch", "delete"]]]
      : [];
  const missing: string[] = [];
  for (const [resource, verbs] of [...NEEDED, ...perThread])
    for (const verb of verbs)
      if (!(await isAllowed(api, { resource, verb, ...nameOf(resource, verb, fleetId) }, signal)))
        missing.push(ruleFor(verb, resource));
  if (forwards && !(await isAllowed(api, { resource: "pods", subresource: "portforward", verb: "create" }, signal)))
    missing.push(ruleFor("create", "pods/portforward"));
  const permissions: Finding =
    missing.length === 0
      ? { name: "permissions", status: "ok", detail: `everything that is needed in namespace ${api.namespace}` }
      : {
          name: "permissions",
          status: "fail",
          detail: `${missing.length} rules are missing in namespace ${api.namespace}`,
          fix: `add to the Role:\n${missing.join("\n")}`,
        };
  const readsNodes = await isAllowed(api, { resource: "nodes", verb: "get", ofCluster: true }, signal);
  return [permissions, nodesFinding(readsNodes)];
}

/** The one ConfigMap is enough; a rule by name cannot allow to make it. */
function nameOf(resource: Kind, verb: string, fleetId: string): { readonly name?: string } {
  return resource === "configmaps" && verb === "get" ? { name: `sandlot-fleet-${fleetId}` } : {};
}

function nodesFinding(readsNodes: boolean): Finding {
  if (readsNodes) return { name: "nodes", status: "ok", detail: "a lost node can be told from a silent one" };
  const detail = "nodes may not be read: sandboxes of a lost node wait for `sandlot confirm-dead`";
  return { name: "nodes", status: "warn", detail, fix: `bind a ClusterRole with\n${ruleFor("get", "nodes")}` };
}

interface Asked {
  readonly resource: string;
  readonly subresource?: string;
  readonly verb: string;
  /** One object only. */
  readonly name?: string;
  readonly ofCluster?: boolean;
}

async function isAllowed(
  api: ApiClient,
  { resource, subresource, verb, name, ofCluster }: Asked,
  signal: AbortSignal,
): Promise<boolean> {
  const group = resource === "networkpolicies" ? "networking.k8s.io" : "";
  const resourceAttributes = {
    ...{ verb, resource, group },
    ...(subresource !== undefined && { subresource }),
    ...(name !== undefined && { name }),
    ...(ofCluster !== true && { namespace: api.namespace }),
  };
  const body = {
    apiVersion: "authorization.k8s.io/v1",
    kind: "SelfSubjectAccessReview",
    metadata: { name: "" },
    spec: { resourceAttributes },
  };
  return reviewSchema.parse(await api.review(body, signal)).status.allowed;
}

const ENFORCE = "pod-security.kubernetes.io/enforce";

async function namespaceFindings(api: ApiClient, signal: AbortSignal): Promise<readonly Finding[]> {
  const name = "pod security";
  try {
    const namespace = await api.get("namespaces", api.namespace, signal);
    if (namespace === null)
      return [
        {
          name: "namespace",
          status: "fail",
          detail: `there is no namespace ${api.namespace}`,
          fix: `kubectl create namespace ${api.namespace}`,
        },
      ];
    if (namespace.metadata.labels[ENFORCE] === "restricted")
      return [{ name, status: "ok", detail: `namespace ${api.namespace} enforces restricted` }];
    const fix = `kubectl label namespace ${api.namespace} ${ENFORCE}=restricted`;
    const detail = `namespace ${api.namespace} does not enforce restricted; sandboxes keep to it, but nothing else has to`;
    return [{ name, status: "warn", detail, fix }];
  } catch (error) {
    if (!isSandlotError(error, "engine_forbidden")) throw error;
    return [{ name, status: "warn", detail: "the namespace may not be read, so its level is not known" }];
  }
}

async function policyFinding(
  api: ApiClient,
  { kubernetes }: KubernetesSettings,
  signal: AbortSignal,
): Promise<Finding> {
  const name = "network policies";
  if (kubernetes.networkPolicy === "external") {
    const detail = "the operator answers for the isolation of the network; nothing is checked";
    return { name, status: "warn", detail, fix: "set kubernetes.networkPolicy to enforce" };
  }
  if (kubernetes.egress.host === undefined) {
    const detail = "without egress proxies there is no canary, so sandboxes cannot prove that policies are enforced";
    return { name, status: "fail", detail, fix: "set kubernetes.egress.host, or kubernetes.networkPolicy to external" };
  }
  try {
    const { items } = await api.list("networkpolicies", {}, signal);
    const there = new Set(items.map(({ metadata }) => metadata.name));
    const missing = POLICY_NAMES.filter((one) => !there.has(one));
    if (missing.length === 0) return { name, status: "ok", detail: "present; every sandbox proves that they hold" };
    if (await isAllowed(api, { resource: "networkpolicies", verb: "create" }, signal))
      return { name, status: "warn", detail: `the first sandbox installs them: ${missing.join(", ")}` };
    return {
      name,
      status: "fail",
      detail: `missing: ${missing.join(", ")}`,
      fix: "create them; docs/backends/kubernetes.md says what each allows",
    };
  } catch (error) {
    if (!isSandlotError(error, "engine_forbidden")) throw error;
    return { name, status: "ok", detail: "they may not be listed; a trial and every sandbox show whether they hold" };
  }
}

async function runtimeFindings(
  api: ApiClient,
  { kubernetes, blueprints }: KubernetesSettings,
  signal: AbortSignal,
): Promise<readonly Finding[]> {
  const own = Object.values(blueprints).map(({ blueprint }) => blueprint.runtime);
  const wanted = new Set([kubernetes.runtimeClass ?? undefined, ...own].filter((one) => one !== undefined));
  const findings: Finding[] = [];
  for (const runtime of wanted) {
    try {
      const found = await api.get("runtimeclasses", runtime, signal);
      const name = "runtime class";
      if (found !== null) findings.push({ name, status: "ok", detail: runtime });
      else
        findings.push({ name, status: "fail", detail: `${runtime} is not there`, fix: "kubectl get runtimeclasses" });
    } catch (error) {
      if (!isSandlotError(error, "engine_forbidden")) throw error;
    }
  }
  return findings;
}

async function volumeFindings(
  api: ApiClient,
  { kubernetes }: KubernetesSettings,
  signal: AbortSignal,
): Promise<readonly Finding[]> {
  const { workspaces, volumes } = kubernetes;
  const named = Object.values(volumes).flatMap(({ claim }) => (claim === undefined ? [] : [claim]));
  const claims = new Set([...(workspaces.claim === undefined ? [] : [workspaces.claim]), ...named]);
  const findings: Finding[] = [];
  if (workspaces.mode === "none") {
    const detail = "workspaces end with their sandbox";
    findings.push({ name: "workspaces", status: "warn", detail, fix: "set kubernetes.workspaces.mode" });
  }
  for (const claim of claims) {
    const found = await api.get("persistentvolumeclaims", claim, signal).catch((error: unknown) => {
      if (isSandlotError(error, "engine_forbidden")) return undefined;
      throw error;
    });
    if (found === undefined) continue;
    const name = `claim ${claim}`;
    const phase = (found as { status?: { phase?: string } } | null)?.status?.phase ?? "absent";
    if (phase === "Bound") findings.push({ name, status: "ok", detail: "bound" });
    else findings.push({ name, status: "fail", detail: phase, fix: `kubectl describe persistentvolumeclaim ${claim}` });
  }
  return findings;
}

async function quotaFindings(api: ApiClient, signal: AbortSignal): Promise<readonly Finding[]> {
  try {
    const { items } = await api.list("resourcequotas", {}, signal);
    return items.map((item) => {
      const { metadata, status } = quotaSchema.parse(item);
      const used = Object.entries(status.hard).map(([what, hard]) => `${what} ${status.used[what] ?? "0"} of ${hard}`);
      return { name: `quota ${metadata.name}`, status: "ok", detail: used.join(", ") };
    });
  } catch (error) {
    if (!isSandlotError(error, "engine_forbidden")) throw error;
    return [];
  }
}

function limitsFindings(): readonly Finding[] {
  const detail = "a pod cannot limit its processes: the kubelet's podPidsLimit does, and may not be set";
  const fix = "set podPidsLimit in the kubelets' configuration, for example to 4096";
  return [{ name: "processes", status: "warn", detail, fix }];
}

function isInside(api: ApiClient): boolean {
  return api.transport.access.isInside;
}
