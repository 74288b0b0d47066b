/**
 * The `docker` backend: sandboxes as containers of an engine that speaks Docker's API, driven through the daemon
 * inside.
 *
 *   create   maker.ts               intent on disk, workspace, socket directory, then a container that runs the daemon
 *   attach   container-attacher.ts  a connection to the daemon's socket, without a request to the engine
 *   probe    liveness.ts            the engine's own response for the container's id
 *   watch    watcher.ts             one subscription to the engine's events
 *   pause    container-pauses.ts    pauses unused containers, where that is configured
 *   aio/                            all of it for images that have a server of their own instead of the daemon
 *   destroy  remover.ts             removes the container, confirmed, then everything that was made for it
 *
 * Containers belong to no process: they outlive the fleet that made them, and any process of the fleet finds them by
 * their labels. This file decides how a call is abandoned.
 */

import { tmpdir } from "node:os";
import { type EngineRef, type SandboxId, SandlotError } from "@sandlot/contract";
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
  Thaw,
} from "../../backend/backend.ts";
import { BackendCalls } from "../../backend/backend-calls.ts";
import type { Blueprint } from "../../backend/blueprint.ts";
import { NO_OTHERS, type OtherBackends } from "../../backend/entry.ts";
import type { HostWorkspaces } from "../../backend/host-workspaces.ts";
import type { Markers } from "../../backend/markers.ts";
import { DiskCheckpoints } from "../../host/checkpoints/disk-checkpoints.ts";
import { boundedBy } from "../../host/checkpoints/options.ts";
import type { Refusal } from "../../host/egress/index.ts";
import { type GuardsListener, holdsDisk } from "../../host/guards/host-guards.ts";
import { DiskTimelines } from "../../host/timelines/disk-timelines.ts";
import { DiskWorkspaces } from "../../host/workspaces/disk-workspaces.ts";
import { problemOf } from "../../observe/event-bus.ts";
import { readActivity, renewDaemon } from "../../sandboxd/index.ts";
import { Renewer } from "../../sandboxd/renewer.ts";
import type { Liveness, World } from "../../world/world.ts";
import { AioRecords } from "./aio/records.ts";
import { AioRuntime } from "./aio/runtime.ts";
import { canHaveNetwork, capabilitiesOf, lateBindingProblem, missingCapability } from "./capabilities.ts";
import { Images } from "./container/images.ts";
import { publishes } from "./container/transport.ts";
import { ContainerAccounts } from "./container-accounts.ts";
import { ContainerAttacher } from "./container-attacher.ts";
import { ContainerCredentials } from "./container-credentials.ts";
import { ContainerGuards } from "./container-guards.ts";
import { ContainerPauses } from "./container-pauses.ts";
import { Egresses } from "./egress.ts";
import type { Engine, ListedContainer } from "./engine/engine.ts";
import { findEngine } from "./engine/find-engine.ts";
import { ContainerLiveness } from "./liveness.ts";
import { madeByAnother } from "./made-by-another.ts";
import { Maker } from "./maker.ts";
import { type ContainerObject, ContainerObjects, dockerLayout } from "./objects/container-objects.ts";
import { fleetFilter, formatRef, type Labelled, type ParsedRef, parseLabels, parseRef } from "./objects/labels.ts";
import { Remover } from "./remover.ts";
import { type ConfiguredSettings, type DockerSettings, dockerSettings } from "./settings.ts";
import { Watcher } from "./watcher.ts";

export interface DockerBackendOptions {
  readonly settings: ConfiguredSettings;
  readonly world: World;
  readonly others?: OtherBackends;
  /** Replaces settings that follow from the installation, for tests. */
  readonly installation?: Partial<DockerSettings>;
}

const NAME = "docker";
/** A container that takes longer to respond is treated as busy. */
const IDLE_ANSWER_MS = 2_000;
const NO_ACTIVITY: Activity = { runningExecs: 0, openTerminals: 0, previewTrafficAt: null, cpuShare: 0 };

/** Finds the engine. Rejects with `engine_unavailable` and the places that were tried. */
export async function openDockerBackend(options: DockerBackendOptions): Promise<Backend> {
  const settings = { ...dockerSettings(options.settings), ...options.installation };
  const engine = await findEngine(settings, options.world);
  try {
    return new DockerBackend(engine, settings, options);
  } catch (error) {
    engine.close();
    throw error;
  }
}

class DockerBackend implements Backend {
  readonly name = NAME;
  readonly capabilities: ReadonlySet<Capability>;
  readonly lateBindingProblem: string | null;
  readonly workspaces: DiskWorkspaces;
  readonly checkpoints: DiskCheckpoints;
  readonly timelines: DiskTimelines;
  readonly markers: Markers;
  readonly #world: World;
  readonly #others: OtherBackends;
  readonly #engine: Engine;
  readonly #settings: DockerSettings;
  readonly #objects: ContainerObjects;
  readonly #liveness: ContainerLiveness;
  readonly #credentials: ContainerCredentials;
  readonly #accounts: ContainerAccounts;
  readonly #egresses: Egresses;
  readonly #images: Images;
  readonly #maker: Maker;
  readonly #remover: Remover;
  readonly #watcher: Watcher;
  readonly #renewer: Renewer;
  readonly #pauses: ContainerPauses;
  readonly #guards: ContainerGuards;
  readonly #reaching: ContainerAttacher;
  /** `null` where sandboxes have the daemon inside. */
  readonly #aio: AioRuntime | null;
  readonly #calls = new BackendCalls();
  readonly #sweeping: Promise<unknown>;

  constructor(engine: Engine, settings: DockerSettings, { world, others = NO_OTHERS }: DockerBackendOptions) {
    [this.#world, this.#others] = [world, others];
    const { fleetId, home, account, ownsAccount, docker, blueprints } = settings;
    const layout = dockerLayout(home, fleetId, settings.environment.XDG_RUNTIME_DIR ?? tmpdir());
    [this.#engine, this.#settings] = [engine, settings];
    const disk = { root: layout.root, account: ownsAccount ? null : account, world };
    this.workspaces = new DiskWorkspaces(disk);
    const options = boundedBy(settings.checkpoints);
    this.checkpoints = new DiskCheckpoints({ ...disk, workspaces: this.workspaces, options });
    this.timelines = DiskTimelines.beside(this.workspaces, layout.root, world);
    this.markers = this.workspaces.markers;
    this.#objects = new ContainerObjects(layout, world);
    this.#liveness = new ContainerLiveness(engine, this.#objects, world);
    const shared = { world, engine, layout, objects: this.#objects, workspaces: this.workspaces };
    if (docker.pauseParked && !engine.facts.canPause) throw missingCapability("pause", "docker.pauseParked");
    const published = { publishHost: docker.publishHost, publishes: publishes(docker) };
    this.#credentials = new ContainerCredentials({ ...shared, ...published, liveness: this.#liveness });
    const onRefused = (sandboxId: SandboxId, { host, port, rule, because }: Refusal) =>
      this.#watcher.tell({ type: "egress-refused", sandboxId, host, port, rule, because });
    const egresses = new Egresses({ backend: NAME, world, layout, engine, account, blueprints, onRefused });
    this.#egresses = egresses;
    const aioRecords = new AioRecords(layout, world);
    const onTrouble = (task: string, problem: string) =>
      this.#watcher.tell({ type: "housekeeping-failed", task, problem });
    const accounts = new ContainerAccounts({ settings, facts: engine.facts, layout, world, onTrouble });
    this.#accounts = accounts;
    this.#remover = new Remover({ ...shared, egresses, accounts, fleetId, liveness: this.#liveness, aioRecords });
    const watch = (listener: (event: EngineEvent) => void) => this.#watcher.add(listener);
    const aio = { ...shared, records: aioRecords, liveness: this.#liveness, account, ...published, watch };
    this.#aio = settings.speaksAio ? new AioRuntime(aio) : null;
    this.#images = new Images(engine, world, docker, (told) => this.#watcher.tell({ type: "image-pulling", ...told }));
    this.#maker = new Maker({
      ...{ ...shared, egresses, accounts, settings, images: this.#images },
      remover: this.#remover,
      aio: this.#aio,
      onRuntimeProblem: (error) => onTrouble("runtime-directories", problemOf(error)),
    });
    this.#pauses = new ContainerPauses({
      ...{ world, engine, fleetId, directory: layout.root, pausesParked: docker.pauseParked && this.#aio === null },
      isIdle: (name) => this.#isIdle(name),
      onResumed: (name) => void this.#renewed(name).catch(() => {}),
      onTrouble: (problem) => onTrouble("pause", problem),
    });
    const onOutOfMemory = ({ name }: Labelled) => void this.#guards.outOfMemory(name);
    this.#watcher = new Watcher(engine, fleetId, world, { motions: this.#pauses, onOutOfMemory });
    const onProblem = (error: unknown) => onTrouble("limits", problemOf(error));
    const onHit: GuardsListener["onHit"] = ({ record: { labels } }, limit, because) =>
      this.#watcher.tell({ type: "limit-hit", sandboxId: labels.sandboxId, limit, because });
    this.#guards = new ContainerGuards({ world, engine, layout, blueprints, listener: { onHit, onProblem } });
    // A paused container needs no renewal: its clock for orphans stands still, and it could not respond.
    const renewed = {
      names: () => this.#objects.names(),
      living: async (name: string) => {
        const object = await this.#living(name);
        return object === null || this.#pauses.isPaused(object.container.containerId) ? null : object;
      },
    };
    this.#renewer = new Renewer(world, renewed, this.#credentials, settings.orphanTimeoutMs);
    // A server of the image's own does not take renewals.
    if (settings.orphanTimeoutMs > 0 && this.#aio === null) this.#renewer.start();
    // Half-written files of a crash do no harm, so a failure to remove them can wait for the next start.
    const sweeps = [this.#objects.sweep(world.wallMs()), this.workspaces.sweep(), (async () => accounts.sweep())()];
    this.#sweeping = Promise.allSettled(sweeps);
    this.lateBindingProblem = lateBindingProblem(engine, this.workspaces);
    const network = canHaveNetwork(engine, settings);
    const can = { lateBinding: this.lateBindingProblem === null, network, ownAccounts: accounts.areOwn };
    this.capabilities = capabilitiesOf(engine, can, settings);
    const own = { credentials: this.#credentials, liveness: this.#liveness, pausing: this.#pauses, aio: this.#aio };
    this.#reaching = new ContainerAttacher({ ...shared, ...own, guards: this.#guards, egresses, network });
  }

  create(spec: CreateSpec, signal: AbortSignal): Promise<Created> {
    return this.#calls.create(signal, async (either) => {
      this.#check(spec);
      return this.#create(spec, either);
    });
  }

  attach(target: Target, signal: AbortSignal): Promise<Attachment> {
    return this.#calls.ask("attach", signal, () => this.#reaching.attach(this.#parseOwn(target), target, signal));
  }

  rebind(target: Target, from: Credentials, signal: AbortSignal): Promise<void> {
    return this.#calls.ask("rebind", signal, () => this.#reaching.rebind(this.#parseOwn(target), target, from, signal));
  }

  probe(ref: EngineRef, signal: AbortSignal): Promise<Liveness> {
    return this.#calls.ask("probe", signal, () =>
      this.#others.madeBy(ref) === null
        ? this.#liveness.probe(ref)
        : this.#others.use(ref, (maker) => maker.probe(ref, signal)),
    );
  }

  destroy(ref: EngineRef, signal: AbortSignal): Promise<void> {
    return this.#calls.ask("destroy", signal, async () => {
      if (this.#others.madeBy(ref) !== null) return this.#others.use(ref, (maker) => maker.destroy(ref, signal));
      const { name } = this.#parse(ref);
      await this.#credentials.whileEnding(name, () => this.#remover.destroy(ref, signal));
      this.#credentials.forget(name);
      this.#guards.forget(name);
      this.#reaching.drop(name);
      this.#aio?.forget(name, ref);
    });
  }

  /** Always consistent: the intent is on disk before the container is made, and the engine lists what it has. */
  list({ sandboxId }: ListOptions, signal: AbortSignal): Promise<readonly EngineObject[]> {
    return this.#calls.ask("list", signal, async () => {
      // A list of one sandbox comes from a process that ends it after its maker has died.
      if (sandboxId !== undefined) await this.#objects.clear(sandboxId);
      else this.#accounts.sweepClaims();
      const containers = await this.#containers(sandboxId);
      const names = (await this.#objects.names()).filter(
        (name) => sandboxId === undefined || name.startsWith(`${sandboxId}-`),
      );
      const all = [...new Set([...containers.keys(), ...names])];
      const listed = await Promise.all(all.map((name) => this.#listed(name, containers.get(name))));
      return listed.filter((object) => object !== null);
    });
  }

  freeze = async (ref: EngineRef, signal: AbortSignal): Promise<Thaw> =>
    this.#pauses.freeze(this.#parse(ref).containerId, signal, this.#calls.ending);

  /** Docker's own id of the engine; Podman's host name and storage; the host and folder of Apple's services. */
  get engineId(): string {
    return this.#engine.facts.id;
  }

  /** A server of the image's own does not end itself, and a paused container cannot. */
  get endsUnrenewed(): boolean {
    return this.#aio === null && !this.#settings.docker.pauseParked;
  }

  memoryOf = async (ref: EngineRef) => this.#guards.memoryOf(await this.#objects.get(this.#parse(ref).name));

  programsOf({ image }: Pick<Blueprint, "image">, signal: AbortSignal): Promise<string> {
    return this.#images.digest(image ?? this.#settings.docker.image, signal);
  }

  async hostWorkspaces(): Promise<HostWorkspaces> {
    const { hostWorkspacesOf } = await import("../../host/workspaces/host-workspaces.ts");
    // Only the sandbox limits writes to its budget.
    return hostWorkspacesOf(this.workspaces, this.#world, this.#settings.blueprints, () => null, this.checkpoints);
  }

  watch(listener: (event: EngineEvent) => void): () => void {
    return this.#watcher.add(listener);
  }

  activity(ref: EngineRef, signal: AbortSignal): Promise<Activity> {
    return this.#calls.ask("activity", signal, async () => {
      const { name, containerId } = this.#parse(ref);
      const object = await this.#objects.get(name);
      if (object === null) throw new SandlotError("sandbox_not_found", { id: ref });
      // It was idle when it was paused, and nothing has happened since.
      if (this.#settings.docker.pauseParked && this.#pauses.isPaused(containerId)) return NO_ACTIVITY;
      const { sandboxId, generation } = object.record.labels;
      return this.#reaching.reach<Activity>(name, { sandboxId, generation, ref }, () =>
        this.#aio === null
          ? this.#credentials.ask(object, (target) => readActivity(target, signal))
          : this.#aio.activity({ sandboxId, generation }, object, signal),
      );
    });
  }

  async close(): Promise<void> {
    this.#calls.end();
    this.#watcher.stop();
    this.#renewer.stop();
    this.#pauses.stop();
    this.#guards.close();
    await Promise.allSettled([this.#calls.settled(), this.#sweeping]);
    await this.#reaching.close();
    this.#egresses.close();
    await this.checkpoints.close();
    this.workspaces.close();
    this.#engine.close();
    this.#accounts.close();
  }

  async #create(spec: CreateSpec, signal: AbortSignal): Promise<Created> {
    const created = await this.#maker.make(spec, signal);
    const { name } = this.#parse(created.ref);
    this.#credentials.note(name, spec);
    const watching = this.#guard(name);
    if (holdsDisk(spec.blueprint.limits)) await watching;
    if (spec.marker === null) void this.#reaching.connectAhead(name, spec).catch(() => {});
    return created;
  }

  /** The guards report failures themselves. */
  async #guard(name: string): Promise<void> {
    const object = await this.#objects.get(name);
    if (object !== null) await this.#guards.watch(object);
  }

  async #living(name: string) {
    const object = await this.#objects.get(name);
    if (object === null || object.container === null || object.isRemains) return null;
    return { ...object, container: object.container };
  }

  async #isIdle(name: string): Promise<boolean | null> {
    const object = await this.#living(name);
    if (object === null) return null;
    const signal = AbortSignal.any([this.#calls.ending, AbortSignal.timeout(IDLE_ANSWER_MS)]);
    const found = await this.#credentials.ask(object, (target) => readActivity(target, signal));
    return found.heldCount === 0 && found.runningExecs === 0 && found.openTerminals === 0;
  }

  /** A paused daemon could not take renewals. */
  async #renewed(name: string): Promise<void> {
    const object = await this.#living(name);
    if (object === null || this.#aio !== null) return;
    await this.#credentials.ask(object, (target) => renewDaemon(target, this.#calls.ending));
  }

  /** The engine's containers of this fleet, by name. Of two with one name, the recorded one. */
  async #containers(sandboxId: SandboxId | undefined): Promise<Map<string, ListedContainer>> {
    const found = new Map<string, ListedContainer>();
    for (const container of await this.#engine.list(fleetFilter(this.#settings.fleetId, sandboxId))) {
      const labelled = parseLabels(container.Labels);
      if (labelled !== null) found.set(labelled.name, container);
    }
    return found;
  }

  async #listed(name: string, container: ListedContainer | undefined): Promise<EngineObject | null> {
    const object = await this.#objects.get(name);
    if (container === undefined) return object === null ? null : this.#withoutContainer(object);
    const labelled = parseLabels(container.Labels);
    if (labelled === null) return null;
    const { labels, place } = labelled;
    const ref = formatRef({ containerId: container.Id, name });
    const liveness = this.#liveness.of(container.State, object);
    if (liveness === "alive" && object !== null) void this.#guards.watch(object);
    return { ref, labels, liveness, place };
  }

  /** Recorded, but not in the engine: not made yet, removed by another process, or only its slot is left. */
  async #withoutContainer(object: ContainerObject): Promise<EngineObject | null> {
    const { name, record, ref } = object;
    if (object.isRemains && (await this.#remover.settle(name, record.place))) return null;
    const isGone = object.isRemains || (object.container !== null && this.#liveness.isOurEngine(object));
    const liveness = isGone ? "dead" : object.container === null ? this.#liveness.ofMaking(object) : "unknown";
    return { ref, labels: record.labels, liveness, place: record.place };
  }

  #parse(ref: EngineRef): ParsedRef {
    const parsed = parseRef(ref);
    if (parsed === null) throw new SandlotError("sandbox_not_found", { id: ref });
    return parsed;
  }

  /**
   * A sandbox that another backend made, before the configuration named an engine, can be probed and ended but not
   * used: its limits and its egress would be missing. The next acquire after its end makes one here, with the thread's
   * workspace.
   */
  #parseOwn({ ref, sandboxId }: Target): ParsedRef {
    const maker = this.#others.madeBy(ref);
    if (maker === null) return this.#parse(ref);
    throw madeByAnother(maker, sandboxId);
  }

  #check({ blueprint }: CreateSpec): void {
    const missing = (neededBy: string) => missingCapability("network", neededBy);
    const { mode } = blueprint.network;
    if (mode !== "none" && !this.capabilities.has("network")) throw missing("the blueprint's network");
    if (mode === "none" && this.#aio !== null) throw missing("an image whose server is reached through a network");
  }
}
