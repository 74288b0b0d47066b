/**
 * Making a container under its name, and what to do when the name is taken. A name is never used for two objects, so whoever has
 * it is the same object, made by a call whose answer was lost; or it belongs to somebody who happens to use such names.
 */

import type Docker from "dockerode";
import type { Labels } from "../../backend/labels.ts";
import type { Engine } from "./engine/engine.ts";
import { createFailed, isRefusal } from "./engine/trouble.ts";
import { parseLabels } from "./objects/labels.ts";

export interface Claimed {
  readonly containerId: string;
}

/** Resolves with a container that is not started. Dead or half-made ones of ours are replaced; others' are left alone. */
export async function claimName(
  engine: Engine,
  options: Docker.ContainerCreateOptions,
  labels: Labels,
): Promise<Claimed> {
  try {
    return { containerId: await engine.create(options) };
  } catch (error) {
    if (!isRefusal(error, 409)) throw error;
    const taken = await engine.inspect(options.name ?? "");
    if (taken === null) return { containerId: await engine.create(options) };
    if (!isTheSame(parseLabels(taken.Config.Labels)?.labels, labels))
      throw createFailed(`a container that is not this fleet's has the name ${options.name}`, error);
    // Ours and not started: the answer to an earlier call was lost. Nobody else makes this generation.
    if (taken.State.Status === "created") return { containerId: taken.Id };
    if (taken.State.Status === "running") throw createFailed(`${options.name} runs already`, error);
    await engine.remove(taken.Id);
    return { containerId: await engine.create(options) };
  }
}

function isTheSame(found: Labels | undefined, wanted: Labels): boolean {
  return (
    found !== undefined &&
    found.fleet === wanted.fleet &&
    found.sandboxId === wanted.sandboxId &&
    found.generation === wanted.generation &&
    found.blueprintHash === wanted.blueprintHash
  );
}
