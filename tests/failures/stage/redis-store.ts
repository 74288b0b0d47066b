/** Redis as the store of a stage: a server that writes every commit to disk, and a link for each gateway. */

import { setTimeout as sleep } from "node:timers/promises";
import { RedisProcess } from "../../../packages/fleet/test/engines/redis/redis-process.ts";
import { Link } from "./link.ts";
import type { StageStore, StoreServer } from "./stage-store.ts";

/** Gateways of a stage, also those that start later. */
const LINKS = 6;
const LOOK_MS = 20;
/** Finds hangs: a replica of a few rows follows in a moment. */
const FOLLOW_MAX_MS = 60_000;
const DISK_BYTES = 16 * 1_048_576;

export function redisStore(): StageStore {
  let master: RedisProcess | null = null;
  let replica: RedisProcess | null = null;
  const links: Link[] = [];
  const running = () => {
    if (master === null) throw new Error("the server was not started");
    return master;
  };
  let isOnSmallDisk = false;
  const server: StoreServer & { rewoundAt: number } = {
    rewoundAt: 0,
    useSmallDisk() {
      isOnSmallDisk = true;
    },
    get disk() {
      return running().disk;
    },
    get isRunning() {
      return running().isRunning;
    },
    kill: () => running().kill(),
    restart: () => running().start(),
    pause: () => running().signal("SIGSTOP"),
    resume: () => running().signal("SIGCONT"),
    cut: () => links[0]?.cut(),
    mend: () => links[0]?.mend(),
    async rewind(byMs) {
      replica = await RedisProcess.start({ config: { replicaof: `127.0.0.1 ${running().port}` } });
      await following(replica);
      // It misses what is committed from here on.
      await replica.command("REPLICAOF", "NO", "ONE");
      await sleep(byMs);
      server.rewoundAt = performance.now();
      await running().kill();
      for (const link of links) link.turn(replica.port);
    },
  };
  return {
    name: "redis",
    server,
    async start() {
      master = await RedisProcess.start(isOnSmallDisk ? { diskBytes: DISK_BYTES } : {});
      for (let index = 0; index < LINKS; index += 1) links.push(await Link.to(master.port));
    },
    async stop() {
      for (const link of links) link.close();
      await replica?.dispose();
      await master?.dispose();
    },
    section: (_home, index, name) => ({
      type: "redis",
      url: `redis://127.0.0.1:${links[index % LINKS]?.port}/0`,
      prefix: name,
    }),
  };
}

async function following(replica: RedisProcess): Promise<void> {
  const until = performance.now() + FOLLOW_MAX_MS;
  while (!String(await replica.command("INFO", "replication")).includes("master_link_status:up")) {
    if (performance.now() > until) throw new Error("the replica does not follow");
    await sleep(LOOK_MS);
  }
}
