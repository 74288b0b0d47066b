/**
 * Reports every pod of a thread that gets its address: from then on its daemon is awaited. Remembers the pods, of which
 * no process may run when the object is gone.
 */

import { podOf } from "../../../packages/fleet/src/backends/kubernetes/pod/pod.ts";
import type { StartWatch } from "../stage/target.ts";
import { type Cluster, processesOf } from "./cluster.ts";

const THREAD_LABEL = "sandlot.dev/thread";
const ROUND_SECONDS = 300;

export class PodStarts implements StartWatch {
  listener: () => void = () => {};
  readonly #cluster: Cluster;
  readonly #ending = new AbortController();
  readonly #seen = new Map<string, string>();

  private constructor(cluster: Cluster) {
    this.#cluster = cluster;
  }

  static async open(cluster: Cluster): Promise<PodStarts> {
    const starts = new PodStarts(cluster);
    void starts.#follow();
    return starts;
  }

  close(): void {
    this.#ending.abort(new Error("nobody looks any more"));
  }

  async strays(): Promise<readonly string[]> {
    const strays: string[] = [];
    for (const [uid, name] of this.#seen) {
      const found = await this.#cluster.pod(name);
      if (found?.metadata.uid === uid) continue;
      const pids = processesOf(uid);
      if (pids.length === 0) this.#seen.delete(uid);
      strays.push(...pids.map((pid) => `${pid} of ${name}`));
    }
    return strays;
  }

  async #follow(): Promise<void> {
    const { signal } = this.#ending;
    while (!signal.aborted) {
      try {
        const { resourceVersion } = await this.#cluster.watchApi.list("pods", {}, signal);
        const query = {
          labelSelector: THREAD_LABEL,
          resourceVersion,
          timeoutSeconds: ROUND_SECONDS,
          silenceMs: 400_000,
        };
        for await (const event of this.#cluster.watchApi.watch("pods", query, signal)) {
          if (event.type === "ERROR" || event.type === "BOOKMARK" || event.type === "DELETED") continue;
          const { metadata, status } = podOf(event.object);
          if (status.podIP === "" || this.#seen.has(metadata.uid)) continue;
          this.#seen.set(metadata.uid, metadata.name);
          this.listener();
        }
      } catch {
        // It follows again from a new list.
      }
    }
  }
}
