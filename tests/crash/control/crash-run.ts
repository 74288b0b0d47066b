/** One run: its own directory, the engine, the children, the cycles, the final checks, and the cleanup. */

import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { openSqliteStore } from "../../../packages/fleet/src/store/sqlite/sqlite-store.ts";
import type { Store } from "../../../packages/fleet/src/store/store.ts";
import { systemWorld } from "../../../packages/fleet/src/world/system-world.ts";
import { Random } from "../../simulation/schedule/random.ts";
import type { EngineConnection } from "../backend-client/engine-connection.ts";
import type { Plant } from "../plants.ts";
import type { Push } from "../wire.ts";
import { Cycles } from "./cycles.ts";
import { EngineHandle } from "./engine-handle.ts";
import { finalChecks } from "./final-checks.ts";
import { Signals } from "./signals.ts";
import { Steering } from "./steering.ts";
import { Tally } from "./tally.ts";
import { Workers } from "./workers.ts";

export interface CrashOptions {
  readonly cycles: number;
  readonly seed: number;
  readonly processes: number;
  readonly plant: Plant | null;
}

const ENGINE_PROGRAM = fileURLToPath(import.meta.resolve("../engine-process/main.ts"));
const CHILD_PROGRAM = fileURLToPath(import.meta.resolve("../child/main.ts"));
const PROGRESS_MS = 15_000;

export class CrashRun {
  /** A short path, because the address of a unix socket has room for a hundred characters. */
  readonly directory = mkdtempSync(join(tmpdir(), "sandlot-crash-"));
  readonly tally = new Tally();
  readonly #options: CrashOptions;
  readonly #environment: Record<string, string>;
  readonly #storeDirectory = join(this.directory, "store");
  readonly #storePath = join(this.#storeDirectory, "fleet.db");
  readonly #signals = new Signals();
  readonly #workers: Workers;
  #engine: EngineHandle | null = null;
  #counts: Readonly<Record<string, number>> = {};
  #isEnding = false;

  constructor(options: CrashOptions) {
    const { directory, tally } = this;
    this.#options = options;
    mkdirSync(this.#storeDirectory);
    this.#environment = environmentFor(options, directory, this.#storePath);
    const common = { program: CHILD_PROGRAM, environment: this.#environment, signals: this.#signals };
    this.#workers = new Workers({ ...common, directory, tally, random: new Random(options.seed, 4) });
  }

  /** Resolves with the number of cycles. Afterwards no process is left. */
  async execute(): Promise<number> {
    try {
      this.#engine = await this.#startEngine();
      const store = await openSqliteStore({ path: this.#storePath, world: systemWorld() });
      try {
        return await this.#play(this.#engine.connection, store);
      } finally {
        await store.close();
      }
    } finally {
      await this.#end();
    }
  }

  async #play(engine: EngineConnection, store: Store): Promise<number> {
    const { cycles: wanted, processes, seed } = this.#options;
    const random = new Random(seed, 0);
    const common = {
      workers: this.#workers,
      engine,
      store,
      tally: this.tally,
      signals: this.#signals,
      random,
      processes,
    };
    const cycles = new Cycles({ ...common, steering: new Steering(common) });
    const { tally } = this;
    const tell = () => console.log(`  ${tally.kills + tally.stops} cycles, ${tally.kills} kills, ${tally.stops} stops`);
    const progress = setInterval(tell, PROGRESS_MS);
    const done = await cycles.run(wanted).finally(() => clearInterval(progress));
    cycles.heal();
    if (tally.violations.length === 0) {
      await finalChecks({ ...common, storePath: this.#storePath, storeDirectory: this.#storeDirectory });
    }
    this.#counts = (await engine.ask("dump", [])).counts;
    return done;
  }

  summary(): string {
    const list = (entries: Iterable<readonly [string, number]>) =>
      [...entries]
        .sort((a, b) => b[1] - a[1])
        .map(([name, count]) => `${name} ${count}`)
        .join(", ");
    return `engine: ${list(Object.entries(this.#counts))}\nanswers other than success: ${list(this.tally.errors)}`;
  }

  removeDirectory(): void {
    rmSync(this.directory, { recursive: true, force: true });
  }

  /** For an exit that cannot wait: every remaining process is killed, by its pid. */
  endNow(): void {
    this.#isEnding = true;
    this.#workers.killAllNow();
    this.#engine?.killNow();
  }

  async #end(): Promise<void> {
    this.#isEnding = true;
    await Promise.all([...this.#workers.all].map((child) => this.#workers.kill(child)));
    await this.#engine?.end();
  }

  #startEngine(): Promise<EngineHandle> {
    const { directory, tally } = this;
    const own = { CRASH_SEED: String(this.#options.seed), CRASH_LOG: join(directory, "engine.log") };
    return EngineHandle.start({
      program: ENGINE_PROGRAM,
      environment: { ...this.#environment, ...own },
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
}

const SOCKET_NAME = "s";

/** Certificates are read at every start and not needed here; the compile cache halves the time of a start. */
function environmentFor({ plant }: CrashOptions, directory: string, storePath: string): Record<string, string> {
  const { PATH = "", HOME = "" } = process.env;
  return {
    ...{ PATH, HOME },
    NODE_COMPILE_CACHE: join(directory, "compiled"),
    CRASH_HOME: directory,
    CRASH_SOCKET: join(directory, SOCKET_NAME),
    CRASH_STORE: storePath,
    ...(plant === null ? {} : { CRASH_PLANT: plant }),
  };
}
