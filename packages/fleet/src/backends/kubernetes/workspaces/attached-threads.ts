/**
 * The threads that this process has attached to, for the measurement of their workspaces: a gateway measures what it serves.
 * Only blueprints with a disk limit count.
 */

import type { SandboxId } from "@sandlot/contract";
import type { WorkspaceKey } from "../../../backend/host-workspaces.ts";
import { podName } from "../pod/names.ts";
import type { PodSecrets } from "../pod/pod-secret.ts";
import type { PodCache } from "../pod-cache.ts";
import type { KubernetesSettings } from "../settings.ts";
import type { WatchedSandbox } from "./disk-watch.ts";

export interface AttachedThreadsOptions {
  readonly cache: Pick<PodCache, "get">;
  readonly secrets: Pick<PodSecrets, "list">;
  readonly settings: Pick<KubernetesSettings, "blueprints">;
}

export class AttachedThreads {
  readonly #options: AttachedThreadsOptions;
  readonly #known = new Map<SandboxId, WorkspaceKey | null>();
  readonly #limits: ReadonlyMap<string, number>;

  constructor(options: AttachedThreadsOptions) {
    this.#options = options;
    const limited = Object.values(options.settings.blueprints).flatMap(({ hash, blueprint }) =>
      blueprint.limits.diskBytes === undefined ? [] : [[hash as string, blueprint.limits.diskBytes] as const],
    );
    this.#limits = new Map(limited);
  }

  note(sandboxId: SandboxId): void {
    if (this.#limits.size > 0 && !this.#known.has(sandboxId)) this.#known.set(sandboxId, null);
  }

  /** Those that still run. */
  async running(): Promise<readonly WatchedSandbox[]> {
    const found: WatchedSandbox[] = [];
    for (const [sandboxId, known] of this.#known) {
      const pod = this.#options.cache.get(podName(sandboxId));
      if (pod === undefined || pod.liveness === "dead") {
        this.#known.delete(sandboxId);
        continue;
      }
      const diskBytes = this.#limits.get(pod.labels.blueprintHash);
      if (diskBytes === undefined) continue;
      const key = known ?? (await this.#keyOf(sandboxId));
      if (key === null) continue;
      this.#known.set(sandboxId, key);
      found.push({ ...key, sandboxId, diskBytes });
    }
    return found;
  }

  async #keyOf(sandboxId: SandboxId): Promise<WorkspaceKey | null> {
    const [marker] = [...(await this.#options.secrets.list(sandboxId))].sort((a, b) => b.generation - a.generation);
    return marker === undefined ? null : { user: marker.user, thread: marker.thread };
  }
}
