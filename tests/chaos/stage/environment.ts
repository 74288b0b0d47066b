/**
 * The environment of the faults: the fleet they hit, and those that must not be affected.
 *
 *   the fleet      opened in this process, in its own home; the killed processes share its store
 *   the keeper     a lease of the fleet that no fault hits
 *   the neighbour  a lease of another fleet on the same machine or engine
 *   the bystander  a container, or a process, unrelated to Sandlot
 *   the pool       one blank, that any thread of the blueprint `pooled` may get; it is always replaced
 */

import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { DEFAULT_USER, type FleetId, isSandlotError, type ThreadId } from "@sandlot/contract";
import { threadKeyOf } from "../../../packages/fleet/src/backend/labels.ts";
import type { FleetConfig } from "../../../packages/fleet/src/config/fleet-config.ts";
import type { AcquireRequest, Fleet, Lease } from "../../../packages/fleet/src/fleet.ts";
import { openFleet } from "../../../packages/fleet/src/open-fleet.ts";
import type { KillStage, Tally } from "./tally.ts";
import type { StartWatch } from "./target.ts";

const MIB = 1024 * 1024;
const ACQUIRE_MS = 30_000;
/** How long a call may take beyond its own deadline before it counts as never settling. */
const MARGIN_MS = 10_000;
const SETTLE_MS = 45_000;
const USABLE_MS = 60_000;
const DESTROY_PAUSE_MS = 500;
const KEEPER = "keeper";
/** Its timeline is written while the fleet works. */
const OF_KEEPER = new RegExp(`/timelines/${threadKeyOf(DEFAULT_USER, KEEPER as ThreadId)}/`);
const BLANKS = 1;
export const ORPHAN_TIMEOUT_MS = 20_000;

/** The blueprints here: plain ones, ones with egress, which has a process, and ones with blanks in the pool. */
type BlueprintName = "default" | "online" | "pooled";

/** What differs between engines. */
export interface Shape {
  /** The engine and its section, and the store where it is not in the home. */
  readonly engine: Partial<FleetConfig>;
  readonly limits: object;
  /** Another hash than the default's, whose acquires are to be cold. */
  readonly pooledLimits: object;
  /** Of every blueprint. */
  readonly blueprint: object;
  /** Whether sandboxes can have egress. */
  readonly hasEgress: boolean;
  /** A store on the network answers later on a busy machine than a file. */
  readonly sessionLifetimeMs: number;
}

const LIMITS = { memoryBytes: 256 * MIB, pidsMax: 256 };

export function shapeOf(engine: Partial<FleetConfig>): Shape {
  return {
    engine,
    limits: LIMITS,
    pooledLimits: { ...LIMITS, pidsMax: 255 },
    blueprint: {},
    hasEgress: true,
    sessionLifetimeMs: 6_000,
  };
}

export type SandboxName = { readonly sandboxId: string; readonly generation: number };

export abstract class Environment {
  /** The stages at which a fleet can be killed here. */
  abstract readonly stages: readonly KillStage[];
  readonly tally: Tally;
  readonly config: FleetConfig;
  readonly fleetId: FleetId;
  /** Everything of a run is below this directory. */
  readonly place: string;
  protected readonly home: string;
  readonly shape: Shape;
  /** A command that a killed fleet runs in its sandbox; `GENERATION` stands for the lease's. */
  readonly writer: string | null = null;
  #fleet: Fleet | null = null;
  #other: Fleet | null = null;
  #keeper: Lease | null = null;
  #neighbour: Lease | null = null;
  /** What exists when there is only the keeper. */
  #baseline: readonly string[] = [];
  #seen = { keeper: 0, neighbour: 0, bystander: "" };

  constructor(place: string, tally: Tally, shape: Shape) {
    this.place = place;
    this.tally = tally;
    this.home = join(place, "home");
    this.shape = shape;
    this.fleetId = `chaos-${randomBytes(3).toString("hex")}` as FleetId;
    this.config = this.#configOf(this.home, this.fleetId);
  }

  /** Everything of the fleet, except the expected sandboxes. */
  protected abstract leftovers(meant: readonly SandboxName[]): Promise<readonly string[]>;
  abstract watchStarts(): Promise<StartWatch>;
  protected abstract openBystander(): Promise<void>;
  /** Its start time; empty when it does not run. */
  protected abstract bystanderSince(): Promise<string>;
  protected abstract closeBystander(): Promise<void>;

  async open(): Promise<void> {
    this.#fleet = await openFleet(this.config);
    this.#other = await openFleet(this.#configOf(join(this.place, "other"), `${this.fleetId}-other`));
    this.#neighbour = await acquired(this.#other, "neighbour");
    await this.openBystander();
    await this.begin();
  }

  get fleet(): Fleet {
    if (this.#fleet === null) throw new Error("The environment is not open.");
    return this.#fleet;
  }

  get keeper(): Lease {
    if (this.#keeper === null) throw new Error("There is no keeper.");
    return this.#keeper;
  }

  /** A fresh keeper, and a baseline for the faults that follow. */
  async begin(): Promise<void> {
    this.#keeper = await acquired(this.fleet, KEEPER);
    await this.#keeper.sandbox.exec("echo kept > note");
    await this.#untilPooled();
    this.#baseline = await this.#left();
    // A check that does not see the keeper would not see leftovers either.
    if (this.#baseline.length === 0) this.tally.violated("nothing of the keeper is seen");
    await this.#lookAtOthers();
  }

  /** Runs a fault. Afterwards it has left nothing, and nothing else was affected. */
  async fault(name: string, act: () => Promise<number>, options: { readonly endsEverything?: boolean } = {}) {
    const startedAt = performance.now();
    let usableMs = 0;
    try {
      usableMs = await act();
      this.tally.usable(name, usableMs);
    } catch (error) {
      this.tally.violated(`${name}: ${error instanceof Error ? error.stack : String(error)}`);
    }
    if (options.endsEverything === true) await this.afterTheEnd(name);
    else {
      await this.#settled(name, this.#baseline);
      await this.checkOthers(name);
    }
    const seconds = ((performance.now() - startedAt) / 1_000).toFixed(1);
    console.log(`${name}: usable after ${usableMs.toFixed(0)} ms; all of it, nothing left, ${seconds} s`);
  }

  /** An acquire that must settle: with a lease, or with an error that has a code. */
  async acquire(request: AcquireRequest): Promise<Lease | null> {
    const acquiring = this.fleet.acquire({ timeoutMs: ACQUIRE_MS, ...request });
    const lease = await this.settles(`an acquire of ${request.thread}`, acquiring);
    return lease ?? null;
  }

  /** `undefined` for a call that was refused, or never settled. */
  async settles<T>(what: string, call: Promise<T>, withinMs = ACQUIRE_MS + MARGIN_MS): Promise<T | undefined> {
    const late = Symbol("late");
    const timer = new AbortController();
    const answer = await Promise.race([
      call.catch((error: unknown) => {
        if (isSandlotError(error) && error.code !== "internal") this.tally.refused(error.code);
        else this.tally.violated(`${what} ended with ${error instanceof Error ? error.stack : String(error)}`);
        return undefined;
      }),
      sleep(withinMs, late, { signal: timer.signal }).catch(() => late),
    ]);
    timer.abort();
    if (answer === late) this.tally.violated(`${what} did not settle within ${withinMs} ms`);
    else this.tally.settledCount += 1;
    return answer === late ? undefined : (answer as T | undefined);
  }

  /** The same, and the thread is released. */
  async usable(
    thread: string,
    since: number,
    note: string | null,
    held: Lease | null = null,
    blueprint?: BlueprintName,
  ): Promise<number> {
    const { lease, ms } = await this.used(thread, since, note, held, blueprint);
    await lease.release();
    return ms;
  }

  /** Uses a thread until it works, and returns how long after `since` that was. `note` must be in its workspace. */
  async used(
    thread: string,
    since: number,
    note: string | null,
    held: Lease | null = null,
    blueprint: BlueprintName = "default",
  ) {
    let last: unknown;
    let lease = held;
    while (performance.now() - since < USABLE_MS) {
      lease ??= await this.acquire({ thread, blueprint });
      if (lease === null) continue;
      try {
        const { stdout } = await lease.sandbox.exec("cat note 2>/dev/null; echo usable");
        const expected = `${note === null ? "" : `${note}\n`}usable\n`;
        if (note !== null && stdout !== expected)
          this.tally.violated(`${thread} has ${JSON.stringify(stdout)} in place of ${JSON.stringify(expected)}`);
        const ms = performance.now() - since;
        await this.atUse(thread, lease);
        return { lease, ms };
      } catch (error) {
        last = error;
        await sleep(20);
      }
    }
    await lease?.release();
    throw new Error(`${thread} was not usable within ${USABLE_MS} ms: ${last}`);
  }

  /** After each use that worked. */
  async atUse(_thread: string, _lease: Lease): Promise<void> {}

  /**
   * Ends a thread's sandbox and removes its workspace. Every refusal is recorded, to explain later leftovers; a
   * retryable one is retried, as a caller would. A thread that cannot be ended is a violation.
   */
  async end(thread: string): Promise<void> {
    const what = `destroy of ${thread}`;
    const deadline = performance.now() + USABLE_MS;
    for (;;) {
      let refusal: unknown = null;
      const destroying = this.fleet.destroy({ thread }, { purge: true, force: true }).catch((error: unknown) => {
        refusal = error;
        throw error;
      });
      await this.settles(what, destroying);
      // Done; or late, which is already recorded as a violation.
      if (refusal === null) return;
      console.log(`${what} was refused: ${told(refusal)}`);
      const isWorthAsking = isSandlotError(refusal) && refusal.retryable && performance.now() < deadline;
      if (!isWorthAsking) return this.tally.violated(`${what} was refused for good: ${told(refusal)}`);
      await sleep(DESTROY_PAUSE_MS);
    }
  }

  async close(): Promise<void> {
    await this.#keeper?.release();
    if (this.#fleet !== null) {
      await this.end(KEEPER);
      await this.#settled("the end", []);
      await this.#fleet.close({ destroy: true });
    }
    await this.#neighbour?.release();
    await this.#other?.destroy({ thread: "neighbour" }, { purge: true });
    await this.#other?.close({ destroy: true });
    await this.closeBystander();
  }

  /** After a fault that ended everything: all of it must come back, and nothing else may be gone. */
  protected async afterTheEnd(after: string): Promise<void> {
    const since = performance.now();
    await this.usable(KEEPER, since, "kept", this.#keeper);
    await this.end(KEEPER);
    await this.#settled(after, []);
    await this.#other?.list();
    await this.#neighbour?.sandbox.exec("echo back");
    await this.begin();
  }

  protected async checkOthers(after: string): Promise<void> {
    const before = this.#seen;
    try {
      await this.keeper.sandbox.exec("true");
      await this.#neighbour?.sandbox.exec("true");
    } catch (error) {
      this.tally.violated(`after ${after}: ${error}`);
    }
    await this.#lookAtOthers();
    for (const who of ["keeper", "neighbour", "bystander"] as const)
      if (this.#seen[who] !== before[who]) this.tally.violated(`after ${after}: the ${who} was ended`);
  }

  async #untilPooled(): Promise<void> {
    const deadline = performance.now() + SETTLE_MS;
    while ((await this.#left()).some((thing) => thing.endsWith(" blanks"))) {
      if (performance.now() > deadline) return this.tally.violated("the pool was not filled again");
      await sleep(50);
    }
  }

  async #left(): Promise<readonly string[]> {
    const blanks = (await this.fleet.list()).filter(({ state }) => state === "blank");
    const left = await this.leftovers(blanks);
    return blanks.length === BLANKS ? left : [...left, `${blanks.length} blanks`];
  }

  /** Waits until the machine, the store and the disk have only `expected`, and the pool is full. */
  async #settled(after: string, expected: readonly string[]): Promise<void> {
    const deadline = performance.now() + SETTLE_MS;
    const hasKeeper = expected.length > 0;
    for (;;) {
      const seen = await this.#left().catch((error) => [String(error)]);
      const left = seen.filter((thing) => !expected.includes(thing) && !(hasKeeper && OF_KEEPER.test(thing)));
      const findings = left.length > 0 ? [] : await this.fleet.audit();
      if (left.length === 0 && findings.length === 0) return;
      if (performance.now() > deadline) {
        const records = (await this.fleet.list()).map(({ thread, state }) => `${thread}: ${state}`);
        const all = [...left, ...findings.map((finding) => JSON.stringify(finding)), ...records];
        return this.tally.violated(`after ${after}: left behind: ${all.join(", ")}`);
      }
      await sleep(100);
    }
  }

  async #lookAtOthers(): Promise<void> {
    const bystander = await this.bystanderSince();
    if (bystander === "") this.tally.violated("the bystander does not run");
    this.#seen = { keeper: this.keeper.generation, neighbour: this.#neighbour?.generation ?? 0, bystander };
  }

  #configOf(home: string, fleetId: string): FleetConfig {
    const { engine, limits, pooledLimits, blueprint, hasEgress, sessionLifetimeMs } = this.shape;
    const isOurs = fleetId === this.fleetId;
    const allow = [{ host: "allowed.example.org", ports: [443] }];
    return {
      ...{ ...engine, home, fleetId, limits: { max: 30 } },
      blueprints: {
        default: { ...blueprint, limits },
        ...(hasEgress && { online: { ...blueprint, limits, network: { mode: "allowlist" as const, allow } } }),
        pooled: { ...blueprint, limits: pooledLimits },
      },
      pool: isOurs ? { pooled: BLANKS } : {},
      acquireTimeoutMs: ACQUIRE_MS,
      sessionLifetimeMs,
      housekeepingIntervalMs: 500,
      stopTimeoutMs: 10_000,
      orphanTimeoutMs: ORPHAN_TIMEOUT_MS,
    };
  }
}

function told(error: unknown): string {
  return isSandlotError(error) ? `${error.code}: ${error.message}` : String(error);
}

/** For sandboxes that no fault hits: on a busy machine their acquire is retried. */
async function acquired(fleet: Fleet, thread: string): Promise<Lease> {
  const deadline = performance.now() + USABLE_MS;
  for (;;) {
    try {
      return await fleet.acquire({ thread });
    } catch (error) {
      if (!isSandlotError(error) || !error.retryable || performance.now() > deadline) throw error;
      await sleep(200);
    }
  }
}
