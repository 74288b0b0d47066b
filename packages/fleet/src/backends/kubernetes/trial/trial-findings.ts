/**
 * What pods of the cluster have shown, for `sandlot doctor`: images that start, policies that hold, a volume that works. The pods
 * are removed; nothing else is changed.
 */

import { isSandlotError } from "@sandlot/contract";
import type { Finding } from "../../../backend/doctor/finding.ts";
import { problemOf } from "../../../observe/event-bus.ts";
import { ROLE } from "../pod/names.ts";
import type { NoWorkspaces } from "../workspaces/no-workspaces.ts";
import type { PodWorkspaces } from "../workspaces/pod-workspaces.ts";
import { SharedWorkspaces } from "../workspaces/shared-workspaces.ts";
import { tryClaim } from "./claim-trial.ts";
import { tryNetwork } from "./network-trial.ts";
import { type TrialContext, TrialPods } from "./trial-pods.ts";
import { tryUserNamespaces } from "./user-namespaces.ts";

/** Every image that the configuration names starts, and has what the daemon needs. */
export async function imageFindings(context: TrialContext, signal: AbortSignal): Promise<readonly Finding[]> {
  const { kubernetes, blueprints } = context.settings;
  const own = Object.values(blueprints).map(({ blueprint }) => blueprint.image ?? kubernetes.image);
  const findings: Finding[] = [];
  for (const image of new Set([kubernetes.image, ...own]))
    findings.push(await imageFinding(image, kubernetes.daemon === "in-image", context, signal));
  return findings;
}

async function imageFinding(
  image: string,
  hasDaemon: boolean,
  context: TrialContext,
  signal: AbortSignal,
): Promise<Finding> {
  const name = `image ${image}`;
  const pods = new TrialPods(context);
  const program = hasDaemon ? 'test -r "/opt/sandlot/sandboxd.cjs" && /opt/sandlot/d --version' : "true";
  try {
    await pods.ended(await pods.make({ role: ROLE.trial, program, isShell: true, image }, signal), signal);
    return { name, status: "ok", detail: hasDaemon ? "starts, with the daemon in it" : "starts" };
  } catch (error) {
    signal.throwIfAborted();
    const fix = isSandlotError(error, "image_unavailable")
      ? "push it where the nodes fetch images, and set imagePullSecrets of the blueprint's `pod` for a private registry"
      : hasDaemon
        ? "use an image with the daemon in /opt/sandlot (images/daemon), or set kubernetes.daemon to init-copy"
        : "use an image with /bin/sh";
    return { name, status: "fail", detail: problemOf(error), fix };
  } finally {
    await pods.removeAll().catch(() => {});
  }
}

export async function networkFindings(context: TrialContext, signal: AbortSignal): Promise<readonly Finding[]> {
  const name = "network isolation";
  try {
    const { ownNode, tookMs, nodes } = await tryNetwork(context, signal);
    const detail = `sandboxes on ${nodes.join(" and ")} were refused everything after ${tookMs} ms`;
    const held: Finding = { name, status: "ok", detail };
    if (ownNode.length === 0) return [held];
    const reached = `a sandbox reaches its own node: ${ownNode.join(", ")}`;
    const fix =
      "policies never keep a pod from its own node: let these listen elsewhere, or close them with the node's firewall";
    return [held, { name: "own node", status: "warn", detail: reached, fix }];
  } catch (error) {
    signal.throwIfAborted();
    const fix = isSandlotError(error, "isolation_unavailable")
      ? error.details.fix
      : "look at the pods of the egress proxies: `kubectl get pods -l sandlot.dev/role=egress`";
    return [{ name, status: "fail", detail: problemOf(error), fix }];
  }
}

export async function userFindings(
  workspaces: PodWorkspaces | NoWorkspaces | null,
  context: TrialContext,
  signal: AbortSignal,
): Promise<readonly Finding[]> {
  const name = "user namespaces";
  const { userNamespaces } = context.settings.kubernetes;
  const shared = "pods share accounts with their node, and inotify and other budgets of the kernel with each other";
  if (userNamespaces === "off")
    return [{ name, status: "warn", detail: shared, fix: "set kubernetes.userNamespaces to auto" }];
  const fix = "they take Kubernetes 1.33, containerd 2 or CRI-O, and a file system with id-mapped mounts";
  try {
    const claim = workspaces instanceof SharedWorkspaces ? workspaces : null;
    const problem = await tryUserNamespaces(context, claim, signal);
    if (problem === null) return [{ name, status: "ok", detail: "pods have accounts of their own" }];
    const status = userNamespaces === "require" ? "fail" : "warn";
    return [{ name, status, detail: `${shared}: ${problem}`, fix }];
  } catch (error) {
    signal.throwIfAborted();
    return [{ name, status: "fail", detail: problemOf(error), fix }];
  }
}

export async function volumeTrialFindings(
  workspaces: PodWorkspaces | NoWorkspaces,
  context: TrialContext,
  signal: AbortSignal,
): Promise<readonly Finding[]> {
  if (!(workspaces instanceof SharedWorkspaces)) return [];
  const fix = "mount the claim at kubernetes.workspaces.root of this process, as every gateway does";
  try {
    const steps = await tryClaim(workspaces, context, signal);
    return steps.map(({ step, passed, because, without }) => ({
      name: `volume: ${step}`,
      status: passed ? "ok" : without === "claim" ? "fail" : "warn",
      detail: because,
      ...(!passed && { fix: "docs/backends/kubernetes.md says what a shared volume needs" }),
    }));
  } catch (error) {
    signal.throwIfAborted();
    return [{ name: "volume", status: "fail", detail: problemOf(error), fix }];
  }
}
