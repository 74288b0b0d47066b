/**
 * Where the daemons of pods are, and what they accept: the address (pod IP, or a forwarded port), the pod's key, and the
 * credentials from its Secret.
 */

import { isSandlotError, type SandboxId, SandlotError } from "@sandlot/contract";
import type { Credentials } from "../../backend/backend.ts";
import { type AskedObject, KnownCredentials } from "../../sandboxd/credentials.ts";
import type { FleetKeys } from "../../sandboxd/fleet-keys.ts";
import type { DaemonAddress, DaemonTarget } from "../../sandboxd/index.ts";
import { sleep, within } from "../../world/waiting.ts";
import type { Liveness, World } from "../../world/world.ts";
import type { Api } from "./api/api.ts";
import type { PortForwards } from "./api/port-forward.ts";
import { formatRef, podName } from "./pod/names.ts";
import { podOf } from "./pod/pod.ts";
import type { PodSecrets } from "./pod/pod-secret.ts";
import type { CachedPod, PodCache } from "./pod-cache.ts";
import { DAEMON_PORT } from "./settings.ts";

export interface PodCredentialsParts {
  readonly world: World;
  readonly api: Api;
  readonly cache: PodCache;
  readonly secrets: PodSecrets;
  readonly keys: FleetKeys;
  /** `null`: pods are reached at their own address. */
  readonly forwards: PortForwards | null;
  probe(ref: ReturnType<typeof formatRef>): Promise<Liveness>;
}

/** The kubelet reports a death some seconds after it. */
const DEATH_KNOWN_MS = 5_000;
const DEATH_ANSWER_MS = 8_000;
const DEATH_LOOK_MS = 250;

interface Located {
  readonly uid: string;
  readonly address: DaemonAddress;
}

export class PodCredentials extends KnownCredentials {
  readonly #parts: PodCredentialsParts;
  readonly #located = new Map<string, Located>();
  readonly #made = new Map<string, Credentials>();
  readonly #ending = new Set<string>();

  constructor(parts: PodCredentialsParts) {
    super({
      address: (name) => this.#addressOf(name),
      given: async (sandboxId) => parts.secrets.list(sandboxId),
    });
    this.#parts = parts;
  }

  /** Finds the pod's address. `sandbox_lost` where the pod is gone, `sandbox_unreachable` where it has none yet. */
  async locate(name: string, uid: string, signal: AbortSignal): Promise<void> {
    if (this.#located.get(name)?.uid === uid) return;
    const { cache, api } = this.#parts;
    const cached = cache.get(name);
    const known = cached?.uid === uid && cached.podIP !== "" ? cached : await this.#look(api, name, signal);
    if (known === null || known.uid !== uid) throw lost(name);
    await this.seen(known, signal);
  }

  /** The address of a pod that was just seen. */
  async seen(pod: CachedPod, signal: AbortSignal): Promise<void> {
    const { name, uid, podIP, labels } = pod;
    if (podIP === "") throw unreachable(labels.sandboxId, "its pod has no address yet");
    signal.throwIfAborted();
    const { sandboxId, blueprintHash } = labels;
    const keys = this.#parts.keys.accepted("daemon", { sandboxId, blueprintHash });
    const { forwards } = this.#parts;
    const address =
      forwards === null
        ? { host: podIP, port: DAEMON_PORT, keys }
        : { name: `pod ${name}`, open: () => forwards.open(name, DAEMON_PORT), keys };
    this.#located.set(name, { uid, address });
  }

  /** As a fleet's renewals and lists ask for it. */
  async asked(cached: CachedPod, signal: AbortSignal): Promise<AskedObject> {
    const { name, labels } = cached;
    const known = this.#made.get(name) ?? (await this.#parts.secrets.made(labels.sandboxId, signal));
    if (known === null) throw lost(name);
    this.#made.set(name, known);
    return { name, record: { labels, credentials: known } };
  }

  override target(name: string, sandboxId: string, credentials: Credentials): DaemonTarget {
    return { ...super.target(name, sandboxId, credentials), isDead: () => this.#isDead(name) };
  }

  /** This process is destroying it: a lost connection needs no request to the cluster. */
  async whileEnding<T>(name: string, end: () => Promise<T>): Promise<T> {
    this.#ending.add(name);
    try {
      return await end();
    } finally {
      this.#ending.delete(name);
    }
  }

  override forget(name: string): void {
    super.forget(name);
    this.#located.delete(name);
    this.#made.delete(name);
  }

  #addressOf(name: string): DaemonAddress {
    const located = this.#located.get(name);
    if (located === undefined) throw new Error(`the address of ${name} is not known`);
    return located.address;
  }

  async #look(api: Api, name: string, signal: AbortSignal): Promise<CachedPod | null> {
    const found = await api.get("pods", name, signal);
    return found === null ? null : this.#parts.cache.describe(podOf(found));
  }

  async #isDead(name: string): Promise<boolean> {
    if (this.#ending.has(name)) return true;
    const uid = this.#located.get(name)?.uid;
    if (uid === undefined) return false;
    const { world, probe, api } = this.#parts;
    const ref = formatRef({ namespace: api.namespace, name, uid });
    const until = world.monotonicMs() + DEATH_KNOWN_MS;
    const look = async (signal: AbortSignal) => {
      for (;;) {
        const answer = await probe(ref);
        if (answer === "dead" || world.monotonicMs() >= until) return answer === "dead";
        await sleep(world, DEATH_LOOK_MS, signal);
      }
    };
    return within(world, DEATH_ANSWER_MS, undefined, () => new Error("it lives"), look).catch(() => false);
  }
}

/** Whether the error says that its pod is gone. */
export function isLost(error: unknown): boolean {
  return isSandlotError(error, "sandbox_lost");
}

function lost(name: string): SandlotError {
  const sandboxId = name.replace(podName("" as SandboxId), "");
  return new SandlotError("sandbox_lost", { sandboxId, generation: 0, reason: "crashed" });
}

function unreachable(sandboxId: string, problem: string): SandlotError {
  return new SandlotError("sandbox_unreachable", { sandboxId, problem, retryAfterMs: 1_000 });
}
