/**
 * Makes a container under its name, and handles a taken name. A name is never used for two objects. So a container with
 * it is the same object, from a call whose response was lost; or it belongs to other software that uses such names.
 *
 *   ours, runs and takes the credentials   returned: nothing is made
 *   ours, runs and does not                refused, and left alone
 *   ours, never started                    used
 *   ours, dead                             replaced
 *   not ours                               refused, and left alone
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
  /** The host on which published ports are reached. */
  readonly publishHost: string;
}

/** The object that runs already, proved by its labels and by its daemon; `null` when there is none. Changes nothing. */
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

/** Resolves with a container that is not started. Replaces dead or half-made ones of ours; leaves others alone. */
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
    // Ours and not started: the response to an earlier call was lost. No other process makes this generation.
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
