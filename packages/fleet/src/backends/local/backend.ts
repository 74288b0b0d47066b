/**
 * The `local` backend: sandboxes on this machine, isolated by bubblewrap and the kernel, with no engine that has to
 * run.
 *
 *   create   maker.ts      an intent on disk, the workspace, limits, a socket, then bubblewrap with the daemon inside
 *   attach   sandboxd/     a connection to the daemon's socket
 *   probe    objects/      the init's pid and start time, and its pulse
 *   watch    watcher.ts    pulses: the kernel closes them when a sandbox ends
 *   destroy  remover.ts    the init is killed, its pid namespace with it, then everything that was made for it goes
 *
 * Sandboxes belong to no process: they outlive the fleet that made them, and any process of the fleet finds them by the
 * directory of objects. This file decides how a call is abandoned, and what a failure to reach a daemon means.
 */

import { tmpdir } from "node:os";
import { join } from "node:path";
import { type EngineRef, type SandboxId, SandlotError, type ThreadKey } from "@sandlot/contract";
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
import { frozenFor } from "../../backend/frozen.ts";
import type { HostWorkspaces } from "../../backend/host-workspaces.ts";
import type { Markers } from "../../backend/markers.ts";
import { type IdMapping, type SandboxAccounts, sandboxAccounts } from "../../host/accounts/index.ts";
import { DiskCheckpoints } from "../../host/checkpoints/disk-checkpoints.ts";
import { boundedBy } from "../../host/checkpoints/options.ts";
import type { Refusal } from "../../host/egress/index.ts";
import { homeEngineId } from "../../host/engine-id.ts";
import { makeLayout, socketPath } from "../../host/layout.ts";
import { type Limits, openLimits, ProjectQuotas } from "../../host/limits/index.ts";
import { lazyLimits } from "../../host/limits/lazy-limits.ts";
import { machineId } from "../../host/process-table.ts";
import { hostInterpreters } from "../../host/runtime/host-interpreters.ts";
import { DiskTimelines } from "../../host/timelines/disk-timelines.ts";
import type { DiskWorkspaces } from "../../host/workspaces/disk-workspaces.ts";
import { QuotaWorkspaces } from "../../host/workspaces/quota-workspaces.ts";
import { problemOf } from "../../observe/event-bus.ts";
import { Attacher, withSandbox } from "../../sandboxd/attacher.ts";
import { KnownCredentials } from "../../sandboxd/credentials.ts";
import { readActivity } from "../../sandboxd/index.ts";
import { Renewer } from "../../sandboxd/renewer.ts";
import type { Liveness, World } from "../../world/world.ts";
import { BubblewrapEngine } from "./bubblewrap/bubblewrap-engine.ts";
import { capabilitiesOf } from "./capabilities.ts";
import { Egresses } from "./egress.ts";
import { strayDescriptors } from "./engine/stray-descriptors.ts";
import { canFreezeSandboxes, frozenSandbox } from "./freezing.ts";
import { Guards } from "./guards.ts";
import { Maker } from "./maker.ts";
import { notOurs, type ParsedRef, parseRef } from "./objects/engine-ref.ts";
import { ObjectLiveness } from "./objects/object-liveness.ts";
import { type LocalObject, ObjectStore } from "./objects/object-store.ts";
import { Remover } from "./remover.ts";
import { type ConfiguredSettings, type LocalSettings, localSettings } from "./settings.ts";
import { mappedSandbox } from "./unsafe/mapped-sandbox.ts";
import { PathMaps } from "./unsafe/path-maps.ts";
import { UnsafeEngine } from "./unsafe/unsafe-engine.ts";
import { Watcher } from "./watcher.ts";

export interface LocalBackendOptions {
  readonly settings: ConfiguredSettings;
  readonly world: World;
  /** Replaces settings that follow from the installation, for tests. */
  readonly installation?: Partial<LocalSettings>;
}

const NAME = "local";
/** Of calls that are abandoned in another way. */
const UNLIMITED = new AbortController().signal;

export function createLocalBackend(options: LocalBackendOptions): Backend {
  return new LocalBackend(options);
}

class LocalBackend implements Backend {
  readonly name = NAME;
  readonly engineId: string;
  readonly endsUnrenewed = true;
  /** A sandbox has the host's own `/usr`. */
  readonly programFolders = ["/usr/local/bin", "/usr/bin", "/bin"];
  readonly capabilities: ReadonlySet<Capability>;
  readonly lateBindingProblem: string | null;
  readonly workspaces: DiskWorkspaces;
  readonly checkpoints: DiskCheckpoints;
  readonly timelines: DiskTimelines;
  readonly markers: Markers;
  readonly #world: World;
  readonly #objects: ObjectStore;
  readonly #liveness: ObjectLiveness;
  readonly #credentials: KnownCredentials;
  readonly #limits: Limits;
  readonly #quotas: ProjectQuotas;
  readonly #egresses: Egresses;
  readonly #guards: Guards;
  readonly #maker: Maker;
  readonly #remover: Remover;
  readonly #watcher: Watcher;
  readonly #renewer: Renewer;
  readonly #attacher: Attacher;
  readonly #maps: PathMaps;
  readonly #calls = new BackendCalls();
  readonly #sweeping: Promise<void>;
  readonly #accounts: SandboxAccounts | null;
  readonly #mapping: IdMapping;
  readonly #blueprints: LocalSettings["blueprints"];

  constructor({ settings: configured, world, installation = {} }: LocalBackendOptions) {
    const settings = { ...localSettings(configured), ...installation };
    const { fleetId, home, account } = settings;
    this.#mapping = settings.mapping;
    const layout = makeLayout(home, fleetId, process.env.XDG_RUNTIME_DIR ?? tmpdir());
    this.#maps = new PathMaps(layout);
    const id = machineId();
    this.#blueprints = settings.blueprints;
    // The layout has made the home.
    this.engineId = homeEngineId(NAME, id, home);
    this.#world = world;
    const onLimitProblem = (error: unknown) =>
      this.#watcher.tell({ type: "housekeeping-failed", task: "limits", problem: problemOf(error) });
    const quotas = new ProjectQuotas({ root: layout.root, world, onProblem: onLimitProblem });
    this.#quotas = quotas;
    const isUnsafe = settings.local.isolation === "unsafe-process";
    const disk = { root: layout.root, account, world, isPassable: isUnsafe };
    this.workspaces = new QuotaWorkspaces(disk, quotas);
    const options = boundedBy(settings.checkpoints);
    this.checkpoints = new DiskCheckpoints({ ...disk, workspaces: this.workspaces, options });
    this.timelines = DiskTimelines.beside(this.workspaces, layout.root, world);
    this.markers = this.workspaces.markers;
    this.#objects = new ObjectStore(layout, world.identity);
    this.#liveness = new ObjectLiveness(layout, world, id);
    this.#credentials = new KnownCredentials({
      address: (name) => ({ path: socketPath(layout, name) }),
      given: (sandboxId) => this.markers.list(sandboxId),
    });
    this.#limits = lazyLimits(() => openLimits({ fleetId, world }));
    const shared = { world, layout, objects: this.#objects, workspaces: this.workspaces, limits: this.#limits };
    const onRefused = (sandboxId: SandboxId, { host, port, rule, because }: Refusal) =>
      this.#watcher.tell({ type: "egress-refused", sandboxId, host, port, rule, because });
    const { blueprints } = settings;
    this.#accounts = isUnsafe ? null : sandboxAccounts(NAME, settings, world);
    this.#egresses = new Egresses({ backend: NAME, world, layout, account, blueprints, onRefused });
    this.#guards = new Guards(world, this.#limits, quotas, layout, {
      onHit: ({ record }, limit, because) =>
        this.#watcher.tell({ type: "limit-hit", sandboxId: record.labels.sandboxId, limit, because }),
      onProblem: onLimitProblem,
    });
    const egresses = this.#egresses;
    const [accounts, mapping] = [this.#accounts, this.#mapping];
    this.#remover = new Remover({ ...shared, egresses, accounts, liveness: this.#liveness });
    const onProblem = (error: unknown) =>
      this.#watcher.tell({ type: "housekeeping-failed", task: "runtime-directories", problem: problemOf(error) });
    const engine = isUnsafe
      ? new UnsafeEngine(settings, layout)
      : new BubblewrapEngine(settings, layout, join(layout.root, "etc"), mapping, { world, onProblem });
    const onMountProblem = (problem: string) =>
      this.#watcher.tell({ type: "housekeeping-failed", task: "mounts", problem });
    const parts = { ...shared, quotas, egresses, settings, remover: this.#remover, engine, machineId: id };
    this.#maker = new Maker({ ...parts, strays: strayDescriptors(), accounts, mapping, onMountProblem });
    this.#watcher = new Watcher(layout, this.#objects, this.#liveness, world);
    const renewed = {
      names: () => this.#objects.names(),
      living: async (name: string) => {
        const object = await this.#objects.get(name);
        return object !== null && this.#liveness.of(object) === "alive" ? object : null;
      },
    };
    this.#renewer = new Renewer(world, renewed, this.#credentials, settings.orphanTimeoutMs);
    if (settings.orphanTimeoutMs > 0) this.#renewer.start();
    const probe = (ref: EngineRef) => this.#probe(ref);
    const dress = (name: string, inner: Attachment) => this.#withLimitsAndEgress(name, inner);
    this.#attacher = new Attacher({ world, credentials: this.#credentials, probe, dress });
    this.#sweeping = this.#sweep();
    const late = this.workspaces.probeLateBinding();
    this.lateBindingProblem = late.possible ? null : late.reason;
    const canPause = canFreezeSandboxes(isUnsafe, world);
    const ownAccounts = accounts !== null;
    this.capabilities = capabilitiesOf(isUnsafe, { lateBinding: late.possible, canPause, ownAccounts });
  }

  create(spec: CreateSpec, signal: AbortSignal): Promise<Created> {
    return this.#calls.create(signal, async (either) => {
      this.#check(spec);
      return this.#create(spec, either);
    });
  }

  attach(target: Target, signal: AbortSignal): Promise<Attachment> {
    return this.#calls.ask("attach", signal, async () =>
      this.#attacher.attach(this.#parse(target.ref).name, target, signal),
    );
  }

  rebind(target: Target, from: Credentials, signal: AbortSignal): Promise<void> {
    return this.#calls.ask("rebind", signal, async () => {
      const { name } = this.#parse(target.ref);
      // The last moment before commands can run in the workspace that has just arrived.
      if (this.#quotas.isConceivable) await this.#hold(name);
      await this.#attacher.rebind(name, target, from, signal);
    });
  }

  probe(ref: EngineRef, signal: AbortSignal): Promise<Liveness> {
    return this.#calls.ask("probe", signal, () => this.#probe(ref));
  }

  destroy(ref: EngineRef, signal: AbortSignal): Promise<void> {
    return this.#calls.ask("destroy", signal, async () => {
      const { name } = this.#parse(ref);
      await this.#remover.destroy(ref, signal);
      this.#credentials.forget(name);
      this.#guards.forget(name);
      this.#attacher.drop(name);
      this.#maps.forget(name);
    });
  }

  /** Always consistent: the intent is on disk before the sandbox is made. */
  list({ sandboxId }: ListOptions, signal: AbortSignal): Promise<readonly EngineObject[]> {
    return this.#calls.ask("list", signal, async () => {
      if (sandboxId === undefined) await this.#sweepUnmade();
      const names = await this.#objects.names();
      const wanted = sandboxId === undefined ? names : names.filter((name) => name.startsWith(`${sandboxId}-`));
      const listed = await Promise.all(wanted.map((name) => this.#listed(name, sandboxId)));
      return listed.filter((object) => object !== null);
    });
  }

  async memoryOf(ref: EngineRef): Promise<number | null> {
    return this.#limits.open(this.#parse(ref).name).usage().memoryBytes;
  }

  /** A sandbox has the host's own `/usr`. */
  programsOf(): Promise<string> {
    return hostInterpreters();
  }

  freeze(ref: EngineRef, signal: AbortSignal): Promise<Thaw> {
    const freezing = this.#calls.ask("freeze", UNLIMITED, async () =>
      frozenSandbox(await this.#objects.get(this.#parse(ref).name), this.#world),
    );
    return frozenFor(signal, freezing);
  }

  async hostWorkspaces(): Promise<HostWorkspaces> {
    const { hostWorkspacesOf } = await import("../../host/workspaces/host-workspaces.ts");
    const budgetOf = (thread: ThreadKey) => this.#guards.budgetOf(thread);
    return hostWorkspacesOf(this.workspaces, this.#world, this.#blueprints, budgetOf, this.checkpoints);
  }

  watch(listener: (event: EngineEvent) => void): () => void {
    return this.#watcher.add(listener);
  }

  activity(ref: EngineRef, signal: AbortSignal): Promise<Activity> {
    return this.#calls.ask("activity", signal, async () => {
      const object = await this.#objects.get(this.#parse(ref).name);
      if (object === null) throw new SandlotError("sandbox_not_found", { id: ref });
      const { sandboxId, generation } = object.record.labels;
      return this.#attacher.reach(object.name, { sandboxId, generation, ref }, () =>
        this.#credentials.ask(object, (target) => readActivity(target, signal)),
      );
    });
  }

  async close(): Promise<void> {
    this.#calls.end();
    this.#watcher.stop();
    this.#renewer.stop();
    await Promise.allSettled([this.#calls.settled(), this.#sweeping]);
    await this.#attacher.close();
    await Promise.allSettled([this.#settleRemains()]);
    this.#guards.close();
    this.#egresses.close();
    await this.checkpoints.close();
    this.workspaces.close();
    this.#limits.close();
    this.#mapping.close();
  }

  /** Half-written files of a crash do no harm, so a failure to remove them can wait for the next start. */
  async #sweep(): Promise<void> {
    await Promise.allSettled([this.#sweepUnmade(), this.workspaces.sweep(), this.#settleRemains()]);
  }

  /**
   * Removes drafts and account claims of killed processes, for sandboxes that they did not make. A failure can wait for
   * the next sweep.
   */
  async #sweepUnmade(): Promise<void> {
    const accounts = async () => this.#accounts?.sweep();
    const swept = await Promise.allSettled([this.#objects.sweep(this.#world.wallMs()), accounts()]);
    for (const { reason } of swept.filter((one) => one.status === "rejected"))
      this.#watcher.tell({ type: "housekeeping-failed", task: "accounts", problem: problemOf(reason) });
  }

  /** Forgets objects that were kept for a workspace which has gone home since: no later call may name them. */
  async #settleRemains(): Promise<void> {
    for (const name of await this.#objects.names()) {
      const object = await this.#objects.get(name);
      if (object?.isRemains === true) await this.#remover.settle(object);
    }
  }

  async #create(spec: CreateSpec, signal: AbortSignal): Promise<Created> {
    const created = await this.#maker.make(spec, signal);
    const { name } = this.#parse(created.ref);
    this.#credentials.note(name, spec);
    const object = await this.#objects.get(name);
    if (object !== null) this.#guards.watch(object);
    if (spec.marker === null) void this.#attacher.prepare(name, spec);
    return created;
  }

  async #hold(name: string): Promise<void> {
    const object = await this.#objects.get(name);
    if (object !== null) await this.#guards.hold(object);
  }

  /** The attachment for the caller: under the sandbox's limits, with its egress in place. */
  async #withLimitsAndEgress(name: string, inner: Attachment): Promise<Attachment> {
    try {
      const object = await this.#objects.get(name);
      if (object === null) return inner;
      await this.#egresses.join(object);
      const limited = this.#guards.limited(object, inner.sandbox);
      const sandbox =
        object.record.isolation === "bubblewrap" ? limited : mappedSandbox(limited, this.#maps.of(object));
      return withSandbox(inner, sandbox);
    } catch (error) {
      await inner.close();
      throw error;
    }
  }

  async #probe(ref: EngineRef): Promise<Liveness> {
    const parsed = parseRef(ref);
    if (parsed === null) return "unknown";
    const object = await this.#objects.get(parsed.name);
    return object === null ? this.#liveness.ofReference(parsed) : this.#liveness.of(object);
  }

  async #listed(name: string, sandboxId: SandboxId | undefined): Promise<EngineObject | null> {
    const object = await this.#objects.get(name);
    if (object === null || (sandboxId !== undefined && object.record.labels.sandboxId !== sandboxId)) return null;
    if (object.isRemains && (await this.#remover.settle(object))) return null;
    const listed = this.#objectOf(object);
    if (listed.liveness === "alive") this.#guards.watchDisk(object);
    return listed;
  }

  #objectOf(object: LocalObject): EngineObject {
    const { labels, place } = object.record;
    return { ref: object.ref, labels, liveness: this.#liveness.of(object), place };
  }

  #parse(ref: EngineRef): ParsedRef {
    const parsed = parseRef(ref);
    if (parsed === null) throw notOurs(ref);
    return parsed;
  }

  #check({ blueprint }: CreateSpec): void {
    const missing = (capability: Capability, neededBy: string) =>
      new SandlotError("capability_missing", { backend: NAME, capability, neededBy });
    const { capabilities } = this;
    if (blueprint.image !== undefined) throw missing("image", "the blueprint's image");
    if (blueprint.runtime !== undefined) throw missing("runtime", "the blueprint's runtime");
    if (!capabilities.has("limits") && Object.values(blueprint.limits).some((limit) => limit !== undefined))
      throw missing("limits", "the blueprint's limits");
    const { mode, allow, registries = [] } = blueprint.network;
    if (!capabilities.has("network") && (registries.length > 0 || (mode !== "open" && allow.length > 0)))
      throw missing("network", "the blueprint's network");
  }
}
