/** One Redis server of the run's own, which writes every commit to its disk before it answers. */

import type { RedisSettings } from "../../../packages/fleet/src/store/redis/settings.ts";
import { RedisProcess } from "../../../packages/fleet/test/engines/redis/redis-process.ts";
import { STEP_MS } from "../settings.ts";
import type { Database, StoreServer } from "./database.ts";

export class RedisDatabase implements Database {
  readonly stepMs = STEP_MS;
  readonly losesCommits = false;
  readonly address: RedisSettings;
  readonly server: StoreServer;
  readonly #redis: RedisProcess;

  private constructor(redis: RedisProcess) {
    this.#redis = redis;
    this.address = redis.settings({ timeoutMs: STEP_MS });
    this.server = harmable(redis);
  }

  static async start(): Promise<RedisDatabase> {
    return new RedisDatabase(await RedisProcess.start());
  }

  /** Redis refuses to start on an append-only file that is damaged. */
  async problems(): Promise<readonly string[]> {
    await this.#redis.kill();
    await this.#redis.start();
    return [];
  }

  endNow(): void {
    for (const pid of this.server.pids()) process.kill(pid, "SIGKILL");
  }

  end(): Promise<void> {
    return this.#redis.dispose();
  }
}

export function harmable(redis: RedisProcess): StoreServer {
  let isUp = true;
  return {
    async kill() {
      isUp = false;
      await redis.kill();
    },
    async restart() {
      await redis.start();
      isUp = true;
    },
    stop: () => redis.signal("SIGSTOP"),
    resume: () => redis.signal("SIGCONT"),
    pids: () => (isUp && redis.isRunning ? [redis.pid] : []),
  };
}
