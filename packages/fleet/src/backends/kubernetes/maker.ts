/**
 * Makes pods.
 *
 *   1 prepare      what the workspace needs to exist before the pod
 *   2 POST pod     gated, with the finalizer: it cannot run, and it cannot vanish
 *   3 compare      what admission made of it
 *   4 POST Secret  owned by the pod: the daemon's configuration and keys, and the marker
 *   5 mayRun       the store is asked again, now that the pod exists
 *   6 fence, ungate  from here on earlier generations cannot use the workspace, and the pod may be scheduled
 *   7 ready        the daemon answers to the pod's key, with this generation and token
 *
 * Invariants
 * - Every step may be repeated after a lost answer: the pod's labels, and its uid, say whether it is ours.
 * - A POST that takes effect after its maker gave up leaves a gated pod. It never runs, and the reconciler removes it.
 * - A process that took over the record did so after the pod existed, so its destroy finds the pod: the fence is the
 *   pod's deletion.
 * - A failed or cancelled create is undone.
 */

import { createHash } from "node:crypto";
import { type DaemonConfig, isSandlotError, SandlotError } from "@sandlot/contract";
import type { Created, CreateSpec } from "../../backend/backend.ts";
import { placeOf } from "../../host/workspaces/layout.ts";
import type { FleetKeys } from "../../sandboxd/fleet-keys.ts";
import { renewDaemon } from "../../sandboxd/index.ts";
import { sleep, within } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import { type Api, isInDoubt, isRefusal, type PatchStep } from "./api/api.ts";
import { daemonConfig } from "./daemon-config.ts";
import { differenceOf } from "./pod/admitted.ts";
import { podManifest } from "./pod/manifest.ts";
import { formatRef, INTENT_GATE, podName } from "./pod/names.ts";
import { isBeingDeleted, isGated, type Pod, podOf } from "./pod/pod.ts";
import type { PodSecrets } from "./pod/pod-secret.ts";
import { explainWaiting, failureOf, stageOf } from "./pod/progress.ts";
import type { CachedPod, PodCache } from "./pod-cache.ts";
import type { PodCredentials } from "./pod-credentials.ts";
import type { Remover } from "./remover.ts";
import type { KubernetesSettings } from "./settings.ts";
import type { NoWorkspaces } from "./workspaces/no-workspaces.ts";
import type { PodWorkspaces } from "./workspaces/pod-workspaces.ts";

export interface MakerParts {
  readonly api: Api & { log(pod: string, tailLines: number, signal: AbortSignal): Promise<string> };
  readonly world: World;
  readonly settings: KubernetesSettings;
  readonly keys: FleetKeys;
  readonly secrets: PodSecrets;
  readonly cache: PodCache;
  readonly credentials: PodCredentials;
  readonly remover: Remover;
  readonly workspaces: PodWorkspaces | NoWorkspaces;
  /** Whether pods have accounts of their own. Asked for each pod: a trial decides. */
  readonly hasOwnUsers: () => boolean;
  /** The image is being fetched, for a person who waits. */
  readonly onPulling: (image: string, state: "started" | "pulled" | "failed", problem: string | null) => void;
}

/** Undoing must end, also when the caller has left. */
const UNDO_MS = 30_000;
const LOOK_MS = 150;
const NEWS_MS = 1_000;
const ANSWER_MS = 2_000;
const RETRY_MS = 50;
const RETRY_MAX_MS = 250;
const ATTEMPTS_MAX = 10;
/** Of the same pod, without an answer. */
const POSTS_MAX = 3;

export class Maker {
  readonly #parts: MakerParts;

  constructor(parts: MakerParts) {
    this.#parts = parts;
  }

  async make(spec: CreateSpec, signal: AbortSignal): Promise<Created> {
    const { workspaces, api, keys, settings, world } = this.#parts;
    const place = placeOf(spec);
    const workspace = await workspaces.prepare(spec);
    const hasOwnUsers = this.#parts.hasOwnUsers();
    const shape = { spec, place, config: settings.kubernetes, workspace, hasOwnUsers };
    const manifest = podManifest(shape);
    signal.throwIfAborted();
    let uid: string | null = null;
    try {
      const pod = await this.#post(manifest, spec, signal);
      uid = pod.metadata.uid;
      const difference = differenceOf(manifest, pod);
      if (difference !== null) throw failed(difference);
      const config = daemonConfig({ spec, keys, settings, nowMs: world.wallMs() });
      await this.#secret(spec, pod, config, signal);
      const made = await this.#start(spec, pod, signal);
      await this.#ready(spec, uid, signal);
      return {
        ref: formatRef({ namespace: api.namespace, name: manifest.metadata.name, uid }),
        place,
        workspace: made,
      };
    } catch (error) {
      if (uid !== null) await this.#undo(spec, uid);
      throw error;
    }
  }

  /** The pod, made now or by an earlier call whose answer was lost. */
  async #post(manifest: object, { labels }: CreateSpec, signal: AbortSignal): Promise<Pod> {
    const { api, world } = this.#parts;
    const name = podName(labels.sandboxId);
    for (let attempt = 1; ; attempt++) {
      let problem: unknown;
      try {
        return podOf(await api.create("pods", manifest, signal));
      } catch (error) {
        signal.throwIfAborted();
        if (isRefusal(error, 422) || !isInDoubt(error)) throw error;
        problem = error;
      }
      const found = await api.get("pods", name, signal);
      if (found !== null) return this.#ours(podOf(found), labels);
      // Of two requests with this name only one takes effect, also when the first one lands late.
      if (attempt >= (isRefusal(problem, 409) ? ATTEMPTS_MAX : POSTS_MAX)) throw problem;
      await sleep(world, RETRY_MS * 2 ** attempt, signal);
    }
  }

  #ours(pod: Pod, labels: CreateSpec["labels"]): Pod {
    const found = this.#parts.cache.describe(pod)?.labels;
    const keys = ["fleet", "sandboxId", "generation", "threadKey", "blueprintHash"] as const;
    if (found === undefined || keys.some((key) => found[key] !== labels[key]))
      throw failed(`another pod is called ${pod.metadata.name}`);
    if (isBeingDeleted(pod)) throw failed("its pod is being deleted by another process");
    return pod;
  }

  async #secret(spec: CreateSpec, pod: Pod, config: DaemonConfig & object, signal: AbortSignal): Promise<void> {
    const { token, ...shown } = config;
    // The pod gets the hash only: commands share the daemon's account, and can read the file.
    const tokenHash = createHash("sha256").update(token).digest("hex");
    await this.#parts.secrets.make(
      {
        sandboxId: spec.labels.sandboxId,
        podUid: pod.metadata.uid,
        labels: pod.metadata.labels,
        config: `${JSON.stringify({ ...shown, tokenHash })}\n`,
        made: spec,
        marker: spec.marker,
      },
      signal,
    );
  }

  /** Asks the store, fences the workspace, and lets the pod be scheduled. */
  async #start(spec: CreateSpec, pod: Pod, signal: AbortSignal): Promise<Created["workspace"]> {
    const { workspaces } = this.#parts;
    if (!isGated(pod, INTENT_GATE)) return spec.marker === null ? "none" : "existing";
    if (spec.mayRun !== undefined && !(await spec.mayRun())) {
      const { sandboxId, generation } = spec.labels;
      throw new SandlotError("stale_generation", { sandboxId, generation, current: null });
    }
    signal.throwIfAborted();
    const workspace = await workspaces.fence(spec);
    signal.throwIfAborted();
    await this.#ungate(pod, signal);
    return workspace;
  }

  async #ungate(pod: Pod, signal: AbortSignal): Promise<void> {
    const { api } = this.#parts;
    const { name, uid } = pod.metadata;
    let now: Pod = pod;
    for (let attempt = 1; ; attempt++) {
      const index = (now.spec.schedulingGates ?? []).findIndex((gate) => gate.name === INTENT_GATE);
      if (index < 0) return;
      const steps: PatchStep[] = [
        { op: "test", path: "/metadata/uid", value: uid },
        { op: "test", path: "/metadata/resourceVersion", value: now.metadata.resourceVersion },
        { op: "remove", path: `/spec/schedulingGates/${index}` },
      ];
      try {
        if ((await api.patch("pods", name, steps, signal)) === null) throw failed("its pod was deleted");
        return;
      } catch (error) {
        signal.throwIfAborted();
        if (!isInDoubt(error) || attempt >= ATTEMPTS_MAX) throw error;
      }
      // The refusal does not say which of uid, version or gate did not match.
      const found = await api.get("pods", name, signal);
      if (found === null || found.metadata.uid !== uid) throw failed("its pod was deleted");
      now = podOf(found);
      if (isBeingDeleted(now)) throw failed("its pod is being deleted by another process");
    }
  }

  async #ready(spec: CreateSpec, uid: string, signal: AbortSignal): Promise<void> {
    const { world, settings } = this.#parts;
    const startedAt = world.monotonicMs();
    const { readyTimeoutMs } = settings.kubernetes;
    const last: { pod: Pod | null } = { pod: null };
    try {
      await within(
        world,
        readyTimeoutMs,
        signal,
        () => new Late(),
        async (either) => {
          const cached = await this.#running(spec, uid, last, either);
          await this.#answers(spec, cached, last, either);
        },
      );
    } catch (error) {
      if (!(error instanceof Late)) throw error;
      throw await this.#whyLate(spec, last.pod, world.monotonicMs() - startedAt, signal);
    }
  }

  /** Waits for the pod's address. What cannot become better ends it at once. */
  async #running(spec: CreateSpec, uid: string, last: { pod: Pod | null }, signal: AbortSignal): Promise<CachedPod> {
    const { api, cache, onPulling, settings } = this.#parts;
    const name = podName(spec.labels.sandboxId);
    const image = spec.blueprint.image ?? settings.kubernetes.image;
    let isPulling = false;
    for (;;) {
      const found = await api.get("pods", name, signal);
      if (found === null || found.metadata.uid !== uid) throw failed("its pod was deleted");
      const pod = podOf(found);
      last.pod = pod;
      await this.#checkAlive(spec, pod, signal);
      const cached = cache.describe(pod);
      const stage = stageOf(pod);
      if (stage === "pulling" && !isPulling) {
        isPulling = true;
        onPulling(image, "started", null);
      }
      if (cached !== null && stage === "running" && cached.podIP !== "") {
        if (isPulling) onPulling(image, "pulled", null);
        return cached;
      }
      await this.#news(name, signal);
    }
  }

  async #answers(spec: CreateSpec, pod: CachedPod, last: { pod: Pod | null }, signal: AbortSignal): Promise<void> {
    const { api, world, credentials } = this.#parts;
    await credentials.seen(pod, signal);
    const target = credentials.target(pod.name, spec.labels.sandboxId, spec);
    for (let waitMs = RETRY_MS; ; waitMs = Math.min(waitMs * 2, RETRY_MAX_MS)) {
      try {
        const attempt = AbortSignal.any([signal, AbortSignal.timeout(ANSWER_MS)]);
        return await renewDaemon(target, attempt);
      } catch (error) {
        signal.throwIfAborted();
        if (isSandlotError(error, "stale_generation") || isSandlotError(error, "unauthorized"))
          throw failed("its daemon does not accept the credentials it was made with", error);
      }
      const found = await api.get("pods", pod.name, signal);
      if (found === null || found.metadata.uid !== pod.uid) throw failed("its pod was deleted");
      last.pod = podOf(found);
      await this.#checkAlive(spec, last.pod, signal);
      await sleep(world, waitMs, signal);
    }
  }

  async #checkAlive(spec: CreateSpec, pod: Pod, signal: AbortSignal): Promise<void> {
    if (isBeingDeleted(pod)) throw failed("its pod is being deleted by another process");
    const { api, settings } = this.#parts;
    const image = spec.blueprint.image ?? settings.kubernetes.image;
    const error = await failureOf(pod, image, () => api.log(pod.metadata.name, 20, signal).catch(() => ""));
    if (error !== null) throw error;
  }

  /** Until the watch has news of the pod, or a moment. */
  async #news(name: string, signal: AbortSignal): Promise<void> {
    const { cache, world } = this.#parts;
    const news = new AbortController();
    const stop = cache.onChange(name, () => news.abort());
    try {
      const waitMs = cache.isCurrent ? NEWS_MS : LOOK_MS;
      await sleep(world, waitMs, AbortSignal.any([signal, news.signal])).catch(() => {});
      signal.throwIfAborted();
    } finally {
      stop();
    }
  }

  async #whyLate(spec: CreateSpec, pod: Pod | null, pendingMs: number, signal: AbortSignal): Promise<Error> {
    const { api, settings } = this.#parts;
    const image = spec.blueprint.image ?? settings.kubernetes.image;
    if (pod === null) return failed("the API server showed no pod in time");
    const fieldSelector = `involvedObject.uid=${pod.metadata.uid}`;
    const events = await api.list("events", { fieldSelector }, signal).catch(() => null);
    return explainWaiting(pod, image, Math.round(pendingMs), events?.items ?? []);
  }

  /** Without an answer in time the reconciler does it: the pod has its labels. */
  async #undo(spec: CreateSpec, uid: string): Promise<void> {
    const { world, remover, credentials } = this.#parts;
    const name = podName(spec.labels.sandboxId);
    const late = () => new Error("the cluster did not confirm the end in time");
    const ending = within(world, UNDO_MS, undefined, late, (signal) => remover.end(name, uid, signal));
    await ending.catch(() => {});
    credentials.forget(name);
  }
}

class Late extends Error {}

function failed(problem: string, cause?: unknown): SandlotError {
  return new SandlotError("create_failed", { backend: "kubernetes", problem }, { cause });
}
