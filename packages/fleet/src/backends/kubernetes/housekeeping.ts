/**
 * What a backend does beside its calls: it tries the cluster before sandboxes rely on it, removes what crashes have left on
 * the volume, measures workspaces, and fetches refusals of the egress proxies. A failure is an event, and stops nothing.
 */

import { type SandboxId, SandlotError } from "@sandlot/contract";
import type { EngineEvent } from "../../backend/backend.ts";
import { problemOf } from "../../observe/event-bus.ts";
import type { FleetKeys } from "../../sandboxd/fleet-keys.ts";
import type { World } from "../../world/world.ts";
import type { ApiClient } from "./api/client.ts";
import type { PortForwards } from "./api/port-forward.ts";
import { RefusalPoller } from "./network/refusal-poller.ts";
import { podName } from "./pod/names.ts";
import type { PodSecrets } from "./pod/pod-secret.ts";
import type { PodCache } from "./pod-cache.ts";
import type { Remover } from "./remover.ts";
import type { KubernetesSettings } from "./settings.ts";
import { ProofOfCluster } from "./trial/proof-of-cluster.ts";
import type { Watcher } from "./watcher.ts";
import { AttachedThreads } from "./workspaces/attached-threads.ts";
import { DiskWatch } from "./workspaces/disk-watch.ts";
import type { NoWorkspaces } from "./workspaces/no-workspaces.ts";
import type { Leftover, PodWorkspaces } from "./workspaces/pod-workspaces.ts";
import { SharedWorkspaces } from "./workspaces/shared-workspaces.ts";

export interface HousekeepingParts {
  readonly api: ApiClient;
  readonly world: World;
  readonly settings: KubernetesSettings;
  readonly keys: FleetKeys;
  readonly cache: PodCache;
  readonly secrets: PodSecrets;
  readonly watcher: Watcher;
  readonly remover: Remover;
  readonly workspaces: PodWorkspaces | NoWorkspaces;
  readonly forwards: PortForwards | null;
  /** The end of the backend. */
  readonly signal: AbortSignal;
  /** Whether the cluster is tried. A test of something else takes it for granted. */
  readonly tries: boolean;
  readonly onNoLateBinding: () => void;
  readonly isKnown: (leftover: Leftover) => Promise<boolean>;
}

const END_MS = 30_000;

export class Housekeeping {
  readonly #parts: HousekeepingParts;
  readonly #proof: ProofOfCluster | null;
  readonly #threads: AttachedThreads;
  readonly #disks: DiskWatch | null;
  readonly #refusals: RefusalPoller | null;
  readonly #sweeping: Promise<void>;
  readonly #ending = new AbortController();

  constructor(parts: HousekeepingParts) {
    this.#parts = parts;
    const { api, world, settings, keys, watcher, workspaces, forwards, tries } = parts;
    const signal = AbortSignal.any([parts.signal, this.#ending.signal]);
    const shared = workspaces instanceof SharedWorkspaces ? workspaces : null;
    const fail = (task: string, problem: string) => watcher.tell({ type: "housekeeping-failed", task, problem });
    this.#proof = tries
      ? new ProofOfCluster({
          ...{ api, world, settings, shared, signal, onProblem: fail },
          onNoLateBinding: (because) => {
            parts.onNoLateBinding();
            fail("late binding", because);
          },
        })
      : null;
    this.#threads = new AttachedThreads(parts);
    this.#disks = shared === null ? null : this.#watchDisks(shared);
    const { egress } = settings.kubernetes;
    this.#refusals =
      egress.host === undefined
        ? null
        : new RefusalPoller({
            ...{ api, world, fleetId: settings.fleetId, port: egress.port, signal },
            keys: keys.ofFleet("refusals"),
            open: forwards === null ? null : (pod, port) => forwards.open(pod, port),
            tell: (event: EngineEvent) => watcher.tell(event),
          });
    this.#disks?.start();
    this.#refusals?.start();
    this.#sweeping = workspaces.sweep(parts.isKnown).catch((error: unknown) => fail("workspaces", problemOf(error)));
  }

  /** Resolves when the cluster has shown that a sandbox may be made. */
  async beforeCreate(isBlank: boolean, signal: AbortSignal): Promise<void> {
    await this.#proof?.beforeCreate(isBlank, signal);
  }

  /** As the trial has shown. */
  get hasOwnUsers(): boolean {
    return this.#proof?.hasOwnUsers ?? false;
  }

  attached(sandboxId: SandboxId): void {
    this.#threads.note(sandboxId);
  }

  /** Starts nothing new, and ends what is under way. */
  stop(): void {
    this.#ending.abort(new SandlotError("fleet_closed", { operation: "trying the cluster" }));
    this.#disks?.close();
    void this.#refusals?.close();
  }

  async settled(): Promise<void> {
    await Promise.all([this.#refusals?.close(), this.#proof?.settled()]);
  }

  /** The first sweep of the volume has ended. */
  swept(): Promise<void> {
    return this.#sweeping;
  }

  #watchDisks({ files }: SharedWorkspaces): DiskWatch {
    const { world, watcher } = this.#parts;
    return new DiskWatch({
      ...{ world, files, running: () => this.#threads.running() },
      onHit: (sandboxId, because) => watcher.tell({ type: "limit-hit", sandboxId, limit: "disk", because }),
      end: (sandboxId) => this.#endFull(sandboxId),
      onProblem: (problem) => watcher.tell({ type: "housekeeping-failed", task: "disk limits", problem }),
    });
  }

  async #endFull(sandboxId: SandboxId): Promise<void> {
    const { cache, watcher, remover, signal } = this.#parts;
    const pod = cache.get(podName(sandboxId));
    if (pod === undefined) return;
    watcher.because(pod.uid, "disk-limit");
    await remover.end(pod.name, pod.uid, AbortSignal.any([signal, AbortSignal.timeout(END_MS)]));
  }
}
