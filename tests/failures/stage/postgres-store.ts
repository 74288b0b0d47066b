/** PostgreSQL as the store of a stage: a server with a standby that follows later, and a link for each gateway. */

import { setTimeout as sleep } from "node:timers/promises";
import { type PostgresServer, startPostgres } from "../../../packages/fleet/test/engines/postgres/postgres-server.ts";
import { Link } from "./link.ts";
import type { StageStore, StoreServer } from "./stage-store.ts";

/** The account of the tests' servers. */
const LOGIN = { database: "app", user: "app" };
/** Gateways of a stage, also those that start later. */
const LINKS = 6;
const DISK = { of: "data", sizeBytes: 128 * 1_048_576 } as const;
/** It leaves most of the disk to others. */
const SHORT_LOG = { max_wal_size: "8MB", min_wal_size: "2MB" };

export function postgresStore(): StageStore {
  let primary: PostgresServer | null = null;
  let standby: PostgresServer | null = null;
  const links: Link[] = [];
  const running = () => {
    if (primary === null) throw new Error("the server was not started");
    return primary;
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
    kill: () => running().stop("kill"),
    restart: () => running().start(),
    pause: () => running().signal("SIGSTOP"),
    resume: () => running().signal("SIGCONT"),
    cut: () => links[0]?.cut(),
    mend: () => links[0]?.mend(),
    async rewind(byMs) {
      standby = await startPostgres({ standbyOf: running() });
      await sleep(2_000);
      // The standby misses what is committed from here on. (Stopped, it would still find it in its socket.)
      await standby.admin("ALTER SYSTEM SET primary_conninfo = ''");
      await standby.reload();
      await sleep(byMs);
      server.rewoundAt = performance.now();
      await running().stop("kill");
      await standby.promote();
      for (const link of links) link.turn(standby.port);
    },
  };
  return {
    name: "postgres",
    server,
    async start() {
      const settings = { synchronous_commit: "on", max_wal_senders: "4" };
      primary = await startPostgres(
        isOnSmallDisk ? { settings: { ...settings, ...SHORT_LOG }, disk: DISK } : { settings },
      );
      for (let index = 0; index < LINKS; index += 1) links.push(await Link.to(primary.port));
    },
    async stop() {
      for (const link of links) link.close();
      await standby?.dispose();
      await primary?.dispose();
    },
    section: (_home, index, name) => ({
      ...{ type: "postgres", host: "127.0.0.1", port: links[index % LINKS]?.port, ...LOGIN },
      schema: name,
    }),
  };
}
