/**
 * Tries the shared claim of workspaces from two places: the mount of this process, and a pod. The pod is told what to do by
 * files on the volume itself, because nothing but the volume connects the two.
 *
 *   trial-rpc-<nonce>/<n>.in    a shell command, written by this process
 *   trial-rpc-<nonce>/<n>.out   its exit code and output, written by the pod and renamed into place
 */

import { SandlotError } from "@sandlot/contract";
import { z } from "zod";
import { sleep } from "../../../world/waiting.ts";
import { ROLE } from "../pod/names.ts";
import type { SharedWorkspaces } from "../workspaces/shared-workspaces.ts";
import {
  type PlaceShell,
  shellPlace,
  type TrialStep,
  tryVolume,
  type VolumePlace,
} from "../workspaces/volume-trial.ts";
import { type TrialContext, TrialPods } from "./trial-pods.ts";
import { CLAIM_PROGRAM } from "./trial-programs.ts";

const MOUNT = "/volume";
const ANSWER_MS = 70_000;
const LOOK_MS = 25;

const answerSchema = z.object({ exitCode: z.number(), stdout: z.string(), stderr: z.string() });

export async function tryClaim(
  workspaces: SharedWorkspaces,
  context: TrialContext,
  signal: AbortSignal,
): Promise<readonly TrialStep[]> {
  const { world, settings } = context;
  const { uid, workspaces: configured } = settings.kubernetes;
  const folder = `trial-rpc-${world.randomHex(8)}`;
  const here = workspaces.place();
  const pods = new TrialPods(context);
  try {
    await here.makeDirectory(folder);
    const claim = { name: configured.claim ?? "", subPath: settings.fleetId, mountPath: MOUNT };
    const environment = { FOLDER: `${MOUNT}/${folder}` };
    const made = await pods.make({ role: ROLE.trial, program: CLAIM_PROGRAM, environment, claim }, signal);
    const { spec } = await pods.running(made, signal);
    const there = shellPlace(`a pod on ${spec.nodeName}`, uid, MOUNT, shellOver(here, folder, context, signal));
    return await tryVolume(here, there, world);
  } finally {
    await here.removeTree(folder).catch(() => {});
    await pods.removeAll().catch(() => {});
  }
}

function shellOver(here: VolumePlace, folder: string, { world }: TrialContext, signal: AbortSignal): PlaceShell {
  let count = 0;
  return async (command) => {
    const at = `${folder}/${count++}`;
    await here.write(`${at}.in`, `${command}\n#\n`);
    const until = world.monotonicMs() + ANSWER_MS;
    for (;;) {
      const text = await here.read(`${at}.out`);
      if (text !== null) return answerSchema.parse(JSON.parse(text));
      if (world.monotonicMs() > until) throw late();
      await sleep(world, LOOK_MS, signal);
    }
  };
}

function late(): SandlotError {
  const problem = `a pod did not see a file of this process on the volume within ${ANSWER_MS / 1_000} s, or may not read it`;
  return new SandlotError("engine_unavailable", { engine: "workspaces", problem, tried: [], retryAfterMs: 30_000 });
}
