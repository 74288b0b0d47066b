/**
 * The `docker` backend: sandboxes as containers of an engine that speaks Docker's API, driven through the daemon inside.
 *
 *   create   maker.ts      an intent on disk, the workspace, a socket directory, then a container with the daemon as its work
 *   attach   daemon/       a connection to the daemon's socket; the engine is not asked
 *   probe    liveness.ts   the engine's own answer for the container's id
 *   watch    watcher.ts    one subscription to the engine's events
 *   destroy  remover.ts    the container goes, confirmed, then everything that was made for it
 *
 * Containers belong to no process: they outlive the fleet that made them, and any process of the fleet finds them by their
 * labels. What is decided here: how a call is abandoned, and what a failure to reach a daemon means.
 */

import { tmpdir } from "node:os";
import { type EngineRef, isSandlotError, type SandboxId, SandlotError } from "@sandlot/contract";
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
} from "../../backend/backend.ts";
import { DaemonAttachment, readActivity, rebindDaemon } from "../../daemon/index.ts";
import type { Refusal } from "../../network/index.ts";
import { DiskWorkspaces } from "../../workspace/disk/disk-workspaces.ts";
import { abortable, sleep } from "../../world/waiting.ts";
import type { Liveness, World } from "../../world/world.ts";
import { KnownCredentials } from "../local/credentials.ts";
import type { Layout } from "../local/objects/layout.ts";
import { Renewer } from "../local/renewer.ts";
import { Images, type PullProgress } from "./container/images.ts";
import { publishSocket } from "./container/socket-directory.ts";
import { canGiveWayOut, Egresses } from "./egress.ts";
import { enginePlaces } from "./engine/discovery.ts";
import { connectEngine, type Engine, type ListedContainer } from "./engine/engine.ts";
import { ContainerLiveness } from "./liveness.ts";
import { Maker } from "./maker.ts";
import { type ContainerObject, ContainerObjects, dockerLayout } from "./objects/container-objects.ts";
import { fleetFilter, formatRef, type ParsedRef, parseLabels, parseRef } from "./objects/labels.ts";
import { Remover } from "./remover.ts";
import { type ConfiguredSettings, type DockerSettings, dockerSettings } from "./settings.ts";
import { Watcher } from "./watcher.ts";

export interface DockerBackendOptions {
  readonly settings: ConfiguredSettings;
  readonly world: World;
  /** What the installation would otherwise decide, for tests. */
  readonly installation?: Partial<DockerSettings>;
  /** Hears of images that are being pulled. */
  readonly onPull?: (progress: PullProgress) => void;
}

const NAME = "docker";
/** A daemon that was killed inside is started again by its supervisor, on a new socket. */
const RESTART_LOOKS = 20;
const RESTART_LOOK_MS = 50;

/** Finds the engine. Rejects with `engine_unavailable` and what was tried. */
export async function openDockerBackend(options: DockerBackendOptions): Promise<Backend> {
  const settings = { ...dockerSettings(options.settings), ...options.installation };
  const { environment, userHome, docker } = settings;
  const places = enginePlaces(docker.host, environment, userHome, process.getuid?.() ?? 0);
  const engine = await connectEngine(places, options.world);
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
  readonly workspaces: DiskWorkspaces;
  readonly #world: World;
  readonly #engine: Engine;
  readonly #settings: DockerSettings;
  readonly #layout: Layout;
  readonly #objects: ContainerObjects;
  readonly #liveness: ContainerLiveness;
  readonly #credentials: KnownCredentials;
  readonly #egresses: Egresses;
  readonly #maker: Maker;
  readonly #remover: Remover;
  readonly #watcher: Watcher;
  readonly #renewer: Renewer;
  readonly #attachments = new Set<Attachment>();
  readonly #creating = new Set<Promise<unknown>>();
  readonly #closing = new AbortController();
  readonly #sweeping: Promise<unknown>;

  constructor(engine: Engine, settings: DockerSettings, { world, onPull }: DockerBackendOptions) {
    const { fleetId, home, account, ownsAccount, docker } = settings;
    const layout = dockerLayout(home, fleetId, settings.environment.XDG_RUNTIME_DIR ?? tmpdir());
    this.#world = world;
    this.#engine = engine;
    this.#settings = settings;
    this.#layout = layout;
    this.workspaces = new DiskWorkspaces({ root: layout.root, account: ownsAccount ? null : account, world });
    this.#objects = new ContainerObjects(layout, world.identity);
    this.#liveness = new ContainerLiveness(engine, this.#objects, world);
    this.#credentials = new KnownCredentials(layout, this.workspaces);
    const shared = { world, engine, layout, objects: this.#objects, workspaces: this.workspaces };
    const { blueprints } = settings;
    const onRefused = (sandboxId: SandboxId, { host, port, rule, because }: Refusal) =>
      this.#watcher.tell({ type: "refused", sandboxId, host, port, rule, because });
    this.#egresses = new Egresses({ backend: NAME, world, layout, engine, account, blueprints, onRefused });
    const egresses = this.#egresses;
    this.#remover = new Remover({ ...shared, egresses, fleetId, liveness: this.#liveness });
    const images = new Images(engine, world, docker, onPull ?? (() => {}));
    this.#maker = new Maker({ ...shared, egresses, settings, images, remover: this.#remover });
    this.#watcher = new Watcher(engine, fleetId, world);
    const renewed = {
      names: () => this.#objects.names(),
      living: async (name: string) => {
        const object = await this.#objects.get(name);
        return object === null || object.container === null || object.isRemains ? null : object;
      },
    };
    this.#renewer = new Renewer(world, renewed, this.#credentials, settings.orphanTimeoutMs);
    if (settings.orphanTimeoutMs > 0) this.#renewer.start();
    // What a crash left half-written is in nobody's way, so a failure to remove it can wait for the next start.
    this.#sweeping = Promise.allSettled([this.#objects.sweep(world.wallMs()), this.workspaces.sweep()]);
    this.capabilities = capabilitiesOf(this.workspaces.probeLateBinding().possible, canGiveWayOut(engine.facts));
  }

  create(spec: CreateSpec, signal: AbortSignal): Promise<Created> {
    return this.#ask("create", signal, () => {
      this.#check(spec);
      const creating = this.#create(spec, AbortSignal.any([signal, this.#closing.signal]));
      this.#creating.add(creating);
      const done = () => this.#creating.delete(creating);
      creating.then(done, done);
      return creating;
    });
  }

  attach(target: Target, signal: AbortSignal): Promise<Attachment> {
    return this.#ask("attach", signal, async () => {
      const { name } = this.#parse(target.ref);
      const daemon = this.#credentials.target(name, target.sandboxId, target);
      const attachment = await this.#reach(target, () => DaemonAttachment.open(daemon, this.#world, signal));
      this.#credentials.note(name, target);
      await this.#haveWayOut(name);
      this.#attachments.add(attachment);
      void attachment.closed.then(() => this.#attachments.delete(attachment));
      return attachment;
    });
  }

  rebind(target: Target, from: Credentials, signal: AbortSignal): Promise<void> {
    return this.#ask("rebind", signal, async () => {
      const { name } = this.#parse(target.ref);
      const daemon = this.#credentials.target(name, target.sandboxId, from);
      await this.#reach(target, () => rebindDaemon(daemon, target, signal));
      this.#credentials.note(name, target);
    });
  }

  probe(ref: EngineRef, signal: AbortSignal): Promise<Liveness> {
    return this.#ask("probe", signal, () => this.#liveness.probe(ref));
  }

  destroy(ref: EngineRef, signal: AbortSignal): Promise<void> {
    return this.#ask("destroy", signal, async () => {
      await this.#remover.destroy(ref, signal);
      this.#credentials.forget(this.#parse(ref).name);
    });
  }

  /** Always consistent: what was made is on disk before it is made, and the engine knows what it has. */
  list({ sandboxId }: ListOptions, signal: AbortSignal): Promise<readonly EngineObject[]> {
    return this.#ask("list", signal, async () => {
      const containers = await this.#containers(sandboxId);
      const names = (await this.#objects.names()).filter(
        (name) => sandboxId === undefined || name.startsWith(`${sandboxId}-`),
      );
      const all = [...new Set([...containers.keys(), ...names])];
      const listed = await Promise.all(all.map((name) => this.#listed(name, containers.get(name))));
      return listed.filter((object) => object !== null);
    });
  }

  watch(listener: (event: EngineEvent) => void): () => void {
    return this.#watcher.add(listener);
  }

  activity(ref: EngineRef, signal: AbortSignal): Promise<Activity> {
    return this.#ask("activity", signal, async () => {
      const object = await this.#objects.get(this.#parse(ref).name);
      if (object === null) throw new SandlotError("sandbox_not_found", { id: ref });
      const { sandboxId, generation } = object.record.labels;
      return this.#reach({ sandboxId, generation, ref }, () =>
        this.#credentials.ask(object, (target) => readActivity(target, signal)),
      );
    });
  }

  async close(): Promise<void> {
    this.#closing.abort(closedError("create"));
    this.#watcher.stop();
    this.#renewer.stop();
    await Promise.allSettled([...this.#creating, this.#sweeping]);
    await Promise.all([...this.#attachments].map((attachment) => attachment.close()));
    this.#egresses.close();
    this.workspaces.close();
    this.#engine.close();
  }

  async #create(spec: CreateSpec, signal: AbortSignal): Promise<Created> {
    const created = await this.#maker.make(spec, signal);
    this.#credentials.note(this.#parse(created.ref).name, spec);
    return created;
  }

  /** One that lost its way out, because the process that carried it was killed, gets another one. */
  async #haveWayOut(name: string): Promise<void> {
    if (!this.capabilities.has("network")) return;
    const object = await this.#objects.get(name);
    if (object !== null) await this.#egresses.join(object);
  }

  /** Whoever cannot be reached is asked for in the engine: what is dead there is lost, what lives may be restarting. */
  async #reach<T>(
    target: { sandboxId: SandboxId; generation: number; ref: EngineRef },
    call: () => Promise<T>,
  ): Promise<T> {
    for (let looks = 0; ; looks++) {
      try {
        return await call();
      } catch (error) {
        if (!isSandlotError(error, "sandbox_unreachable")) throw error;
        const liveness = await this.#liveness.probe(target.ref);
        if (liveness === "dead") throw lostError(target, error);
        if (liveness === "unknown" || looks >= RESTART_LOOKS) throw error;
        if (!publishSocket(this.#layout, this.#parse(target.ref).name)) await sleep(this.#world, RESTART_LOOK_MS);
      }
    }
  }

  /** What the engine has of this fleet, by name. Should there be two of one name, the one that is written down. */
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
    return { ref, labels, liveness: this.#liveness.of(container.State, object), place };
  }

  /** Written down, and not in the engine: not made yet, removed by somebody, or only its slot is left. */
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

  #check({ blueprint }: CreateSpec): void {
    if (blueprint.network.mode !== "none" && !this.capabilities.has("network"))
      throw new SandlotError("capability_missing", {
        backend: NAME,
        capability: "network",
        neededBy: "the blueprint's network",
      });
  }

  /** Asks, and stops waiting when the signal fires. A signal that has fired already asks nothing. */
  async #ask<T>(operation: string, signal: AbortSignal, call: () => Promise<T>): Promise<T> {
    if (this.#closing.signal.aborted) throw closedError(operation);
    signal.throwIfAborted();
    return abortable(call(), signal);
  }
}

function lostError(
  { sandboxId, generation }: { sandboxId: SandboxId; generation: number },
  cause: unknown,
): SandlotError {
  return new SandlotError("sandbox_lost", { sandboxId, generation, reason: "crashed" }, { cause });
}

function closedError(operation: string): SandlotError {
  return new SandlotError("fleet_closed", { operation });
}

function capabilitiesOf(lateBinding: boolean, network: boolean): ReadonlySet<Capability> {
  const capabilities = new Set<Capability>(["image", "limits", "mounts", "sessions", "terminal", "watch", "preview"]);
  if (lateBinding) capabilities.add("late-binding");
  if (network) capabilities.add("network");
  return capabilities;
}
