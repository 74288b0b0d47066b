/**
 * A PostgreSQL primary and one standby that follows asynchronously. After a failover the former primary is rebuilt as
 * the standby of the new one, as an operator would.
 */

import { setTimeout as sleep } from "node:timers/promises";
import type { PostgresSettings } from "../../../packages/fleet/src/store/postgres/settings.ts";
import { type PostgresServer, startPostgres } from "../../../packages/fleet/test/engines/postgres/postgres-server.ts";
import type { StoreServer } from "../../crash/database/database.ts";
import { harmable, postgresSettings } from "../../crash/database/postgres-database.ts";
import type { ServerSettings } from "../../crash/database/store-address.ts";
import { STEP_MS } from "../../crash/settings.ts";
import type { ChaosDatabase } from "./chaos-database.ts";
import { Link, type Upstream } from "./link.ts";

const HOST = "127.0.0.1";
const CONNECTIONS_MAX = "200";
const FOLLOWS_MAX_MS = 30_000;
/** Several faults, and a copy after each. */
const REBUILT_MAX_MS = 120_000;
const REBUILD_AGAIN_MS = 500;

/** A server, and the link over which its standby follows it. */
interface Member {
  readonly postgres: PostgresServer;
  readonly server: StoreServer;
  readonly replication: Link;
}

export class PostgresPair implements ChaosDatabase {
  readonly stepMs = STEP_MS;
  readonly losesCommits = true;
  readonly stopMaxMs = null;
  readonly #home: Link;
  #primary: Member;
  #standby: Member | null = null;
  #rebuilding: Promise<void> = Promise.resolve();

  private constructor(primary: Member, home: Link) {
    this.#primary = primary;
    this.#home = home;
  }

  static async start(): Promise<PostgresPair> {
    const primary = await newMember(await startPostgres({ settings: { max_connections: CONNECTIONS_MAX } }));
    const pair = new PostgresPair(primary, await Link.open({ host: HOST, port: primary.postgres.port }));
    pair.#standby = await pair.#newStandby();
    return pair;
  }

  get address(): PostgresSettings {
    return this.addressAt(this.#home.port);
  }

  get server(): StoreServer {
    return this.#primary.server;
  }

  get upstream(): Upstream {
    return { host: HOST, port: this.#primary.postgres.port };
  }

  addressAt(port: number): PostgresSettings {
    return this.#primary.postgres.settings({ ...postgresSettings(), host: HOST, port });
  }

  apart(address: ServerSettings): ServerSettings {
    return address.type === "postgres" ? { ...address, schema: "apart" } : address;
  }

  async failOver(lagMs: number): Promise<void> {
    await this.#rebuilding;
    const [former, next] = [this.#primary, this.#standby];
    if (next === null) throw new Error("there is no standby");
    former.replication.set({ kind: "half-open", direction: "both" });
    await sleep(lagMs);
    await former.server.kill();
    await next.postgres.promote();
    this.#primary = next;
    this.#home.moveTo(this.upstream);
    this.#standby = null;
    this.#rebuilding = this.#rebuild(former);
    this.#rebuilding.catch(() => {});
  }

  async problems(): Promise<readonly string[]> {
    const rows = await this.#primary.postgres.admin("SELECT datname, checksum_failures FROM pg_stat_database", "app");
    return rows
      .filter(({ checksum_failures: failures }) => Number(failures ?? 0) > 0)
      .map(({ datname }) => `the database ${datname} is damaged`);
  }

  endNow(): void {
    for (const member of [this.#primary, this.#standby])
      if (member !== null && member.server.pids().length > 0)
        for (const pid of member.postgres.pids()) process.kill(pid, "SIGKILL");
  }

  async end(): Promise<void> {
    await this.#rebuilding.catch(() => {});
    await this.#home.close();
    for (const member of [this.#standby, this.#primary]) {
      await member?.postgres.dispose();
      await member?.replication.close();
    }
  }

  async #rebuild(former: Member): Promise<void> {
    await former.postgres.dispose();
    await former.replication.close();
    // The next faults may strike the new primary while it is copied.
    for (const until = performance.now() + REBUILT_MAX_MS; this.#standby === null; )
      try {
        this.#standby = await this.#newStandby();
      } catch (error) {
        if (performance.now() > until) throw error;
        await sleep(REBUILD_AGAIN_MS);
      }
  }

  async #newStandby(): Promise<Member> {
    const settings = { max_connections: CONNECTIONS_MAX };
    const standby = await newMember(await startPostgres({ standbyOf: this.#primary.postgres, settings }));
    try {
      await this.#follow(standby);
      return standby;
    } catch (error) {
      await standby.postgres.dispose();
      await standby.replication.close();
      throw error;
    }
  }

  async #follow(standby: Member): Promise<void> {
    const { postgres: primary, replication } = this.#primary;
    // The copy follows its source directly until it is told otherwise.
    const conninfo = `host=${HOST} port=${replication.port} user=admin`;
    await standby.postgres.admin(`ALTER SYSTEM SET primary_conninfo = '${conninfo}'`);
    await standby.postgres.reload();
    const until = performance.now() + FOLLOWS_MAX_MS;
    const followers = () =>
      primary.admin("SELECT 1 FROM pg_stat_replication WHERE state = 'streaming' AND client_addr IS NOT NULL");
    while ((await followers()).length === 0) {
      if (performance.now() > until) throw new Error("the standby does not follow");
      await sleep(50);
    }
  }
}

async function newMember(postgres: PostgresServer): Promise<Member> {
  const replication = await Link.open({ host: HOST, port: postgres.port });
  return { postgres, server: harmable(postgres), replication };
}
