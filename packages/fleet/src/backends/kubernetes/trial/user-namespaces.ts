/**
 * Tries whether pods of this cluster can have accounts of their own (`hostUsers: false`): the kubelet, the runtime and the file
 * system of the workspaces must all know how. A pod like a sandbox's, with the volume of its workspace, shows it.
 *
 * A runtime without user namespaces never starts the pod; a file system without id-mapped mounts (NFS) fails its container.
 */

import { isSandlotError } from "@sandlot/contract";
import { z } from "zod";
import { sleep } from "../../../world/waiting.ts";
import { ROLE } from "../pod/names.ts";
import type { SharedWorkspaces } from "../workspaces/shared-workspaces.ts";
import { type TrialContext, type TrialPod, TrialPods, type TrialShape } from "./trial-pods.ts";

const MOUNT = "/volume";
/** A pod that starts does so sooner; an image may have to be fetched, and a volume be made. */
const START_MS = 60_000;
const LOOK_MS = 500;
/** What a kubelet or a runtime without them says. */
const REFUSED = /user namespace|userns|hostUsers|id-?map/i;

const eventSchema = z.looseObject({ type: z.string().default(""), message: z.string().default("") });

class Refused extends Error {}

/** `null`: it works. Otherwise what keeps it from working. Rejects when that could not be tried. */
export async function tryUserNamespaces(
  context: TrialContext,
  shared: SharedWorkspaces | null,
  signal: AbortSignal,
): Promise<string | null> {
  const { world, settings } = context;
  const folder = `trial-users-${world.randomHex(8)}`;
  const here = shared?.place() ?? null;
  const pods = new TrialPods(context);
  try {
    await here?.makeDirectory(folder);
    const pod = await pods.make(shapeOf(context, here === null ? null : folder), signal);
    const map = await startsOrSays(pods, pod, context, signal);
    if (/^\s*0\s+0\s/.test(map)) return "the runtime gave a pod with hostUsers: false the accounts of its node";
    const owner = here === null ? null : await here.stat(`${folder}/file`);
    const { uid } = settings.kubernetes;
    if (here !== null && owner?.uid !== uid)
      return `a file of a pod with hostUsers: false belongs to uid ${owner?.uid ?? "unknown"} on the claim, and not to ${uid}`;
    return null;
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof Refused || isSandlotError(error, "create_failed")) return error.message;
    throw error;
  } finally {
    await here?.removeTree(folder).catch(() => {});
    await pods.removeAll().catch(() => {});
  }
}

function shapeOf({ settings }: TrialContext, folder: string | null): TrialShape {
  const { workspaces, uid } = settings.kubernetes;
  const { mode, claim = "", storageClass, sizeBytes } = workspaces;
  const place = folder === null ? MOUNT : `${MOUNT}/${folder}`;
  const writes = [`[ "$(stat -c %u ${place})" = ${uid} ]`, `touch ${place}/file`];
  const program = [
    ...(mode === "none" ? [] : mode === "claim" ? writes : writes.slice(1)),
    "cat /proc/self/uid_map > /dev/termination-log",
  ].join(" && ");
  return {
    ...{ role: ROLE.trial, program, isShell: true, hasOwnUsers: true },
    ...(mode === "claim" && { claim: { name: claim, subPath: settings.fleetId, mountPath: MOUNT } }),
    ...(mode === "per-thread" && { ownClaim: { storageClass, sizeBytes, mountPath: MOUNT } }),
  };
}

/** The map of accounts that the pod has. A refusal in the pod's events ends the wait at once. */
async function startsOrSays(
  pods: TrialPods,
  pod: TrialPod,
  { api, world }: TrialContext,
  signal: AbortSignal,
): Promise<string> {
  const ending = new AbortController();
  const either = AbortSignal.any([signal, ending.signal]);
  const refused = async (): Promise<never> => {
    for (;;) {
      await sleep(world, LOOK_MS, either);
      const { items } = await api.list("events", { fieldSelector: `involvedObject.uid=${pod.uid}` }, either);
      const said = items.map((item) => eventSchema.parse(item)).find(({ message }) => REFUSED.test(message));
      if (said?.type === "Warning") throw new Refused(said.message.slice(0, 500));
    }
  };
  try {
    const looking = refused();
    // The trial has ended first.
    looking.catch(() => {});
    return await Promise.race([pods.ended(pod, either, START_MS), looking]);
  } finally {
    ending.abort(new Error("the trial has ended"));
  }
}
