/**
 * The stage of a fault: a home with local sandboxes, two gateways over one store, and eight callers. Everything is
 * below one temporary directory. `measure` runs one fault on it and says what callers have noticed.
 */

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseRef } from "../../../packages/fleet/src/backends/local/objects/engine-ref.ts";
import { loadConfig } from "../../../packages/fleet/src/config/load-config.ts";
import { REGISTRY, storeEntry } from "../../../packages/fleet/src/config/registry.ts";
import { resolveSettings } from "../../../packages/fleet/src/config/resolve-settings.ts";
import { systemWorld } from "../../../packages/fleet/src/world/system-world.ts";
import { SmallDisk } from "../../../packages/fleet/test/support/small-disk.ts";
import { allUsable, Caller } from "./callers.ts";
import { GatewayProcess } from "./gateway-process.ts";
import type { StageStore } from "./stage-store.ts";

const THREADS = 8;
/** Opening sandboxes for all threads on a busy machine. */
const FIRST_MS = 120_000;
/** The longest that the repair of a fault may take. */
const PATIENCE_MS = 240_000;
/** No gateway uses it, so that its configuration is free. */
const LAST_LINK = 5;

export interface Measured {
  readonly detectedMs: number | null;
  readonly usableMs: number;
  /** Callers that saw no error at all. */
  readonly undisturbed: number;
  readonly acknowledged: number;
  readonly lostWrites: number;
  /** Threads whose sandbox was made anew, and lost its processes. */
  readonly madeAnew: number;
  readonly problems: readonly string[];
}

/** The moment of the fault, and what shows that it was noticed. */
export interface Struck {
  readonly at: number;
  /** Types of events, of any gateway; without them the first error of a caller. */
  readonly shownBy?: readonly string[];
}

export class Stage {
  readonly home: string;
  readonly store: StageStore;
  readonly #environment: Record<string, string> = {};
  #gateways: GatewayProcess[] = [];
  #callers: Caller[] = [];
  #smallHome: SmallDisk | null = null;
  #started = 0;
  #storeName = "fleet";

  constructor(store: StageStore) {
    this.store = store;
    this.home = mkdtempSync(join(tmpdir(), "slf-"));
  }

  get gateways(): readonly GatewayProcess[] {
    return this.#gateways;
  }

  /** Writes the configuration of a gateway, and returns its path. */
  config(gateway: number): string {
    const path = join(this.home, `gateway-${gateway}.yaml`);
    const store = this.store.section(this.home, gateway, this.#storeName);
    // YAML has JSON.
    writeFileSync(path, JSON.stringify({ backend: "local", store, limits: { max: 100 }, pool: {} }));
    return path;
  }

  /** From now on gateways start on another store. */
  useStore(name: string): void {
    this.#storeName = name;
  }

  /** The home becomes a disk of its own. */
  useSmallHome(sizeBytes: number): void {
    this.#smallHome = new SmallDisk(this.home, { sizeBytes });
  }

  get smallHome(): SmallDisk | null {
    return this.#smallHome;
  }

  setVariable(name: string, value: string): void {
    this.#environment[name] = value;
  }

  async open(): Promise<void> {
    await this.store.start();
    await this.startGateway();
    await this.startGateway();
    this.#callers = Array.from({ length: THREADS }, (_, index) => new Caller(index, () => this.#gateways));
    for (const caller of this.#callers) caller.start();
    await allUsable(this.#callers, performance.now(), FIRST_MS);
    await sleep(1_000);
  }

  async startGateway(): Promise<GatewayProcess> {
    const gateway = await GatewayProcess.start({
      home: this.home,
      config: this.config(this.#started),
      environment: this.#environment,
    });
    this.#started += 1;
    this.#gateways = [...this.#gateways, gateway];
    return gateway;
  }

  /** Callers go on with the others. */
  forget(gateway: GatewayProcess): void {
    this.#gateways = this.#gateways.filter((one) => one !== gateway);
  }

  /** Strikes, waits until every thread is usable for good, and compares with the state before. */
  async measure(strike: (stage: Stage) => Promise<Struck>): Promise<Measured> {
    const before = await this.#generations();
    const { at, shownBy } = await strike(this);
    const usableAt = await allUsable(this.#callers, at, PATIENCE_MS);
    const detectedAt = shownBy === undefined ? this.#firstError(at) : this.#firstEvent(at, shownBy);
    const after = await this.#generations();
    await Promise.all(this.#callers.map((caller) => caller.end()));
    const lost = await Promise.all(this.#callers.map((caller) => caller.lost()));
    const failed = this.#callers.map(({ attempts }) =>
      attempts.filter(({ endedAt, problem }) => endedAt >= at && problem !== null),
    );
    return {
      detectedMs: detectedAt === null ? null : detectedAt - at,
      usableMs: usableAt - at,
      undisturbed: failed.filter(({ length }) => length === 0).length,
      acknowledged: this.#callers.reduce((sum, { acknowledged }) => sum + acknowledged.length, 0),
      lostWrites: lost.reduce((sum, count) => sum + count, 0),
      madeAnew: [...before].filter(([thread, generation]) => after.get(thread) !== generation).length,
      problems: [...new Set(failed.flat().map(({ problem }) => problem ?? ""))],
    };
  }

  /** The first process of each sandbox. */
  async sandboxes(): Promise<readonly number[]> {
    const settings = resolveSettings((await loadConfig(this.config(LAST_LINK), process.env)).config, {
      SANDLOT_HOME: this.home,
    });
    const store = await storeEntry(REGISTRY, settings.store).open(settings.store, systemWorld());
    try {
      const records = await store.list();
      return records.flatMap(({ ref }) => (ref === null ? [] : (parseRef(ref)?.process?.pid ?? [])));
    } finally {
      await store.close();
    }
  }

  async dispose(): Promise<void> {
    await Promise.all(this.#callers.map((caller) => caller.end()));
    for (const gateway of this.#gateways) gateway.signal("SIGCONT");
    await Promise.all(this.#gateways.map((gateway) => gateway.end("SIGKILL")));
    this.#gateways = [];
    try {
      await this.#endSandboxes();
    } finally {
      await this.store.stop();
      this.#smallHome?.unmount();
      rmSync(this.home, { recursive: true, force: true });
    }
  }

  async #endSandboxes(): Promise<void> {
    const gateway = await this.startGateway();
    for (let index = 0; index < THREADS; index += 1) {
      await fetch(`${gateway.url}/v1/threads/t${index}?force=true`, {
        method: "DELETE",
        headers: { authorization: `Bearer ${gateway.key}` },
        signal: AbortSignal.timeout(30_000),
      });
    }
    await gateway.end();
  }

  async #generations(): Promise<ReadonlyMap<string, number>> {
    const gateway = this.#gateways.at(-1);
    if (gateway === undefined) throw new Error("there is no gateway");
    const headers = { authorization: `Bearer ${gateway.key}` };
    const response = await fetch(`${gateway.url}/v1/sandboxes`, { headers, signal: AbortSignal.timeout(30_000) });
    const { sandboxes } = (await response.json()) as { sandboxes: { thread: string; generation: number }[] };
    return new Map(sandboxes.map(({ thread, generation }) => [thread, generation]));
  }

  #firstError(since: number): number | null {
    const failed = this.#callers.flatMap(({ attempts }) =>
      attempts.filter(({ endedAt, problem }) => endedAt >= since && problem !== null),
    );
    return failed.length === 0 ? null : Math.min(...failed.map(({ endedAt }) => endedAt));
  }

  #firstEvent(since: number, types: readonly string[]): number | null {
    const seen = this.#gateways.flatMap(({ events }) =>
      events.filter(({ at, type }) => at >= since && types.includes(type)),
    );
    return seen.length === 0 ? null : Math.min(...seen.map(({ at }) => at));
  }
}
