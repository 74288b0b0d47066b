/**
 * The engine of the `memory` backend: a place where sandboxes live, inside this process. It has no access to fleets'
 * records; it holds the state of a real engine and a real disk, and it outlives the fleets that use it.
 *
 * Invariants
 * - A reference is random and never given twice.
 * - Every step is synchronous, so it has happened or it has not.
 * - A dead object stays listed until it is removed, and then as long as a workspace is in its slot: the object and its
 *   markers lead to that workspace. A dead object's daemon does not respond.
 */

import {
  type EngineRef,
  type ExecInfo,
  type ExecResult,
  type FleetId,
  type Generation,
  type LossReason,
  ownPath,
  type SandboxFiles,
  type SandboxId,
  SandlotError,
  type SpawnedExec,
  SYSTEM_PATH,
} from "@sandlot/contract";
import type {
  Activity,
  Created,
  CreateSpec,
  Credentials,
  EngineObject,
  Target,
  WorkspaceSight,
  WorkspaceSpot,
} from "../../backend/backend.ts";
import { homePathOf } from "../../backend/blueprint.ts";
import type { Marker } from "../../backend/labels.ts";
import { systemWorld } from "../../world/system-world.ts";
import type { Liveness, ProcessIdentity, World } from "../../world/world.ts";
import { EngineCheckpoints } from "./checkpoints/engine-checkpoints.ts";
import type {
  CheckpointArgs,
  CheckpointStep,
  EngineApi,
  EngineNotice,
  ExecRequest,
  FileAnswer,
  FileCall,
  WorkspaceStep,
} from "./engine-api.ts";
import { EngineWorkspaces, type Leftovers } from "./engine-workspaces.ts";
import type { FollowOffsets } from "./exec/exec.ts";
import type { DirectoryNode } from "./files/node.ts";
import { MemoryObject } from "./memory-object.ts";

export interface MemoryEngineOptions {
  readonly world: World;
}

/** A test's view of an object. */
export interface MemoryObjectView extends EngineObject {
  readonly generation: Generation;
}

export class MemoryEngine implements EngineApi {
  static readonly #shared = new Map<string, MemoryEngine>();
  readonly #world: World;
  readonly #objects = new Map<EngineRef, MemoryObject>();
  /** Removed objects that stay only until the workspace in their slot has left. */
  readonly #removed = new Set<EngineRef>();
  readonly #workspaces: EngineWorkspaces;
  readonly #listeners = new Set<(event: EngineNotice) => void>();
  readonly #checkpoints: EngineCheckpoints;
  #suspended = 0;

  constructor({ world }: MemoryEngineOptions) {
    this.#world = world;
    this.#workspaces = new EngineWorkspaces(() => world.wallMs());
    this.#checkpoints = new EngineCheckpoints(
      this.#workspaces,
      () => world.wallMs(),
      () => world.randomHex(8),
    );
  }

  /** The engine of a home in this process: a second open of the same home finds its sandboxes. */
  static shared(home: string, options?: MemoryEngineOptions): MemoryEngine {
    const engine = MemoryEngine.#shared.get(home) ?? new MemoryEngine(options ?? { world: systemWorld() });
    MemoryEngine.#shared.set(home, engine);
    return engine;
  }

  async create(spec: CreateSpec): Promise<Created> {
    const { mnt, ...where } = this.#mount(spec);
    const { labels, generation, token, blueprint } = spec;
    const home = homePathOf(blueprint);
    const environment = { HOME: home, PATH: `${ownPath(home)}:${SYSTEM_PATH}`, ...blueprint.environment };
    const ref = newRef(this.#world);
    const inside = { place: where.place, mnt, home, environment, world: this.#world };
    this.#objects.set(ref, new MemoryObject({ ref, labels, credentials: { generation, token }, ...inside }));
    return { ref, ...where };
  }

  async rebind(target: Target, from: Credentials): Promise<void> {
    this.#reach(target, { anyGeneration: true }).rebind(target, from);
  }

  async greet(target: Target): Promise<void> {
    this.#reach(target);
  }

  ended(ref: EngineRef): Promise<void> {
    return this.#objects.get(ref)?.ended ?? Promise.resolve();
  }

  async probe(ref: EngineRef): Promise<Liveness> {
    const object = this.#objects.get(ref);
    if (object === undefined) return livenessElsewhere(ref, this.#world);
    return object.isAlive ? "alive" : "dead";
  }

  async remove(ref: EngineRef): Promise<void> {
    const object = this.#objects.get(ref);
    if (object === undefined) {
      if (livenessElsewhere(ref, this.#world) === "unknown") throw elsewhere(ref);
      return;
    }
    const { fleet, sandboxId } = object.labels;
    const wasAlive = object.isAlive;
    object.end("destroyed");
    this.#workspaces.unmount(fleet, object.place);
    this.#removed.add(ref);
    this.#tidy(fleet, sandboxId);
    if (wasAlive) this.#notify({ type: "died", fleet, ref, sandboxId });
  }

  async list(fleet: FleetId, sandboxId?: SandboxId): Promise<readonly EngineObject[]> {
    return this.objects()
      .filter(({ labels }) => labels.fleet === fleet && (sandboxId === undefined || labels.sandboxId === sandboxId))
      .map(({ ref, labels, liveness, place }) => ({ ref, labels, liveness, place }));
  }

  async activity(ref: EngineRef): Promise<Activity> {
    const object = this.#objects.get(ref);
    // Terminals, previews and processors do not exist here, so these zeros are exact.
    return { runningExecs: object?.execs.runningCount ?? 0, openTerminals: 0, previewTrafficAt: null, cpuShare: 0 };
  }

  async exec(target: Target, request: ExecRequest): Promise<ExecResult> {
    return this.#reach(target).execs.exec(request);
  }

  async spawn(target: Target, request: ExecRequest): Promise<SpawnedExec> {
    return this.#reach(target).execs.spawn(request);
  }

  async execs(target: Target): Promise<readonly ExecInfo[]> {
    return this.#reach(target).execs.list();
  }

  async follow(target: Target, execId: string, from: FollowOffsets, until: "exit" | "closed") {
    return this.#reach(target).execs.find(execId).follow(from, until);
  }

  async leave(target: Target, execId: string, follower: string): Promise<void> {
    this.#reach(target).execs.find(execId).leave(follower);
  }

  async writeStdin(target: Target, execId: string, content: Uint8Array, end: boolean): Promise<void> {
    await this.#reach(target).execs.writeStdin(execId, content, end);
  }

  async killExec(target: Target, execId: string, signal?: string): Promise<boolean> {
    return this.#reach(target).execs.kill(execId, signal);
  }

  async file<Name extends FileCall>(
    target: Target,
    name: Name,
    args: Parameters<SandboxFiles[Name]>,
  ): Promise<FileAnswer<Name>> {
    const files: Pick<SandboxFiles, FileCall> = this.#reach(target).files;
    const call = files[name] as (...args: Parameters<SandboxFiles[Name]>) => Promise<FileAnswer<Name>>;
    return call.apply(files, args);
  }

  async workspace(fleet: FleetId, step: WorkspaceStep, spot: WorkspaceSpot): Promise<WorkspaceSight> {
    if (step !== "look") this.#workspaces[step](fleet, spot);
    if (step === "purge") this.#checkpoints.purge(fleet, spot);
    this.#tidy(fleet, spot.sandboxId);
    return this.#workspaces.look(fleet, spot);
  }

  async checkpoint<Step extends CheckpointStep>(
    fleet: FleetId,
    step: Step,
    args: CheckpointArgs<Step>,
  ): Promise<ReturnType<EngineCheckpoints[Step]>> {
    const run = this.#checkpoints[step] as (...all: unknown[]) => ReturnType<EngineCheckpoints[Step]>;
    return run.call(this.#checkpoints, fleet, ...args);
  }

  async workspaceOwners(fleet: FleetId) {
    return this.#workspaces.owners(fleet);
  }

  async latestGeneration(fleet: FleetId): Promise<number> {
    return this.#workspaces.latestGeneration(fleet);
  }

  async writeMarker(fleet: FleetId, marker: Marker): Promise<void> {
    // A marker lies beside its sandbox. Without the sandbox there is no place for it, and nothing would remove it.
    if (this.#objectsOf(fleet, marker.sandboxId).length === 0) {
      throw new SandlotError("file_not_found", { path: `markers:${marker.sandboxId}` });
    }
    this.#workspaces.writeMarker(fleet, marker);
  }

  async markers(fleet: FleetId, sandboxId: SandboxId): Promise<readonly Marker[]> {
    return this.#workspaces.markers(fleet, sandboxId);
  }

  async dropMarker(fleet: FleetId, sandboxId: SandboxId, generation: Generation): Promise<void> {
    this.#workspaces.dropMarker(fleet, sandboxId, generation);
  }

  subscribe(listener: (event: EngineNotice) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Lets a sandbox die by itself, as a crash would. */
  kill(ref: EngineRef): void {
    const object = this.#objects.get(ref);
    if (object === undefined || !object.isAlive) return;
    object.end("crashed");
    this.#notify({ type: "died", fleet: object.labels.fleet, ref, sandboxId: object.labels.sandboxId });
  }

  /** Everything there is, of every fleet, dead or alive. */
  objects(): readonly MemoryObjectView[] {
    return [...this.#objects.values()].map((object) => object.view());
  }

  /** The state beside the objects, for tests that check for leftovers. */
  leftovers(): Leftovers {
    return this.#workspaces.counts();
  }

  /** Drops events until the returned function is called, which emits `resync`. */
  suspendEvents(): () => void {
    this.#suspended++;
    let done = false;
    return () => {
      if (done) return;
      done = true;
      if (--this.#suspended === 0) this.#notify({ type: "resync" });
    };
  }

  /** The sandbox's `/mnt`: with the thread's home in it, or empty for a blank. */
  #mount({ labels, generation, marker }: CreateSpec): Omit<Created, "ref"> & { mnt: DirectoryNode } {
    const { fleet, sandboxId } = labels;
    if (marker === null) return { workspace: "none", ...this.#workspaces.makeSlot(fleet, sandboxId, generation) };
    const home = this.#workspaces.mountHome(fleet, marker);
    this.#workspaces.writeMarker(fleet, marker);
    return { place: "home", ...home };
  }

  /** Forgets removed objects without a workspace in their slot; markers go with the sandbox's last object. */
  #tidy(fleet: FleetId, sandboxId: SandboxId): void {
    for (const { ref, place } of this.#objectsOf(fleet, sandboxId)) {
      if (!this.#removed.has(ref) || this.#workspaces.isOccupied(fleet, place)) continue;
      this.#objects.delete(ref);
      this.#removed.delete(ref);
      if (this.#objectsOf(fleet, sandboxId).length === 0) this.#workspaces.dropMarkers(fleet, sandboxId);
    }
  }

  #objectsOf(fleet: FleetId, sandboxId: SandboxId): readonly MemoryObject[] {
    return [...this.#objects.values()].filter(({ labels }) => labels.fleet === fleet && labels.sandboxId === sandboxId);
  }

  /** The object, if it lives and its daemon accepts these credentials. */
  #reach(target: Target, options: { anyGeneration?: boolean } = {}): MemoryObject {
    const { sandboxId, generation } = target;
    const object = this.#objects.get(target.ref);
    const lost = (reason: LossReason) => new SandlotError("sandbox_lost", { sandboxId, generation, reason });
    if (object === undefined && livenessElsewhere(target.ref, this.#world) === "unknown") throw elsewhere(sandboxId);
    if (object === undefined || object.labels.sandboxId !== sandboxId) throw lost("destroyed");
    if (!object.isAlive) throw lost("crashed");
    if (options.anyGeneration !== true && !object.accepts(target)) {
      throw new SandlotError("stale_generation", { sandboxId, generation, current: object.generation });
    }
    return object;
  }

  /** Never inside the step that caused it: listeners must see the step completed. */
  #notify(event: EngineNotice): void {
    if (this.#suspended > 0) return;
    for (const listener of this.#listeners) queueMicrotask(() => listener(event));
  }
}

/** Memory cannot be reached from outside its process. */
function elsewhere(sandboxId: string): SandlotError {
  const problem = "it is in the memory of another process; one process at a time can use a fleet on the memory backend";
  return new SandlotError("sandbox_unreachable", { sandboxId, problem, retryAfterMs: 1_000 });
}

/**
 * A reference names the process whose memory a sandbox is in, so that a fleet in another process, which shares the store
 * but not the memory, can tell "not here" from "gone".
 */
const SEPARATOR = "/";

function newRef(world: World): EngineRef {
  const { bootId, pidNamespace, pid, startTime } = world.identity;
  return [bootId, pidNamespace, pid, startTime, world.randomHex(16)].join(SEPARATOR) as EngineRef;
}

/** The liveness of an object outside this memory: dead with its process, otherwise unknown. */
function livenessElsewhere(ref: EngineRef, world: World): Liveness {
  const identity = identityOf(ref);
  if (identity === null || isSame(identity, world.identity)) return "dead";
  return world.processLiveness(identity) === "dead" ? "dead" : "unknown";
}

function identityOf(ref: EngineRef): ProcessIdentity | null {
  const [bootId, pidNamespace, pid, startTime, random] = ref.split(SEPARATOR);
  if (bootId === undefined || pidNamespace === undefined || startTime === undefined || random === undefined)
    return null;
  return { bootId, pidNamespace, pid: Number(pid), startTime };
}

function isSame(a: ProcessIdentity, b: ProcessIdentity): boolean {
  return a.bootId === b.bootId && a.pidNamespace === b.pidNamespace && a.pid === b.pid && a.startTime === b.startTime;
}
