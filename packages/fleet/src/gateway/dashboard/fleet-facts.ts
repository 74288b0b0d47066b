/**
 * What the overview shows of this gateway's past: counts since its start, and slices of ten seconds for six hours.
 *
 * Invariants
 * - Everything comes from the fleet's events; nothing is read from the engine or the store for it.
 * - Memory is bounded: slices are a ring, the latencies of a slice a reservoir, the refused hosts the newest ones.
 */

import type { DashboardSlice, FleetEvent } from "@sandlot/contract";
import type { Fleet } from "../../fleet.ts";
import type { World } from "../../world/world.ts";

const SLICE_MS = 10_000;
const SLICES_MAX = (6 * 3_600_000) / SLICE_MS;
/** Latencies kept of each path: of a slice for its percentiles, of all time the last ones. */
const LATENCIES_MAX = 256;
/** Refused hosts that are told apart. A sandbox can name as many as it likes. */
const REFUSALS_MAX = 50;
const TEXT_MAX = 256;

interface Latencies {
  count: number;
  readonly last: number[];
}

interface Slice {
  readonly at: number;
  readonly acquires: Map<string, Latencies>;
  created: number;
  stopped: number;
  lost: number;
  refused: number;
}

interface Refusal {
  readonly host: string;
  readonly port: number;
  readonly rule: string;
  readonly count: number;
  readonly at: number;
}

export class FleetFacts {
  readonly startedAt: number;
  readonly #world: World;
  readonly #stop: () => void;
  readonly #slices: Slice[] = [];
  readonly #acquires = new Map<string, Latencies>();
  readonly #losses = new Map<string, number>();
  readonly #refusals = new Map<string, Refusal>();
  #queued = 0;

  constructor(fleet: Pick<Fleet, "events">, world: World) {
    this.#world = world;
    this.startedAt = world.wallMs();
    this.#stop = fleet.events.on((event) => this.#saw(event));
  }

  close(): void {
    this.#stop();
  }

  read() {
    return {
      startedAt: this.startedAt,
      queued: this.#queued,
      acquires: shown(this.#acquires),
      losses: Object.fromEntries(this.#losses),
      refusals: [...this.#refusals.values()].reverse(),
      sliceMs: SLICE_MS,
      slices: this.#slices.map(({ acquires, ...slice }): DashboardSlice => ({ ...slice, acquires: shown(acquires) })),
    };
  }

  #saw(event: FleetEvent): void {
    switch (event.type) {
      case "lease-acquired":
        note(this.#acquires, event.path, event.durationMs);
        note(this.#slice().acquires, event.path, event.durationMs);
        // Its turn came.
        this.#queued = Math.max(0, this.#queued - 1);
        return;
      case "acquire-queued":
        this.#queued = event.queued;
        return;
      case "sandbox-created":
        this.#slice().created += 1;
        return;
      case "sandbox-stopped":
        this.#slice().stopped += 1;
        return;
      case "sandbox-lost":
        this.#slice().lost += 1;
        this.#losses.set(event.reason, (this.#losses.get(event.reason) ?? 0) + 1);
        return;
      case "egress-refused":
        this.#slice().refused += 1;
        this.#refused(event);
        return;
      default:
        return;
    }
  }

  #refused(event: Extract<FleetEvent, { readonly type: "egress-refused" }>): void {
    const [host, rule] = [event.host.slice(0, TEXT_MAX), event.rule.slice(0, TEXT_MAX)];
    const name = `${host}:${event.port} ${rule}`;
    const count = (this.#refusals.get(name)?.count ?? 0) + 1;
    // As the newest.
    this.#refusals.delete(name);
    this.#refusals.set(name, { host, port: event.port, rule, count, at: event.at });
    const oldest = this.#refusals.keys().next();
    if (this.#refusals.size > REFUSALS_MAX && oldest.done !== true) this.#refusals.delete(oldest.value);
  }

  #slice(): Slice {
    const at = Math.floor(this.#world.wallMs() / SLICE_MS) * SLICE_MS;
    const last = this.#slices.at(-1);
    // A clock that was set back goes on in the slice that there is.
    if (last !== undefined && at <= last.at) return last;
    const slice: Slice = { at, acquires: new Map(), created: 0, stopped: 0, lost: 0, refused: 0 };
    this.#slices.push(slice);
    if (this.#slices.length > SLICES_MAX) this.#slices.shift();
    return slice;
  }
}

function note(all: Map<string, Latencies>, path: string, durationMs: number): void {
  const seen = all.get(path) ?? { count: 0, last: [] };
  all.set(path, seen);
  seen.last[seen.count % LATENCIES_MAX] = durationMs;
  seen.count += 1;
}

function shown(all: ReadonlyMap<string, Latencies>) {
  const entries = [...all].map(([path, { count, last }]) => {
    const sorted = [...last].sort((a, b) => a - b);
    const at = (share: number) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
    return [path, { count, p50Ms: at(0.5), p95Ms: at(0.95) }] as const;
  });
  return Object.fromEntries(entries);
}
