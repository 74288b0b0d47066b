/**
 * The `kubernetes` backend: sandboxes as pods of one namespace, driven through the daemon inside.
 *
 *   create   maker.ts      a gated pod, its Secret, the store's word, then the pod may run
 *   attach   sandboxd/     TLS with the pod's own key, to its address or through the API server
 *   probe    liveness.ts   a quorum read; dead at proof only
 *   watch    watcher.ts    one watch of the fleet's pods
 *   destroy  remover.ts    deleted, proved, let go
 *
 * Pods belong to no process: every process of the fleet finds them by their labels, and reaches them with the fleet's
 * key. This file decides how a call is abandoned.
 */

import { type EngineRef, isSandlotError, SandlotError } from "@sandlot/contract";
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
  Workspaces,
} from "../../backend/backend.ts";
import { BackendCalls } from "../../backend/backend-calls.ts";
import type { Blueprint } from "../../backend/blueprint.ts";
import type { HostWorkspaces } from "../../backend/host-workspaces.ts";
import type { Markers } from "../../backend/markers.ts";
import { Attacher } from "../../sandboxd/attacher.ts";
import { readActivity, renewDaemon } from "../../sandboxd/index.ts";
import { Renewer } from "../../sandboxd/renewer.ts";
import type { Liveness, World } from "../../world/world.ts";
import { type ApiClient, openApi } from "./api/client.ts";
import { PortForwards } from "./api/port-forward.ts";
import { explainStop } from "./explain.ts";
import { claimFleet, type FleetClaim } from "./fleet-claim.ts";
import { Housekeeping } from "./housekeeping.ts";
import { LettingGoWorkspaces } from "./letting-go-workspaces.ts";
import { PodLiveness } from "./liveness.ts";
import { Maker } from "./maker.ts";
import { fleetSelector, LABEL, type ParsedRef, PROOF_FINALIZER, parseRef, podName } from "./pod/names.ts";
import { isBeingDeleted, type Pod, podOf } from "./pod/pod.ts";
import { PodSecrets } from "./pod/pod-secret.ts";
import { type CachedPod, PodCache } from "./pod-cache.ts";
import { PodCredentials } from "./pod-credentials.ts";
import { Remover } from "./remover.ts";
import type { KubernetesSettings } from "./settings.ts";
import { Watcher } from "./watcher.ts";
import type { NoWorkspaces } from "./workspaces/no-workspaces.ts";
import { podWorkspaces } from "./workspaces/open-workspaces.ts";
import type { Leftover, PodWorkspaces } from "./workspaces/pod-workspaces.ts";

export interface KubernetesBackendOptions {
  readonly settings: KubernetesSettings;
  readonly world: World;
  /** Whether network and volume of the cluster are tried before the first sandbox. Default: yes. */
  readonly tries?: boolean;
}

const NAME = "kubernetes";
const ANSWER_MS = 2_000;
/** Limits of the pod itself. Processes per pod are a setting of the kubelet, and files are not counted. */
const LIMITS: ReadonlySet<keyof Blueprint["limits"]> = new Set(["memoryBytes", "cpuCount", "diskBytes"]);

/** Rejects with `engine_unavailable` when the API server cannot be reached. */
export async function openKubernetesBackend({
  settings,
  world,
  tries = true,
}: KubernetesBackendOptions): Promise<Backend> {
  const { networkPolicy, egress } = settings.kubernetes;
  if (networkPolicy === "enforce" && egress.host === undefined)
    throw new SandlotError("config_invalid", {
      path: "kubernetes.egress.host",
      problem:
        "is missing, and sandboxes prove their network policy by it: install the egress proxies (the chart does), " +
        "or set kubernetes.networkPolicy to external if something else isolates pods",
    });
  const api = await openApi(settings.kubernetes, world);
  const ending = new AbortController();
  try {
    const claim = await claimFleet(api, world, settings, ending.signal);
    return new KubernetesBackend(api, claim, settings, world, ending, tries);
  } catch (error) {
    api.close();
    throw error;
  }
}

class KubernetesBackend implements Backend {
  readonly name = NAME;
  readonly engineId: string;
  readonly capabilities: ReadonlySet<Capability>;
  readonly limits = LIMITS;
  readonly endsUnrenewed = true;
  readonly workspaces: Workspaces;
  readonly markers: Markers;
  readonly hostWorkspaces?: () => Promise<HostWorkspaces>;
  readonly #api: ApiClient;
  readonly #settings: KubernetesSettings;
  readonly #ending: AbortController;
  readonly #cache: PodCache;
  readonly #credentials: PodCredentials;
  readonly #liveness: PodLiveness;
  readonly #remover: Remover;
  readonly #maker: Maker;
  readonly #watcher: Watcher;
  readonly #attacher: Attacher;
  readonly #renewer: Renewer;
  readonly #podWorkspaces: PodWorkspaces | NoWorkspaces;
  readonly #calls = new BackendCalls();
  readonly #housekeeping: Housekeeping;

  constructor(
    api: ApiClient,
    { engineId, keys }: FleetClaim,
    settings: KubernetesSettings,
    world: World,
    ending: AbortController,
    tries: boolean,
  ) {
    const { kubernetes, fleetId, orphanTimeoutMs } = settings;
    this.#api = api;
    this.#settings = settings;
    this.#ending = ending;
    this.engineId = engineId;
    this.#cache = new PodCache(api.namespace);
    const cache = this.#cache;
    const secrets = new PodSecrets(api, fleetId, ending.signal);
    this.markers = secrets;
    this.#podWorkspaces = podWorkspaces(api, settings, secrets, {
      world,
      signal: ending.signal,
      onProblem: (problem) => this.#watcher.tell({ type: "housekeeping-failed", task: "workspaces", problem }),
    });
    const { files } = this.#podWorkspaces;
    if (files !== null) this.hostWorkspaces = async () => files;
    const forwards = forwardsThroughApi(settings, api) ? new PortForwards(api) : null;
    const probe = (ref: EngineRef) => this.#liveness.probe(ref, ending.signal);
    const known = { world, api, cache, secrets, keys, forwards, probe };
    this.#credentials = new PodCredentials(known);
    const credentials = this.#credentials;
    const answers = (pod: Pod, signal: AbortSignal) => this.#answers(pod, signal);
    this.#liveness = new PodLiveness({ api, nodeLoss: kubernetes.nodeLoss, answers });
    this.#watcher = new Watcher(api, fleetId, world, cache);
    this.#remover = new Remover({
      ...{ api, world, liveness: this.#liveness, workspaces: this.#podWorkspaces },
      ending: (uid) => this.#watcher.ending(uid),
      onChange: (name, changed) => cache.onChange(name, changed),
    });
    this.workspaces = new LettingGoWorkspaces(this.#podWorkspaces, (sandboxId) =>
      this.#settleRemains(podName(sandboxId), ending.signal),
    );
    this.#maker = new Maker({
      ...{ api, world, settings, keys, secrets, cache, credentials },
      ...{ remover: this.#remover, workspaces: this.#podWorkspaces },
      hasOwnUsers: () => this.#housekeeping.hasOwnUsers,
      onPulling: (image, state, problem) =>
        this.#watcher.tell({ type: "image-pulling", image, state, currentBytes: 0, totalBytes: 0, problem }),
    });
    this.#attacher = new Attacher({ world, credentials, probe, dress: async (_name, inner) => inner });
    const renewed = {
      names: async () => this.#cache.names(),
      living: async (name: string) => this.#living(name),
    };
    this.#renewer = new Renewer(world, renewed, credentials, orphanTimeoutMs);
    if (orphanTimeoutMs > 0) this.#renewer.start();
    const capabilities = capabilitiesOf(settings, this.#podWorkspaces);
    this.capabilities = capabilities;
    this.#housekeeping = new Housekeeping({
      ...{ api, world, settings, keys, cache, secrets, forwards, tries, signal: ending.signal },
      ...{ watcher: this.#watcher, remover: this.#remover, workspaces: this.#podWorkspaces },
      onNoLateBinding: () => void capabilities.delete("late-binding"),
      isKnown: (leftover) => this.#isKnown(leftover),
    });
  }

  create(spec: CreateSpec, signal: AbortSignal): Promise<Created> {
    return this.#calls.create(signal, async (either) => {
      this.#check(spec);
      await this.#housekeeping.beforeCreate(spec.marker === null, either);
      const created = await this.#maker.make(spec, either);
      const name = podName(spec.labels.sandboxId);
      this.#credentials.note(name, spec);
      if (spec.marker === null) void this.#attacher.prepare(name, spec).catch(() => {});
      return created;
    });
  }

  attach(target: Target, signal: AbortSignal): Promise<Attachment> {
    return this.#calls.ask("attach", signal, async () => {
      const { name } = await this.#located(target, signal);
      this.#housekeeping.attached(target.sandboxId);
      return this.#attacher.attach(name, target, signal);
    });
  }

  rebind(target: Target, from: Credentials, signal: AbortSignal): Promise<void> {
    return this.#calls.ask("rebind", signal, async () => {
      const { name, uid } = await this.#located(target, signal);
      const place = (await this.#pod(name, uid, signal))?.place ?? "home";
      // Only a workspace that was moved in has to arrive.
      const hasMoved = place !== "home" && (await this.#podWorkspaces.isOccupied(place));
      const expect = hasMoved ? this.#podWorkspaces.arrival({ generation: target.generation, place }) : null;
      await this.#attacher.rebind(name, target, from, signal, expect === null ? {} : { expect });
    });
  }

  probe(ref: EngineRef, signal: AbortSignal): Promise<Liveness> {
    return this.#calls.ask("probe", signal, () => this.#liveness.probe(ref, signal));
  }

  destroy(ref: EngineRef, signal: AbortSignal): Promise<void> {
    return this.#calls.ask("destroy", signal, async () => {
      const { name } = this.#parse(ref);
      await this.#credentials.whileEnding(name, () => this.#remover.destroy(ref, signal));
      this.#attacher.drop(name);
      this.#credentials.forget(name);
    });
  }

  list({ consistent, sandboxId }: ListOptions, signal: AbortSignal): Promise<readonly EngineObject[]> {
    return this.#calls.ask("list", signal, async () => {
      if (sandboxId === undefined && !consistent && this.#cache.isCurrent) return this.#cache.objects();
      const listed = await Promise.all((await this.#pods(sandboxId, signal)).map((pod) => this.#listed(pod, signal)));
      return listed.filter((object) => object !== null);
    });
  }

  watch(listener: (event: EngineEvent) => void): () => void {
    return this.#watcher.add(listener);
  }

  activity(ref: EngineRef, signal: AbortSignal): Promise<Activity> {
    return this.#calls.ask("activity", signal, async () => {
      const { name, uid } = this.#parse(ref);
      const pod = await this.#pod(name, uid, signal);
      if (pod === null) throw new SandlotError("sandbox_not_found", { id: ref });
      const object = await this.#credentials.asked(pod, signal);
      const { sandboxId, generation } = pod.labels;
      await this.#credentials.locate(name, uid, signal);
      return this.#attacher.reach(name, { sandboxId, generation, ref }, () =>
        this.#credentials.ask(object, (target) => readActivity(target, signal)),
      );
    });
  }

  explain(ref: EngineRef, signal: AbortSignal): Promise<string | null> {
    return this.#calls.ask("explain", signal, () => explainStop(this.#api, this.#settings, ref, signal));
  }

  confirmDead(ref: EngineRef, by: string, signal: AbortSignal): Promise<void> {
    return this.#calls.ask("confirm-dead", signal, () => this.#remover.confirm(ref, by, signal));
  }

  async close(): Promise<void> {
    this.#calls.end();
    this.#watcher.stop();
    this.#renewer.stop();
    this.#housekeeping.stop();
    await this.#calls.settled();
    await this.#attacher.close();
    await this.#housekeeping.settled();
    await this.#podWorkspaces.close();
    await this.#housekeeping.swept();
    this.#ending.abort(new SandlotError("fleet_closed", { operation: "asking the cluster" }));
    this.#api.close();
  }

  async #pods(sandboxId: ListOptions["sandboxId"], signal: AbortSignal): Promise<readonly Pod[]> {
    if (sandboxId !== undefined) {
      const found = await this.#api.get("pods", podName(sandboxId), signal);
      return found === null ? [] : [podOf(found)];
    }
    const labelSelector = fleetSelector(this.#settings.fleetId);
    return (await this.#api.list("pods", { labelSelector }, signal)).items.map(podOf);
  }

  async #listed(pod: Pod, signal: AbortSignal): Promise<EngineObject | null> {
    const described = this.#cache.describe(pod);
    if (described === null || described.labels.fleet !== this.#settings.fleetId) return null;
    // Nothing of it runs, and the fleet has let go of it: the kubelet removes the object.
    if (described.liveness === "dead" && isBeingDeleted(pod) && !pod.metadata.finalizers.includes(PROOF_FINALIZER))
      return null;
    const isRemains = described.liveness === "dead" && isBeingDeleted(pod) && described.place !== "home";
    if (isRemains && (await this.#letGoOf(pod, signal))) return null;
    return this.#cache.objectOf(described);
  }

  /** Lets go of a dead pod whose workspace has left. `false` while it has one. */
  async #letGoOf(pod: Pod, signal: AbortSignal): Promise<boolean> {
    const place = this.#cache.describe(pod)?.place;
    if (place === undefined || (await this.#podWorkspaces.isOccupied(place))) return false;
    return this.#remover.letGoUnlessOccupied(pod, signal);
  }

  async #settleRemains(name: string, signal: AbortSignal): Promise<void> {
    const found = await this.#api.get("pods", name, signal);
    if (found === null) return;
    const pod = podOf(found);
    if (isBeingDeleted(pod) && (await this.#liveness.isDead(pod, signal))) await this.#letGoOf(pod, signal);
  }

  /** Whether the cluster still has the sandbox that something on the volume was made for. */
  async #isKnown({ sandboxId, threadKey }: Leftover): Promise<boolean> {
    const { signal } = this.#ending;
    if (sandboxId !== null && (await this.#api.get("pods", podName(sandboxId), signal)) !== null) return true;
    if (threadKey === null) return false;
    const labelSelector = `${fleetSelector(this.#settings.fleetId)},${LABEL.thread}=${threadKey}`;
    return (await this.#api.list("pods", { labelSelector }, signal)).items.length > 0;
  }

  async #living(name: string) {
    const cached = this.#cache.get(name);
    if (cached === undefined || cached.liveness === "dead" || cached.podIP === "") return null;
    await this.#credentials.locate(name, cached.uid, this.#calls.ending);
    return this.#credentials.asked(cached, this.#calls.ending);
  }

  async #pod(name: string, uid: string, signal: AbortSignal): Promise<CachedPod | null> {
    const cached = this.#cache.get(name);
    if (cached?.uid === uid) return cached;
    const found = await this.#api.get("pods", name, signal);
    return found === null || found.metadata.uid !== uid ? null : this.#cache.describe(podOf(found));
  }

  /** Whether the daemon of a pod that is not ready answers to its key, with whatever credentials. */
  async #answers(pod: Pod, signal: AbortSignal): Promise<boolean> {
    const cached = this.#cache.describe(pod);
    if (cached === null) return false;
    try {
      const object = await this.#credentials.asked(cached, signal);
      await this.#credentials.seen(cached, signal);
      const bounded = AbortSignal.any([signal, AbortSignal.timeout(ANSWER_MS)]);
      await this.#credentials.ask(object, (target) => renewDaemon(target, bounded));
      return true;
    } catch (error) {
      signal.throwIfAborted();
      return isSandlotError(error, "stale_generation");
    }
  }

  /** `sandbox_lost` with the caller's generation where the pod is gone. */
  async #located({ ref, sandboxId, generation }: Target, signal: AbortSignal): Promise<ParsedRef> {
    const parsed = this.#parse(ref);
    try {
      await this.#credentials.locate(parsed.name, parsed.uid, signal);
      return parsed;
    } catch (error) {
      if (!isSandlotError(error, "sandbox_lost")) throw error;
      throw new SandlotError("sandbox_lost", { sandboxId, generation, reason: "crashed" }, { cause: error });
    }
  }

  #parse(ref: EngineRef): ParsedRef {
    const parsed = parseRef(ref);
    if (parsed === null || parsed.namespace !== this.#api.namespace)
      throw new SandlotError("sandbox_not_found", { id: ref });
    return parsed;
  }

  #check({ blueprint }: CreateSpec): void {
    const missing = (capability: string, neededBy: string) =>
      new SandlotError("capability_missing", { backend: NAME, capability, neededBy });
    for (const [limit, value] of Object.entries(blueprint.limits))
      if (value !== undefined && !LIMITS.has(limit as keyof Blueprint["limits"]))
        throw missing(`limits.${limit}`, "the blueprint");
    if (blueprint.network.mode !== "none" && !this.capabilities.has("network"))
      throw missing("network", "the blueprint's network");
    if ((blueprint.network.registries ?? []).length > 0)
      throw missing("network", "network.registries, which are read from the configuration of one machine");
    if (blueprint.network.mode === "open" && this.#settings.kubernetes.clusterRanges.length === 0)
      throw missing("network", "network.mode open, without kubernetes.clusterRanges");
  }
}

/** Inside the cluster pods are reached directly; from outside only where that is configured. */
function forwardsThroughApi({ kubernetes }: KubernetesSettings, api: ApiClient): boolean {
  if (kubernetes.connect !== "auto") return kubernetes.connect === "port-forward";
  return !api.transport.access.isInside;
}

function capabilitiesOf({ kubernetes }: KubernetesSettings, workspaces: PodWorkspaces | NoWorkspaces): Set<Capability> {
  return new Set<Capability>([
    ...(["image", "runtime", "limits", "mounts", "sessions", "terminal", "watch", "preview"] as const),
    ...(workspaces.hasLateBinding ? (["late-binding"] as const) : []),
    ...(workspaces.files !== null ? (["workspace-files"] as const) : []),
    ...(kubernetes.egress.host !== undefined ? (["network"] as const) : []),
  ]);
}
