/**
 * Fetches what the egress proxies of the fleet have refused, and tells it as events. Every gateway fetches everything: a
 * proxy does not know which gateway serves a sandbox.
 *
 * Invariants
 * - A proxy that does not answer delays no other one, and is asked again in the next round.
 * - What a gateway came too late for is told as a number, not dropped in silence.
 */

import type { Duplex } from "node:stream";
import type { FleetId, SandboxId } from "@sandlot/contract";
import type { EngineEvent } from "../../../backend/backend.ts";
import { FROM_THE_OLDEST, fetchRefusals, type RefusalCursor } from "../../../host/egress/cluster/refusal-reader.ts";
import { type DaemonKeys, dial } from "../../../sandboxd/dial.ts";
import type { Timer, World } from "../../../world/world.ts";
import type { Api } from "../api/api.ts";
import { LABEL, ROLE } from "../pod/names.ts";
import { podOf } from "../pod/pod.ts";

export interface RefusalPollerOptions {
  readonly api: Api;
  readonly world: World;
  readonly fleetId: FleetId;
  /** The port of the proxies themselves. */
  readonly port: number;
  readonly keys: DaemonKeys;
  /** From outside the cluster: a stream to a port of a pod. */
  readonly open: ((pod: string, port: number) => Duplex) | null;
  readonly tell: (event: EngineEvent) => void;
  readonly signal: AbortSignal;
  readonly intervalMs?: number;
}

const INTERVAL_MS = 5_000;
/** A proxy with more to tell is asked at once, but not without end. */
const PAGES_MAX = 20;

export class RefusalPoller {
  readonly #options: RefusalPollerOptions;
  readonly #cursors = new Map<string, RefusalCursor>();
  #timer: Timer | null = null;
  #round: Promise<void> = Promise.resolve();
  #isClosed = false;

  constructor(options: RefusalPollerOptions) {
    this.#options = options;
  }

  start(): void {
    const { world, intervalMs = INTERVAL_MS } = this.#options;
    const next = () => {
      if (this.#isClosed) return;
      this.#timer = world.timer(
        intervalMs,
        () => {
          this.#round = this.look().then(next, next);
        },
        { background: true },
      );
    };
    next();
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#timer?.cancel();
    await this.#round;
  }

  /** Asks every proxy once. */
  async look(): Promise<void> {
    const { api, signal, tell } = this.#options;
    const labelSelector = `${LABEL.role}=${ROLE.egress}`;
    const { items } = await api.list("pods", { labelSelector }, signal);
    const proxies = items.map(podOf).filter(({ status }) => status.phase === "Running" && status.podIP !== "");
    const present = new Set(proxies.map(({ metadata }) => metadata.uid));
    for (const uid of this.#cursors.keys()) if (!present.has(uid)) this.#cursors.delete(uid);
    await Promise.all(
      proxies.map(async ({ metadata: { name, uid }, status }) => {
        try {
          await this.#ask(name, uid, status.podIP);
        } catch (error) {
          if (this.#isClosed) return;
          const problem = `the refusals of ${name} cannot be read: ${error instanceof Error ? error.message : error}`;
          tell({ type: "housekeeping-failed", task: "egress refusals", problem });
        }
      }),
    );
  }

  async #ask(name: string, uid: string, podIP: string): Promise<void> {
    const { world, port, keys, open, tell } = this.#options;
    const connect = () =>
      dial(
        open === null ? { host: podIP, port, keys } : { name: `pod ${name}`, open: () => open(name, port), keys },
        world.timer,
      );
    for (let count = 0; count < PAGES_MAX; count++) {
      const page = await fetchRefusals(connect, this.#cursors.get(uid) ?? FROM_THE_OLDEST, world);
      const isFirst = !this.#cursors.has(uid);
      this.#cursors.set(uid, { epoch: page.epoch, next: page.next });
      if (page.lost > 0 && !isFirst)
        tell({
          ...{ type: "housekeeping-failed", task: "egress refusals" },
          problem: `${page.lost} refusals of ${name} were forgotten before they were read`,
        });
      for (const { sandboxId, refusal, at } of page.refusals) {
        // Those of before this process began were told by others.
        if (isFirst && at < this.#sinceMs) continue;
        const { host, port: refusedPort, rule, because } = refusal;
        tell({
          type: "egress-refused",
          sandboxId: sandboxId as SandboxId,
          ...{ host, port: refusedPort, rule, because },
        });
      }
      if (page.refusals.length === 0) return;
    }
  }

  get #sinceMs(): number {
    return this.#options.world.wallMs() - 2 * (this.#options.intervalMs ?? INTERVAL_MS);
  }
}
