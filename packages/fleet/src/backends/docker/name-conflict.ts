/**
 * Making a container under its name, and what to do when the name is taken. A name is never used for two objects, so whoever has
 * it is the same object, made by a call whose answer was lost; or it belongs to somebody who happens to use such names.
 *
 *   ours, runs and answers to what was asked for   it is the answer: nothing is made
 *   ours, runs and does not                        refused, and left as it is
 *   ours, never started                            used
 *   ours, dead                                     replaced
 *   anybody else's                                 refused, and left as it is
 */

import type { EngineRef } from "@sandlot/contract";
import type Docker from "dockerode";
import type { CreateSpec } from "../../backend/backend.ts";
import type { Labels } from "../../backend/labels.ts";
import { type Layout, type ObjectName, socketPath } from "../../host/layout.ts";
import { renewDaemon } from "../../sandboxd/index.ts";
import type { Engine } from "./engine/engine.ts";
import { createFailed, isRefusal } from "./engine/trouble.ts";
import type { ContainerObjects } from "./objects/container-objects.ts";
import { parseLabels } from "./objects/labels.ts";

export interface Claimed {
  readonly containerId: string;
}

export interface RunningParts {
  readonly engine: Engine;
  readonly objects: ContainerObjects;
  readonly layout: Layout;
  /** Where published ports are reached. */
  readonly publishHost: string;
}

/** The object that runs already, proved by its labels and by its daemon; `null` when there is none. Nothing is touched. */
export async function findRunning(
  { engine, objects, layout, publishHost }: RunningParts,
  name: ObjectName,
  { labels, generation, token }: CreateSpec,
  signal: AbortSignal,
): Promise<EngineRef | null> {
  const object = await objects.get(name);
  if (object?.container == null || object.isRemains || object.container.engineId !== engine.facts.id) return null;
  const { containerId, hostPort } = object.container;
  const found = await engine.inspect(containerId);
  if (found?.State.Status !== "running" || !isTheSame(parseLabels(found.Config.Labels)?.labels, labels)) return null;
  const address = hostPort === null ? { path: socketPath(layout, name) } : { host: publishHost, port: hostPort };
  try {
    await renewDaemon({ address, sandboxId: labels.sandboxId, generation, token }, signal);
  } catch (error) {
    signal.throwIfAborted();
    throw createFailed(`${name} runs already, and does not answer to what is asked for now`, error);
  }
  return object.ref;
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
