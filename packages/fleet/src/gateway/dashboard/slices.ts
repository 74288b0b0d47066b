/**
 * Six hours in slices of ten seconds, for charts.
 *
 * Invariants
 * - Memory is bounded: a ring of slices, and only the present one keeps single latencies.
 * - A clock that was set back goes on in the slice that there is.
 */

import type { DashboardSlice } from "@sandlot/contract";
import type { World } from "../../world/world.ts";
import { Latencies, worse } from "./latencies.ts";

export const SLICE_MS = 10_000;
const SLICES_MAX = (6 * 3_600_000) / SLICE_MS;
type Count = "execs" | "created" | "stopped" | "lost" | "refused";

const EMPTY = { execs: 0, created: 0, stopped: 0, lost: 0, refused: 0, memoryBytes: 0, diskBytes: 0 } as const;

export class Slices {
  readonly #world: World;
  readonly #ended: DashboardSlice[] = [];
  #present: Omit<DashboardSlice, "acquires"> | null = null;
  #acquires = new Map<string, Latencies>();

  constructor(world: World) {
    this.#world = world;
  }

  count(what: Count): void {
    const present = this.#now();
    this.#present = { ...present, [what]: present[what] + 1 };
  }

  acquired(path: string, durationMs: number): void {
    this.#now();
    const latencies = this.#acquires.get(path) ?? new Latencies();
    latencies.add(durationMs);
    this.#acquires.set(path, latencies);
  }

  sampled(memoryBytes: number, diskBytes: number): void {
    this.#present = { ...this.#now(), memoryBytes, diskBytes };
  }

  /** Of the last six hours, joined so that there are at most this many. */
  read(bins: number): DashboardSlice[] {
    if (bins === 0) return [];
    this.#now();
    const all = [...this.#ended, ...this.#presentSlice()];
    const binMs = Math.max(SLICE_MS, Math.ceil(SLICES_MAX / bins) * SLICE_MS);
    const joined = new Map<number, DashboardSlice>();
    for (const slice of all) {
      const at = Math.floor(slice.at / binMs) * binMs;
      joined.set(at, join(joined.get(at), { ...slice, at }));
    }
    return [...joined.values()].slice(-bins);
  }

  /** Commands a second, over the last whole minute that there is. */
  execsPerSecond(): number {
    const now = this.#world.wallMs();
    const from = now - 60_000;
    const recent = [...this.#ended, ...this.#presentSlice()].filter(({ at }) => at >= from && at <= now);
    const sum = recent.reduce((total, { execs }) => total + execs, 0);
    return sum === 0 ? 0 : (sum / Math.max(SLICE_MS, now - Math.min(...recent.map(({ at }) => at)))) * 1_000;
  }

  #presentSlice(): DashboardSlice[] {
    if (this.#present === null) return [];
    const acquires = Object.fromEntries([...this.#acquires].map(([path, all]) => [path, all.read()]));
    return [{ ...this.#present, acquires }];
  }

  #now(): Omit<DashboardSlice, "acquires"> {
    const at = Math.floor(this.#world.wallMs() / SLICE_MS) * SLICE_MS;
    if (this.#present !== null && at <= this.#present.at) return this.#present;
    this.#ended.push(...this.#presentSlice());
    while (this.#ended.length >= SLICES_MAX) this.#ended.shift();
    this.#acquires = new Map();
    this.#present = { at, ...EMPTY };
    return this.#present;
  }
}

function join(a: DashboardSlice | undefined, b: DashboardSlice): DashboardSlice {
  if (a === undefined) return b;
  const acquires = { ...a.acquires };
  for (const [path, latencies] of Object.entries(b.acquires)) acquires[path] = worse(acquires[path], latencies);
  return {
    ...{ at: a.at, acquires, execs: a.execs + b.execs, created: a.created + b.created },
    ...{ stopped: a.stopped + b.stopped, lost: a.lost + b.lost, refused: a.refused + b.refused },
    ...{ memoryBytes: Math.max(a.memoryBytes, b.memoryBytes), diskBytes: Math.max(a.diskBytes, b.diskBytes) },
  };
}
