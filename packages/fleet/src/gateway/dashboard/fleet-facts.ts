/**
 * What the overview shows of this gateway: counts since its start, six hours in slices, memory and disk of its host.
 *
 * Invariants
 * - Counts come from the fleet's events and from the gateway's own commands; nothing is read from the engine or the
 *   store for them. What the pool should have is asked once a slice.
 * - Memory is bounded: slices are a ring, latencies and refused hosts the newest ones.
 */

import type { FleetEvent, PoolMiss } from "@sandlot/contract";
import type { Fleet } from "../../fleet.ts";
import type { Timer, World } from "../../world/world.ts";
import { type HostUsage, hostUsage } from "./host-usage.ts";
import { Latencies } from "./latencies.ts";
import { SLICE_MS, Slices } from "./slices.ts";

/** Refused hosts that are told apart. A sandbox can name as many as it likes. */
const REFUSALS_MAX = 50;
const TEXT_MAX = 256;
/** How a command ends by itself; any other end is a failure of the sandbox or a limit. */
const ENDED = new Set(["completed"]);

interface Refusal {
  readonly host: string;
  readonly port: number;
  readonly rule: string;
  readonly count: number;
  readonly at: number;
}

export interface FactsParts {
  readonly fleet: Pick<Fleet, "events" | "pool">;
  readonly world: World;
  /** Its file system is the one that is shown. */
  readonly home: string;
}

export class FleetFacts {
  readonly startedAt: number;
  readonly #parts: FactsParts;
  readonly #stop: () => void;
  readonly #slices: Slices;
  readonly #acquires = new Map<string, Latencies>();
  readonly #losses = new Map<string, number>();
  readonly #refusals = new Map<string, Refusal>();
  readonly #misses = new Map<PoolMiss, number>();
  #hits = 0;
  /** Blanks to keep ready, by blueprint. */
  #pool: Readonly<Record<string, number>> = {};
  #execs = { count: 0, failed: 0 };
  #queued = 0;
  #usage: HostUsage | null = null;
  #timer: Timer | null = null;
  #isClosed = false;

  constructor(parts: FactsParts) {
    const { fleet, world } = parts;
    this.#parts = parts;
    this.#slices = new Slices(world);
    this.startedAt = world.wallMs();
    this.#stop = fleet.events.on((event) => this.#saw(event));
    void this.#sample();
  }

  close(): void {
    this.#isClosed = true;
    this.#timer?.cancel();
    this.#stop();
  }

  /** A command has ended. */
  exec(status: string): void {
    const failed = ENDED.has(status) ? 0 : 1;
    this.#execs = { count: this.#execs.count + 1, failed: this.#execs.failed + failed };
    this.#slices.count("execs");
  }

  read(bins: number) {
    const { memory = null, disk = null, processBytes = 0 } = this.#usage ?? {};
    return {
      startedAt: this.startedAt,
      queued: this.#queued,
      acquires: Object.fromEntries([...this.#acquires].map(([path, latencies]) => [path, latencies.read()])),
      execs: { ...this.#execs, perSecond: this.#slices.execsPerSecond() },
      losses: Object.fromEntries(this.#losses),
      refusals: [...this.#refusals.values()].reverse(),
      pool: { ...this.#pool },
      poolHits: this.#hits,
      poolMisses: Object.fromEntries(this.#misses),
      ...{ memory, disk, processBytes },
      sliceMs: SLICE_MS,
      slices: this.#slices.read(bins),
    };
  }

  async #sample(): Promise<void> {
    const { fleet, home } = this.#parts;
    // A store that does not answer leaves what was known: the overview says elsewhere that it is down.
    const poolOf = async () => fleet.pool();
    const [usage, pool] = await Promise.all([hostUsage(home), poolOf().catch(() => null)]);
    this.#usage = usage;
    if (pool !== null)
      this.#pool = Object.fromEntries(pool.blueprints.map(({ blueprint, target }) => [blueprint, target]));
    if (this.#isClosed) return;
    this.#slices.sampled(usage.memory?.usedBytes ?? 0, usage.disk?.usedBytes ?? 0);
    this.#timer = this.#parts.world.timer(SLICE_MS, () => void this.#sample(), { background: true });
  }

  #saw(event: FleetEvent): void {
    switch (event.type) {
      case "lease-acquired":
        this.#acquired(event.path, event.durationMs);
        // Its turn came.
        this.#queued = Math.max(0, this.#queued - 1);
        return;
      case "acquire-queued":
        this.#queued = event.queued;
        return;
      case "sandbox-created":
        if (event.miss !== undefined) this.#misses.set(event.miss, (this.#misses.get(event.miss) ?? 0) + 1);
        this.#slices.count("created");
        return;
      case "sandbox-bound":
        this.#hits += 1;
        return;
      case "sandbox-stopped":
        this.#slices.count("stopped");
        return;
      case "sandbox-lost":
        this.#slices.count("lost");
        this.#losses.set(event.reason, (this.#losses.get(event.reason) ?? 0) + 1);
        return;
      case "egress-refused":
        this.#slices.count("refused");
        this.#refused(event);
        return;
      default:
        return;
    }
  }

  #acquired(path: string, durationMs: number): void {
    this.#slices.acquired(path, durationMs);
    const latencies = this.#acquires.get(path) ?? new Latencies();
    latencies.add(durationMs);
    this.#acquires.set(path, latencies);
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
}
