/** One PostgreSQL server of the run's own, in a directory of its own. */

import { setTimeout as sleep } from "node:timers/promises";
import type { PostgresSettings } from "../../../packages/fleet/src/store/postgres/settings.ts";
import { type PostgresServer, startPostgres } from "../../../packages/fleet/test/engines/postgres/postgres-server.ts";
import { STEP_MS } from "../settings.ts";
import type { Database, StoreServer } from "./database.ts";

/** For eight instances, the engine, main, and what a killed process has left. */
const CONNECTIONS_MAX = "200";
const POOL_MAX = 4;
/** The shared memory of a killed server is free when the last of its processes is gone. */
const STARTS_MAX = 20;
const START_AGAIN_MS = 100;

export class PostgresDatabase implements Database {
  readonly stepMs = STEP_MS;
  readonly losesCommits = false;
  readonly address: PostgresSettings;
  readonly server: StoreServer;
  readonly #server: PostgresServer;

  private constructor(server: PostgresServer) {
    this.#server = server;
    this.address = server.settings(postgresSettings());
    this.server = harmable(server);
  }

  static async start(): Promise<PostgresDatabase> {
    return new PostgresDatabase(await startPostgres({ settings: { max_connections: CONNECTIONS_MAX } }));
  }

  async problems(): Promise<readonly string[]> {
    const rows = await this.#server.admin("SELECT datname, checksum_failures FROM pg_stat_database", "app");
    return rows
      .filter(({ checksum_failures: failures }) => Number(failures ?? 0) > 0)
      .map(({ datname }) => `the database ${datname} is damaged`);
  }

  endNow(): void {
    if (this.server.pids().length > 0) for (const pid of this.#server.pids()) process.kill(pid, "SIGKILL");
  }

  end(): Promise<void> {
    return this.#server.dispose();
  }
}

export function postgresSettings(): Partial<PostgresSettings> {
  return { poolMax: POOL_MAX, timeoutMs: STEP_MS };
}

export function harmable(server: PostgresServer): StoreServer {
  let isUp = true;
  return {
    async kill() {
      isUp = false;
      await server.stop("kill");
    },
    async restart() {
      await startAgain(server);
      isUp = true;
    },
    stop: () => server.signal("SIGSTOP"),
    resume: () => server.signal("SIGCONT"),
    pids: () => (isUp ? server.pids().slice(0, 1) : []),
  };
}

async function startAgain(server: PostgresServer): Promise<void> {
  for (let left = STARTS_MAX; ; left -= 1) {
    try {
      await server.start();
      return;
    } catch (error) {
      if (left === 0) throw error;
      await sleep(START_AGAIN_MS);
    }
  }
}
