/**
 * A Redis master with two replicas, watched by three Sentinels. Each server is known by a link of its own, so that its
 * replicas can be cut off from it; a killed master comes back as a replica.
 *
 * Half of the participants ask the Sentinels for the master. The others have a link of their own to it, which moves with
 * it, as behind an address that an operator moves.
 */

import { setTimeout as sleep } from "node:timers/promises";
import type { RedisSettings } from "../../../packages/fleet/src/store/redis/settings.ts";
import { freePort, RedisProcess, settingsFor } from "../../../packages/fleet/test/engines/redis/redis-process.ts";
import type { StoreServer } from "../../crash/database/database.ts";
import { harmable } from "../../crash/database/redis-database.ts";
import type { ServerSettings } from "../../crash/database/store-address.ts";
import { STEP_MS } from "../../crash/settings.ts";
import type { ChaosDatabase } from "./chaos-database.ts";
import { Link, type Upstream } from "./link.ts";

const HOST = "127.0.0.1";
const MASTER = "mymaster";
const SENTINELS = 3;
/** Far longer than the other faults stop or restart a server, also on a busy machine: only `failOver` is to cause one. */
const PATIENT_MS = 60_000;
const DOWN_AFTER_MS = 2_500;
const SETTLED_MAX_MS = 40_000;

interface Member {
  readonly redis: RedisProcess;
  readonly server: StoreServer;
  /** The address by which Sentinels, replicas and clients of the Sentinels know it. */
  readonly link: Link;
}

export class RedisSentinels implements ChaosDatabase {
  readonly stepMs = STEP_MS;
  readonly losesCommits = true;
  readonly stopMaxMs = 1_000;
  readonly #members: readonly Member[];
  readonly #sentinels: readonly RedisProcess[];
  readonly #home: Link;
  #master: Member;
  #rebuilding: Promise<void> = Promise.resolve();
  #addresses = 0;

  private constructor(members: readonly Member[], master: Member, sentinels: readonly RedisProcess[], home: Link) {
    this.#members = members;
    this.#master = master;
    this.#sentinels = sentinels;
    this.#home = home;
  }

  static async start(): Promise<RedisSentinels> {
    const master = await newMember(null);
    const members = [master, await newMember(master), await newMember(master)];
    await until("the replicas follow", () => hasReplicas(master, 2));
    const sentinels: RedisProcess[] = [];
    while (sentinels.length < SENTINELS) sentinels.push(await newSentinel(master.link.port));
    const home = await Link.open({ host: HOST, port: master.redis.port });
    const all = new RedisSentinels(members, master, sentinels, home);
    await until("the Sentinels agree", () => all.#isAgreed());
    return all;
  }

  get address(): RedisSettings {
    return settingsFor({ host: HOST, port: this.#home.port }, { timeoutMs: STEP_MS, replicasMin: 1 });
  }

  get server(): StoreServer {
    return this.#master.server;
  }

  get upstream(): Upstream {
    return { host: HOST, port: this.#master.redis.port };
  }

  addressAt(port: number): RedisSettings {
    this.#addresses += 1;
    const direct = { ...this.address, topology: { kind: "standalone", endpoint: { host: HOST, port } } } as const;
    if (this.#addresses % 2 === 1) return direct;
    const nodes = this.#sentinels.map((sentinel) => ({ host: HOST, port: sentinel.port }));
    return { ...direct, topology: { kind: "sentinel", master: MASTER, nodes, user: null, passwordFile: null } };
  }

  apart(address: ServerSettings): ServerSettings {
    return address.type === "redis" ? { ...address, prefix: "apart" } : address;
  }

  async failOver(lagMs: number): Promise<void> {
    await this.#rebuilding;
    const former = this.#master;
    await this.#waitBeforeFailOver(DOWN_AFTER_MS);
    former.link.harmReplicas();
    await sleep(lagMs);
    await former.server.kill();
    await until("the Sentinels name another master", async () => (await this.#named()) !== former);
    const next = await this.#named();
    if (next === null) throw new Error("the Sentinels name a server that is none of ours");
    await until("the new master has a replica", () => hasReplicas(next, 1));
    await this.#waitBeforeFailOver(PATIENT_MS);
    this.#master = next;
    this.#home.moveTo(this.upstream);
    this.#rebuilding = this.#returnAsReplica(former);
    this.#rebuilding.catch(() => {});
  }

  /** Redis refuses to start on an append-only file that is damaged. */
  async problems(): Promise<readonly string[]> {
    await this.#rebuilding;
    return [];
  }

  endNow(): void {
    for (const { server } of this.#members) for (const pid of server.pids()) process.kill(pid, "SIGKILL");
    for (const { pid } of this.#sentinels) process.kill(pid, "SIGKILL");
  }

  async end(): Promise<void> {
    await this.#rebuilding.catch(() => {});
    for (const sentinel of this.#sentinels) await sentinel.dispose();
    for (const { redis, link } of this.#members) {
      await redis.dispose();
      await link.close();
    }
    await this.#home.close();
  }

  async #returnAsReplica(former: Member): Promise<void> {
    const master = this.#master;
    former.link.heal();
    await former.server.restart();
    await former.redis.command("REPLICAOF", HOST, String(master.link.port));
    await until("the former master follows", () => hasReplicas(master, 2));
    await until("the Sentinels agree", () => this.#isAgreed());
  }

  async #waitBeforeFailOver(ms: number): Promise<void> {
    for (const sentinel of this.#sentinels)
      await sentinel.command("SENTINEL", "SET", MASTER, "down-after-milliseconds", String(ms));
  }

  /** The server that the first Sentinel names. */
  async #named(): Promise<Member | null> {
    const [sentinel] = this.#sentinels;
    const answer = await sentinel?.command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER);
    const port = Array.isArray(answer) ? Number(answer[1]) : Number.NaN;
    return this.#members.find(({ link }) => link.port === port) ?? null;
  }

  async #isAgreed(): Promise<boolean> {
    const answers = await Promise.all(
      this.#sentinels.map((sentinel) => sentinel.command("SENTINEL", "CKQUORUM", MASTER).catch(String)),
    );
    if (!answers.every((answer) => String(answer).startsWith(`OK ${SENTINELS} usable`))) return false;
    const replicas = await Promise.all(
      this.#sentinels.map((sentinel) => sentinel.command("SENTINEL", "REPLICAS", MASTER)),
    );
    return replicas.every((list) => Array.isArray(list) && list.length === this.#members.length - 1);
  }
}

async function newMember(master: Member | null): Promise<Member> {
  // The link's port is part of the server's configuration, and the server's port is known only after its start.
  const port = await freePort();
  const config = {
    ...{ "replica-announce-ip": HOST, "replica-announce-port": String(port) },
    ...{ "min-replicas-to-write": "1", "repl-ping-replica-period": "1" },
    ...(master === null ? {} : { replicaof: `${HOST} ${master.link.port}` }),
  };
  const redis = await RedisProcess.start({ config });
  const link = await Link.open({ host: HOST, port: redis.port }, HOST, port);
  return { redis, server: harmable(redis), link };
}

function newSentinel(port: number): Promise<RedisProcess> {
  const lines = [
    `sentinel monitor ${MASTER} ${HOST} ${port} 2`,
    `sentinel down-after-milliseconds ${MASTER} ${PATIENT_MS}`,
    `sentinel failover-timeout ${MASTER} 6000`,
    `sentinel parallel-syncs ${MASTER} 2`,
  ];
  return RedisProcess.start({ isSentinel: true, lines });
}

async function hasReplicas({ redis }: Member, count: number): Promise<boolean> {
  const role = await redis.command("ROLE").catch(() => null);
  return Array.isArray(role) && role[0] === "master" && Array.isArray(role[2]) && role[2].length >= count;
}

async function until(what: string, isTrue: () => Promise<boolean>): Promise<void> {
  const end = performance.now() + SETTLED_MAX_MS;
  while (!(await isTrue())) {
    if (performance.now() > end) throw new Error(`not in ${SETTLED_MAX_MS} ms: ${what}`);
    await sleep(50);
  }
}
