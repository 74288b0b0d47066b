/**
 * One run: its own directory, the database, the engine, the children, the harm, the final checks, and the cleanup.
 *
 * What harms the run is a parameter (`Harm`): the cycles of this folder kill and stop processes, the store's chaos
 * harms the links between the children and the database.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Store } from "../../../packages/fleet/src/store/store.ts";
import { systemWorld } from "../../../packages/fleet/src/world/system-world.ts";
import { Random } from "../../simulation/schedule/random.ts";
import type { EngineConnection } from "../backend-client/engine-connection.ts";
import type { Database } from "../database/database.ts";
import { patiently } from "../database/patiently.ts";
import { formatAddress, openStore, patient, type StoreAddress } from "../database/store-address.ts";
import type { Plant } from "../plants.ts";
import type { Push } from "../wire.ts";
import { EngineHandle } from "./engine-handle.ts";
import { finalChecks } from "./final-checks.ts";
import { Signals } from "./signals.ts";
import type { Tally } from "./tally.ts";
import { Workers } from "./workers.ts";

export interface CrashOptions {
  readonly cycles: number;
  readonly seed: number;
  readonly processes: number;
  readonly plant: Plant | null;
}

/** A run as its harm sees it. */
export interface Scene {
  readonly workers: Workers;
  readonly engine: EngineConnection;
  /** Main's own view of the store, over a link that no fault touches. */
  readonly store: Store;
  readonly tally: Tally;
  readonly signals: Signals;
  readonly random: Random;
  readonly processes: number;
}

export interface Harm {
  /** Resolves with the number of cycles: fewer than requested when a violation was found. */
  run(cycles: number): Promise<number>;
  /** Ends every fault. Resolves when the database answers every process. */
  heal(): Promise<void>;
}

export interface CrashParts {
  readonly options: CrashOptions;
  readonly tally: Tally;
  /** Made in the run's directory. The run ends it. */
  openDatabase(directory: string): Promise<Database>;
  /** Where a process of the run finds the database; by default where it is. */
  addressFor?(name: string, database: Database): StoreAddress;
  harm(scene: Scene, database: Database): Harm;
}

const ENGINE_PROGRAM = fileURLToPath(import.meta.resolve("../engine-process/main.ts"));
const CHILD_PROGRAM = fileURLToPath(import.meta.resolve("../child/main.ts"));
const PROGRESS_MS = 15_000;
const SOCKET_NAME = "s";

export class CrashRun {
  /** A short path, because the address of a unix socket has room for a hundred characters. */
  readonly directory = mkdtempSync(join(tmpdir(), "sandlot-crash-"));
  readonly #parts: CrashParts;
  readonly #signals = new Signals();
  #workers: Workers | null = null;
  #database: Database | null = null;
  #engine: EngineHandle | null = null;
  #counts: Readonly<Record<string, number>> = {};
  #isEnding = false;

  constructor(parts: CrashParts) {
    this.#parts = parts;
  }

  /** Resolves with the number of cycles. Afterwards no process is left. */
  async execute(): Promise<number> {
    try {
      const database = await this.#parts.openDatabase(this.directory);
      this.#database = database;
      this.#workers = this.#newWorkers(database);
      this.#engine = await this.#startEngine(database);
      this.#engine.connection.tell("guard", [database.server?.pids() ?? []]);
      const store = await patiently(() => openStore(patient(database.address), systemWorld()));
      try {
        return await this.#play(store, database, this.#workers, this.#engine.connection);
      } finally {
        await store.close();
      }
    } finally {
      await this.#end();
    }
  }

  async #play(store: Store, database: Database, workers: Workers, engine: EngineConnection): Promise<number> {
    const { options, tally } = this.#parts;
    const { cycles, processes, seed } = options;
    const scene: Scene = {
      ...{ workers, engine, store, tally, processes },
      signals: this.#signals,
      random: new Random(seed, 0),
    };
    const harm = this.#parts.harm(scene, database);
    const progress = setInterval(() => console.log(`  ${tally.progress()}`), PROGRESS_MS);
    const done = await harm.run(cycles).finally(() => clearInterval(progress));
    await harm.heal();
    const pids = () => [process.pid, this.#engine?.pid ?? process.pid, ...(database.server?.pids() ?? [])];
    if (tally.violations.length === 0) await finalChecks({ ...scene, database, pids });
    this.#counts = (await engine.ask("dump", [])).counts;
    return done;
  }

  summary(): string {
    const list = (entries: Iterable<readonly [string, number]>) =>
      [...entries]
        .sort((a, b) => b[1] - a[1])
        .map(([name, count]) => `${name} ${count}`)
        .join(", ");
    const { errors } = this.#parts.tally;
    return `engine: ${list(Object.entries(this.#counts))}\nanswers other than success: ${list(errors)}`;
  }

  removeDirectory(): void {
    rmSync(this.directory, { recursive: true, force: true });
  }

  /** For an exit that cannot wait: every remaining process is killed, by its pid. */
  endNow(): void {
    this.#isEnding = true;
    this.#workers?.killAllNow();
    this.#engine?.killNow();
    this.#database?.endNow();
  }

  async #end(): Promise<void> {
    this.#isEnding = true;
    const workers = this.#workers;
    if (workers !== null) await Promise.all([...workers.all].map((child) => workers.kill(child)));
    await this.#engine?.connection.ask("guard", [[]]).catch(() => {});
    await this.#engine?.end();
    await this.#database?.end();
    this.#database = null;
  }

  #newWorkers(database: Database): Workers {
    const { options, tally } = this.#parts;
    return new Workers({
      program: CHILD_PROGRAM,
      environment: (name) => this.#environmentFor(name, database),
      ...{ tally, directory: this.directory, signals: this.#signals, random: new Random(options.seed, 4) },
    });
  }

  /** The engine's checks read the store over a link that no fault touches. */
  #startEngine(database: Database): Promise<EngineHandle> {
    const { directory } = this;
    const { options, tally } = this.#parts;
    const own = { CRASH_SEED: String(options.seed), CRASH_LOG: join(directory, "engine.log") };
    return EngineHandle.start({
      program: ENGINE_PROGRAM,
      environment: { ...this.#environment(database.address, database), ...own },
      socketPath: join(directory, SOCKET_NAME),
      stderrPath: join(directory, "engine.stderr"),
      onPush: (push: Push) => {
        if (push.push === "held") this.#signals.emit({ ...push, what: "held" });
        if (push.push === "violation") tally.violated(push.what);
      },
      onLost: () => {
        if (!this.#isEnding) tally.violated("the engine has ended; see engine.stderr");
      },
    });
  }

  #environmentFor(name: string, database: Database): Record<string, string> {
    return this.#environment(this.#parts.addressFor?.(name, database) ?? database.address, database);
  }

  /** Certificates are read at every start and not needed here; the compile cache halves the time of a start. */
  #environment(store: StoreAddress, { stepMs, losesCommits }: Database): Record<string, string> {
    const { PATH = "", HOME = "" } = process.env;
    const { directory } = this;
    const { plant } = this.#parts.options;
    return {
      ...{ PATH, HOME },
      NODE_COMPILE_CACHE: join(directory, "compiled"),
      CRASH_HOME: directory,
      CRASH_SOCKET: join(directory, SOCKET_NAME),
      CRASH_STORE: formatAddress(store),
      CRASH_LOSES_COMMITS: losesCommits ? "yes" : "no",
      ...(stepMs === null ? {} : { CRASH_STEP_MS: String(stepMs) }),
      ...(plant === null ? {} : { CRASH_PLANT: plant }),
    };
  }
}
