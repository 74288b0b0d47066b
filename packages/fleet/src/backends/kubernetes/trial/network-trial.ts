/**
 * Tries whether the cluster enforces network policies. Three pods: two as sandboxes with the policy `none`, on two nodes where
 * there are two, and one as a gateway.
 *
 *   gateway side ──▶ both sandbox sides    has to get through: otherwise the trial shows nothing
 *   gateway side ──▶ canary                has to get through: sandboxes prove their own policy by its refusal
 *   sandbox side ──▶ gateway, canary, metadata, the other sandbox, other nodes     has to be refused
 *   sandbox side ──▶ its own node, Services   told: the standard always allows a pod its own node, and a Service may end there
 */

import { SandlotError } from "@sandlot/contract";
import { z } from "zod";
import { ROLE } from "../pod/names.ts";
import type { Pod } from "../pod/pod.ts";
import { DAEMON_PORT } from "../settings.ts";
import { type TrialContext, TrialPods } from "./trial-pods.ts";
import { GATEWAY_PROGRAM, SANDBOX_PROGRAM } from "./trial-programs.ts";

export interface NetworkReport {
  /** What the own node offers to every pod on it, for a person. */
  readonly ownNode: readonly string[];
  /** How long the sandbox side reached something that is forbidden. */
  readonly tookMs: number;
  /** Where the sandbox sides were. */
  readonly nodes: readonly string[];
}

/** As the canary of every sandbox (`CANARY_TIMEOUT_MS`). */
const SETTLE_MS = 10_000;
/** Egress proxies of a new fleet start after its first gateway, which makes their key. */
const CANARY_MS = 20_000;
/** SSH, DNS, HTTP, etcd, API servers, kubelet and its helpers. */
const NODE_PORTS = [22, 53, 80, 443, 2379, 2380, 4194, 6443, 8443, 10248, 10249, 10250, 10255, 10256, 16443];
const METADATA = { name: "the metadata service", host: "169.254.169.254", port: 80 };

const KUBELET_PORT = 10_250;

const target = z.object({ name: z.string(), host: z.string(), port: z.number() });
const answerSchema = z.discriminatedUnion("isConnected", [
  z.object({ isConnected: z.literal(false), isCanaryUp: z.boolean(), problem: z.string() }),
  z.object({
    isConnected: z.literal(true),
    isCanaryUp: z.boolean(),
    found: z.array(
      z.object({
        reached: z.array(target),
        services: z.array(target),
        node: z.object({ host: z.string(), ports: z.array(z.number()) }),
        tookMs: z.number(),
      }),
    ),
  }),
]);

/** Rejects with `isolation_unavailable` when something gets through, and otherwise when the trial could not be made. */
export async function tryNetwork(context: TrialContext, signal: AbortSignal): Promise<NetworkReport> {
  const { egress } = context.settings.kubernetes;
  const pods = new TrialPods(context);
  try {
    const side = { role: ROLE.sandbox, network: "none", program: SANDBOX_PROGRAM } as const;
    const made = [await pods.make(side, signal), await pods.make(side, signal)];
    const sandboxes = await Promise.all(made.map((one) => pods.running(one, signal)));
    const canary =
      egress.host === undefined ? null : { name: "the canary", host: egress.host, port: egress.canaryPort };
    const wish = {
      targets: [METADATA, ...(canary === null ? [] : [canary]), ...nodeTargets(sandboxes)],
      services: [],
      // Where gateways are outside, the daemon's port is open to every source that its egress lets out: the key guards it.
      sandboxPorts: [DAEMON_PORT + 1, ...(context.api.transport.access.isInside ? [DAEMON_PORT] : [])],
      ...{ ports: NODE_PORTS, settleMs: SETTLE_MS, canary, canaryMs: CANARY_MS },
    };
    const addresses = sandboxes.map(({ status }) => status.podIP);
    const environment = { SANDBOX_IPS: addresses.join(","), WISH: JSON.stringify(wish) };
    const gateway = await pods.make({ role: ROLE.gateway, program: GATEWAY_PROGRAM, environment }, signal);
    const nodes = [...new Set(sandboxes.map(({ spec }) => spec.nodeName))].sort();
    return { ...judged(await pods.ended(gateway, signal), context), nodes };
  } finally {
    // The cluster ends them, where it cannot be asked now.
    await pods.removeAll().catch(() => {});
  }
}

/** The kubelets of the sandbox sides' nodes. Each side leaves its own node out. */
function nodeTargets(sandboxes: readonly Pod[]): readonly z.output<typeof target>[] {
  return sandboxes.flatMap(({ spec, status }) =>
    status.hostIP === "" ? [] : [{ name: `node ${spec.nodeName}`, host: status.hostIP, port: KUBELET_PORT }],
  );
}

function judged(text: string, { settings }: TrialContext): Omit<NetworkReport, "nodes"> {
  const parsed = answerSchema.safeParse(readJson(text));
  if (!parsed.success) throw unknown(`the trial pod answered with something else: ${text.slice(0, 200)}`);
  const { data } = parsed;
  if (!data.isConnected)
    throw refused(
      `a pod with the role of a gateway cannot reach a sandbox: ${data.problem}`,
      "Allow connections between pods of the namespace to port 7411; a policy of the namespace may forbid them.",
    );
  const { host, canaryPort } = settings.kubernetes.egress;
  if (!data.isCanaryUp) throw unknown(`the canary ${host}:${canaryPort} does not answer, and sandboxes need it`);
  const reached = [...new Set(data.found.flatMap((one) => one.reached.map(named)))];
  if (reached.length > 0)
    throw refused(
      `no network policy is enforced: a sandbox with network mode none reached ${reached.join(", ")}`,
      "Install a network plugin that enforces NetworkPolicy, or set kubernetes.networkPolicy to external if something else isolates pods.",
    );
  const open = data.found.flatMap(({ node, services }) => [
    ...node.ports.map((port) => `${node.host}:${port}`),
    ...services.map(named),
  ]);
  const ownNode = [...new Set(open)];
  if (settings.kubernetes.ownNode === "refuse" && ownNode.length > 0)
    throw refused(
      `a sandbox reaches its own node: ${ownNode.join(", ")}`,
      "Close these ports with the node's own firewall, or set kubernetes.ownNode to warn.",
    );
  return { ownNode, tookMs: Math.max(...data.found.map(({ tookMs }) => tookMs)) };
}

function named({ name, host, port }: z.output<typeof target>): string {
  return `${name} (${host}:${port})`;
}

function readJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function refused(problem: string, fix: string): SandlotError {
  return new SandlotError("isolation_unavailable", { backend: "kubernetes", problem, fix });
}

function unknown(problem: string): SandlotError {
  return new SandlotError("engine_unavailable", { engine: "kubernetes", problem, tried: [], retryAfterMs: 5_000 });
}
