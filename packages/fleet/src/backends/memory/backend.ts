/**
 * The `memory` backend: sandboxes inside this process, with a file tree and a shell of their own. It is a real
 * implementation of the contract, for agents' tests and for trying things out; it isolates nothing from the host's
 * processor and memory, so it must not run untrusted code.
 *
 * Every operation is a call to its engine (`engine-api.ts`). This file decides how a call is abandoned, and refuses
 * blueprints that need a missing capability.
 */

import { type EngineRef, type FleetId, SandlotError } from "@sandlot/contract";
import type {
  Activity,
  Attachment,
  Backend,
  Capability,
  Created,
  CreateSpec,
  Credentials,
  EngineEvent,
  EngineObject,
  ListOptions,
  Target,
  WorkspaceSpot,
  Workspaces,
} from "../../backend/backend.ts";
import type { Blueprint } from "../../backend/blueprint.ts";
import type { Checkpoints } from "../../backend/checkpoints.ts";
import type { Markers } from "../../backend/markers.ts";
import { abortable } from "../../world/waiting.ts";
import type { Liveness, World } from "../../world/world.ts";
import { MemoryAttachment } from "./attachment.ts";
import { memoryCheckpoints } from "./checkpoints/memory-checkpoints.ts";
import type { EngineApi, WorkspaceStep } from "./engine-api.ts";

export interface MemoryBackendOptions {
  readonly fleetId: FleetId;
  readonly engine: EngineApi;
  readonly world: World;
}

const NAME = "memory";

export function createMemoryBackend(options: MemoryBackendOptions): Backend {
  return new MemoryBackend(options);
}

class MemoryBackend implements Backend {
  readonly name = NAME;
  /** An engine and its name live in one process. */
  readonly engineId: string;
  readonly programFolders = [];
  readonly capabilities: ReadonlySet<Capability> = new Set(["late-binding", "checkpoints"]);
  readonly workspaces: Workspaces;
  readonly markers: Markers;
  readonly checkpoints: Checkpoints;
  readonly #engine: EngineApi;
  readonly #fleetId: FleetId;
  readonly #world: World;
  readonly #subscriptions = new Set<() => void>();
  readonly #attachments = new Set<Attachment>();
  #closed = false;

  constructor({ fleetId, engine, world }: MemoryBackendOptions) {
    this.#engine = engine;
    this.#fleetId = fleetId;
    this.#world = world;
    this.engineId = engineIdOf(engine, world);
    this.workspaces = workspacesOf(engine, fleetId);
    this.markers = markersOf(engine, fleetId);
    this.checkpoints = memoryCheckpoints(engine, fleetId);
  }

  async create(spec: CreateSpec, signal: AbortSignal): Promise<Created> {
    checkBlueprint(spec.blueprint);
    return this.#ask("create", signal, () => this.#engine.create(spec));
  }

  async attach(target: Target, signal: AbortSignal): Promise<Attachment> {
    await this.#ask("attach", signal, () => this.#engine.greet(target));
    const attachment = new MemoryAttachment(this.#engine, target, this.#world);
    this.#attachments.add(attachment);
    void attachment.closed.then(() => this.#attachments.delete(attachment));
    return attachment;
  }

  rebind(target: Target, from: Credentials, signal: AbortSignal): Promise<void> {
    return this.#ask("rebind", signal, () => this.#engine.rebind(target, from));
  }

  probe(ref: EngineRef, signal: AbortSignal): Promise<Liveness> {
    return this.#ask("probe", signal, () => this.#engine.probe(ref));
  }

  destroy(ref: EngineRef, signal: AbortSignal): Promise<void> {
    return this.#ask("destroy", signal, () => this.#engine.remove(ref));
  }

  /** Always consistent: the list comes from the engine itself. */
  list({ sandboxId }: ListOptions, signal: AbortSignal): Promise<readonly EngineObject[]> {
    return this.#ask("list", signal, () => this.#engine.list(this.#fleetId, sandboxId));
  }

  watch(listener: (event: EngineEvent) => void): () => void {
    const unsubscribe = this.#engine.subscribe((notice) => {
      if (notice.type === "resync") listener({ type: "resync" });
      else if (notice.fleet === this.#fleetId) listener({ type: "died", ref: notice.ref, sandboxId: notice.sandboxId });
    });
    const stop = () => {
      this.#subscriptions.delete(stop);
      unsubscribe();
    };
    this.#subscriptions.add(stop);
    return stop;
  }

  activity(ref: EngineRef, signal: AbortSignal): Promise<Activity> {
    return this.#ask("activity", signal, () => this.#engine.activity(ref));
  }

  async close(): Promise<void> {
    this.#closed = true;
    for (const stop of [...this.#subscriptions]) stop();
    await Promise.all([...this.#attachments].map((attachment) => attachment.close()));
  }

  /** Calls the engine, and stops waiting when the signal fires. A signal that has fired already starts no call. */
  async #ask<T>(operation: string, signal: AbortSignal, call: () => Promise<T>): Promise<T> {
    if (this.#closed) throw new SandlotError("fleet_closed", { operation });
    signal.throwIfAborted();
    return abortable(call(), signal);
  }
}

const engineIds = new WeakMap<EngineApi, string>();
let enginesNamed = 0;

function engineIdOf(engine: EngineApi, { identity: { bootId, pid, startTime } }: World): string {
  const known = engineIds.get(engine);
  if (known !== undefined) return known;
  enginesNamed += 1;
  const id = `${NAME}-${bootId}-${pid}-${startTime}-${enginesNamed}`;
  engineIds.set(engine, id);
  return id;
}

function workspacesOf(engine: EngineApi, fleetId: FleetId): Workspaces {
  const step = (name: WorkspaceStep) => async (spot: WorkspaceSpot) => {
    await engine.workspace(fleetId, name, spot);
  };
  return {
    owners: () => engine.workspaceOwners(fleetId),
    latestGeneration: () => engine.latestGeneration(fleetId),
    look: (spot) => engine.workspace(fleetId, "look", spot),
    moveIn: step("moveIn"),
    makeIn: step("makeIn"),
    moveHome: step("moveHome"),
    quarantine: step("quarantine"),
    purge: step("purge"),
    emptyHome: step("emptyHome"),
  };
}

function markersOf(engine: EngineApi, fleetId: FleetId): Markers {
  return {
    write: (marker) => engine.writeMarker(fleetId, marker),
    list: (sandboxId) => engine.markers(fleetId, sandboxId),
    drop: (sandboxId, generation) => engine.dropMarker(fleetId, sandboxId, generation),
  };
}

/** A sandbox without a network satisfies every network policy; this checks the other settings. */
function checkBlueprint({ image, runtime, mounts, limits }: Blueprint): void {
  const missing = (capability: Capability, neededBy: string) =>
    new SandlotError("capability_missing", { backend: NAME, capability, neededBy });
  if (image !== undefined) throw missing("image", "the blueprint's image");
  if (runtime !== undefined) throw missing("runtime", "the blueprint's runtime");
  if (mounts.length > 0) throw missing("mounts", "the blueprint's mounts");
  if (Object.values(limits).some((limit) => limit !== undefined)) throw missing("limits", "the blueprint's limits");
}
