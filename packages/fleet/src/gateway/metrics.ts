/** Prometheus metrics. Counters follow the fleet's events; gauges are read at each scrape. */

import { Counter, Gauge, Histogram, Registry } from "@prometheus-io/client";
import { EXEC_STATUSES, type FleetEvent, isErrorCode, POOL_MISSES, type PoolReply } from "@sandlot/contract";
import type { Fleet } from "../fleet.ts";
import type { StepReport, StoreSteps } from "../observe/store-steps.ts";
import type { World } from "../world/world.ts";
import type { Streams } from "./streams/streams.ts";

const LATENCY_BUCKETS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];
const PATHS = ["held", "parked", "blank", "cold"] as const;
/** Observations are recorded in batches of this size: the first of a batch costs more than all the others. */
const SEEN_MAX = 64;
/** Of errors and commands: what this version has no word for. */
const OTHER = "other";
const STATES = ["creating", "leased", "parked", "blank", "stopping"] as const;

export class Metrics {
  readonly #registry = new Registry();
  readonly #fleet: Fleet;
  readonly #world: World;
  readonly #streams: Streams;
  readonly #stop: () => void;
  /** When each lease of this instance began. */
  readonly #leases = new Map<string, number>();
  /** Observations not recorded yet. */
  #seen: (() => void)[] = [];

  readonly #requests = this.#counter("http_requests_total", "Requests answered.", ["method", "route", "status"]);
  readonly #requestSeconds = this.#histogram("http_request_duration_seconds", "How long answers took.", ["route"]);
  readonly #errors = this.#counter("errors_total", "Errors answered, by code.", ["code"]);
  readonly #acquireSeconds = this.#histogram("acquire_duration_seconds", "How long leases took, by path.", ["path"]);
  readonly #acquires = this.#counter("acquires_total", "Leases given, by path.", ["path"]);
  readonly #execSeconds = this.#histogram("exec_duration_seconds", "How long commands ran.", ["status"]);
  readonly #execs = this.#counter("execs_total", "Commands ended, by status.", ["status"]);
  readonly #created = this.#counter("sandboxes_created_total", "Sandboxes made.", ["kind"]);
  readonly #stopped = this.#counter("sandboxes_stopped_total", "Sandboxes ended, by reason.", ["reason"]);
  readonly #lost = this.#counter("sandboxes_lost_total", "Sandboxes lost while held.", ["reason"]);
  readonly #leaks = this.#counter("lease_leaks_total", "Leases reported as forgotten.", []);
  readonly #stopFailures = this.#counter("stop_failures_total", "Stops that the engine did not confirm.", []);
  readonly #housekeepingFailures = this.#counter("housekeeping_failures_total", "Housekeeping that failed.", ["task"]);
  readonly #sandboxes = this.#gauge("sandboxes", "Sandboxes by state.", ["state"]);
  readonly #leaseCount = this.#gauge("leases", "Leases held through this instance.", []);
  readonly #leaseAge = this.#gauge("lease_oldest_age_seconds", "Age of the oldest of them.", []);
  readonly #hitRate = this.#gauge("acquire_warm_ratio", "Share of leases that needed no cold start.", []);
  readonly #poolMisses = this.#counter("pool_misses_total", "New sandboxes that were no blank, by reason.", ["reason"]);
  readonly #poolHits = this.#counter("pool_hits_total", "New sandboxes that were a blank.", []);
  readonly #poolRatio = this.#gauge(
    "pool_hit_ratio",
    "Share of new sandboxes that were a blank; 1 while there is none.",
    [],
  );
  readonly #poolTarget = this.#gauge("pool_target", "Blanks to keep ready, by blueprint.", ["blueprint"]);
  readonly #poolReady = this.#gauge("pool_ready", "Blanks that are ready, by blueprint.", ["blueprint"]);
  readonly #poolMemory = this.#gauge("pool_memory_bytes", "Memory of ready blanks, where it is counted.", [
    "blueprint",
  ]);
  readonly #queued = this.#gauge("acquire_queue_length", "Acquires that waited for room, at the last report.", []);
  readonly #openStreams = this.#gauge("open_streams", "Streams and terminals that are open.", []);
  readonly #storeUp = this.#gauge("store_up", "1 when the store answers.", []);
  readonly #stepSeconds = this.#histogram("store_step_duration_seconds", "How long steps of the store took.", ["step"]);
  readonly #stepCalls = this.#counter("store_calls_total", "Round trips to the store's server.", ["step"]);
  readonly #stepConflicts = this.#counter("store_conflicts_total", "Tries that another writer overtook.", ["step"]);
  readonly #stepRetries = this.#counter("store_retries_total", "Tries whose request failed.", ["step"]);
  readonly #stepFailures = this.#counter("store_step_failures_total", "Steps that failed.", ["step", "code"]);
  readonly #engineUp = this.#gauge("engine_up", "1 unless the engine's last stop or create failed.", []);
  #warm = 0;
  #all = 0;

  constructor(fleet: Fleet, world: World, streams: Streams, storeSteps?: StoreSteps) {
    this.#fleet = fleet;
    this.#world = world;
    this.#streams = streams;
    this.#engineUp.set(1);
    // Initialized, because a rate over a missing series is no number.
    for (const path of PATHS) {
      this.#acquireSeconds.zero({ path });
      this.#acquires.inc({ path }, 0);
    }
    for (const reason of POOL_MISSES) this.#poolMisses.inc({ reason }, 0);
    const stops = [fleet.events.on((event) => this.#saw(event)), storeSteps?.on((report) => this.#stepped(report))];
    this.#stop = () => {
      for (const stop of stops) stop?.();
    };
  }

  request(method: string, route: string, status: number, durationMs: number, code: string | null): void {
    this.#countLater(() => {
      this.#requests.inc({ method, route, status: String(status) });
      this.#requestSeconds.observe({ route }, durationMs / 1_000);
      // A label has few values: a daemon that is not ours could send a new code or status each time.
      if (code !== null) this.#errors.inc({ code: isErrorCode(code) ? code : OTHER });
    });
  }

  exec(status: string, durationMs: number): void {
    this.#countLater(() => {
      const known = EXEC_STATUSES.find((one) => one === status) ?? OTHER;
      this.#execs.inc({ status: known });
      this.#execSeconds.observe({ status: known }, durationMs / 1_000);
    });
  }

  async scrape(): Promise<{ readonly contentType: string; readonly text: string }> {
    await this.#look();
    this.#countSeen();
    return { contentType: this.#registry.contentType, text: await this.#registry.metrics() };
  }

  close(): void {
    this.#stop();
  }

  #countLater(count: () => void): void {
    if (this.#seen.push(count) >= SEEN_MAX) this.#countSeen();
  }

  #countSeen(): void {
    const seen = this.#seen;
    this.#seen = [];
    for (const count of seen) count();
  }

  #stepped({ operation: step, durationMs, calls, conflicts, retries, errorCode }: StepReport): void {
    this.#countLater(() => {
      this.#stepSeconds.observe({ step }, durationMs / 1_000);
      this.#stepCalls.inc({ step }, calls);
      this.#stepConflicts.inc({ step }, conflicts);
      this.#stepRetries.inc({ step }, retries);
      if (errorCode !== null) this.#stepFailures.inc({ step, code: errorCode });
    });
  }

  async #look(): Promise<void> {
    const now = this.#world.wallMs();
    this.#leaseCount.set(this.#leases.size);
    this.#leaseAge.set(this.#leases.size === 0 ? 0 : (now - Math.min(...this.#leases.values())) / 1_000);
    this.#hitRate.set(this.#all === 0 ? 1 : this.#warm / this.#all);
    this.#openStreams.set(this.#streams.openCount);
    try {
      const sandboxes = await this.#fleet.list();
      this.#lookAtPool(await this.#fleet.pool());
      for (const state of STATES) this.#sandboxes.set({ state }, sandboxes.filter((one) => one.state === state).length);
      this.#storeUp.set(1);
    } catch {
      // A scrape must show that the store is down, not fail because of it.
      this.#storeUp.set(0);
    }
  }

  #lookAtPool({ blueprints, hits, misses }: PoolReply): void {
    const missed = Object.values(misses).reduce((sum, count) => sum + count, 0);
    this.#poolRatio.set(hits + missed === 0 ? 1 : hits / (hits + missed));
    for (const { blueprint, target, ready, memoryBytes } of blueprints) {
      this.#poolTarget.set({ blueprint }, target);
      this.#poolReady.set({ blueprint }, ready);
      if (memoryBytes !== null) this.#poolMemory.set({ blueprint }, memoryBytes);
    }
  }

  #saw(event: FleetEvent): void {
    switch (event.type) {
      case "lease-acquired":
        this.#countLater(() => {
          this.#acquireSeconds.observe({ path: event.path }, event.durationMs / 1_000);
          this.#acquires.inc({ path: event.path });
        });
        this.#all += 1;
        if (event.path !== "cold") this.#warm += 1;
        this.#leases.set(event.leaseId, event.at);
        return;
      case "lease-released":
      case "lease-lost":
        this.#leases.delete(event.leaseId);
        return;
      case "lease-leaked":
        this.#leaks.inc();
        return;
      case "sandbox-created":
        this.#engineUp.set(1);
        this.#created.inc({ kind: event.blank ? "blank" : "thread" });
        if (event.miss !== undefined) this.#poolMisses.inc({ reason: event.miss });
        return;
      case "sandbox-bound":
        this.#poolHits.inc();
        return;
      case "sandbox-stopped":
        this.#engineUp.set(1);
        this.#stopped.inc({ reason: event.reason });
        return;
      case "sandbox-lost":
        this.#lost.inc({ reason: event.reason });
        return;
      case "sandbox-stop-failed":
        this.#engineUp.set(0);
        this.#stopFailures.inc();
        return;
      case "housekeeping-failed":
        this.#housekeepingFailures.inc({ task: event.task });
        return;
      case "acquire-queued":
        this.#queued.set(event.queued);
        return;
      default:
        return;
    }
  }

  #counter<Label extends string>(name: string, help: string, labelNames: Label[]): Counter<Label> {
    return new Counter({ name: `sandlot_${name}`, help, labelNames, registers: [this.#registry] });
  }

  #gauge<Label extends string>(name: string, help: string, labelNames: Label[]): Gauge<Label> {
    return new Gauge({ name: `sandlot_${name}`, help, labelNames, registers: [this.#registry] });
  }

  #histogram<Label extends string>(name: string, help: string, labelNames: Label[]): Histogram<Label> {
    const common = { name: `sandlot_${name}`, help, labelNames, registers: [this.#registry] };
    return new Histogram({ ...common, buckets: LATENCY_BUCKETS });
  }
}
