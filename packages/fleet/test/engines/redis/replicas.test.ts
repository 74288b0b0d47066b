/** Replicas, Sentinels and clusters: durable commits wait, and a failover that lost commits is noticed. */

import { isSandlotError } from "@sandlot/contract";
import { describe, expect, it } from "vitest";
import { SENTINEL_PASSWORD_VARIABLE } from "../../../src/store/redis/secrets.ts";
import type { Endpoint, RedisSettings } from "../../../src/store/redis/settings.ts";
import { RowStore } from "../../../src/store/rows/row-store.ts";
import type { RowStage } from "../../../src/testing/row-server-suite/stage.ts";
import { systemWorld } from "../../../src/world/system-world.ts";
import { type RedisProcess, reasonToSkip } from "./redis-process.ts";
import { disposeLater, openServer, stageOn, startRedis } from "./stage.ts";
import { TcpProxy } from "./tcp-proxy.ts";

const HOST = "127.0.0.1";
/** The test stops replicas for longer than a master usually trusts a silent one. */
const PATIENT = { "min-replicas-to-write": "1", "min-replicas-max-lag": "60", "repl-timeout": "60" };

async function startPair(): Promise<{ master: RedisProcess; replica: RedisProcess }> {
  const master = await startRedis({ config: PATIENT });
  const replica = await startRedis({ config: { ...PATIENT, replicaof: `${HOST} ${master.port}` } });
  await untilLinked(master);
  return { master, replica };
}

/** Linked, and counted for `min-replicas-to-write`. */
async function untilLinked(master: RedisProcess): Promise<void> {
  const info = async () => String(await master.command("INFO", "replication"));
  await expect.poll(info, { interval: 50 }).toMatch(/state=online/);
  await master.command("CONFIG", "SET", "min-replicas-to-write", "1");
  await expect.poll(info, { interval: 50 }).toMatch(/min_slaves_good_slaves:1/);
}

async function reconnected(stage: RowStage): Promise<void> {
  await stage.until("it is connected to a master again", () =>
    stage.row("record/probe").then(
      () => true,
      () => false,
    ),
  );
}

describe.skipIf(reasonToSkip() !== null)("redis with a replica", () => {
  it("answers a durable commit when the replica has it", async () => {
    const { master, replica } = await startPair();
    const server = await openServer(master.settings({ replicasMin: 1 }));
    expect(server.promise).toBe("may-rewind");
    const stage = await stageOn(server);
    const commit = await stage.commitOf({ "record/a": "A" }, { isDurable: true });
    const seq = stage.seqOf(await stage.commit(commit));
    expect(Number(await replica.command("HGET", "{sandlot}:rows", `#${commit.id}`))).toBe(seq);
  });

  it("shares one wait between durable commits, and answers each", async () => {
    const { master, replica } = await startPair();
    const stage = await stageOn(await openServer(master.settings({ replicasMin: 1 })));
    await master.command("CONFIG", "RESETSTAT");
    const commits = await Promise.all(
      Array.from({ length: 40 }, (_, n) => stage.commitOf({ [`record/${n % 30}`]: `${n}` }, { isDurable: true })),
    );
    const answers = await Promise.all(commits.map((commit) => stage.commit(commit)));
    expect(answers.filter(({ kind }) => kind === "committed").length).toBe(30);
    expect(answers.filter(({ kind }) => kind === "conflict").length).toBe(10);
    const waits = /cmdstat_wait:calls=(\d+)/.exec(String(await master.command("INFO", "commandstats")))?.[1];
    expect(Number(waits)).toBeLessThanOrEqual(5);
    expect(await replica.command("ZCOUNT", "{sandlot}:index", "(0", "+inf")).toBe(30);
  });

  it("does not answer a durable commit that no replica confirms; its retry is answered as the first", async () => {
    const { master, replica } = await startPair();
    const stage = await stageOn(await openServer(master.settings({ replicasMin: 1, timeoutMs: 1_000 })));
    const commit = await stage.commitOf({ "record/a": "A" }, { isDurable: true });
    replica.signal("SIGSTOP");
    for (let attempt = 0; attempt < 2; attempt += 1) {
      const error = await stage.commit(commit).catch((reason: unknown) => reason);
      expect(isSandlotError(error, "store_unavailable")).toBe(true);
      expect(String(error)).toContain("0 of 1 replicas confirmed it in 250 ms");
    }
    // The master has it, and a commit that nothing outside depends on does not wait.
    const { seq } = await stage.row("record/a");
    expect(seq).toBeGreaterThan(0);
    stage.seqOf(await stage.commit(await stage.commitOf({ "record/b": "B" })));
    replica.signal("SIGCONT");
    await stage.until("the replica has caught up", async () => {
      const answer = await stage.commit(commit).catch(() => null);
      if (answer !== null) expect(stage.seqOf(answer)).toBe(seq);
      return answer !== null;
    });
    expect(Number(await replica.command("HGET", "{sandlot}:rows", `#${commit.id}`))).toBe(seq);
  });

  it("waits for replicas for less than a try of the store, so a step says why it failed", async () => {
    const { master, replica } = await startPair();
    const server = await openServer(master.settings({ replicasMin: 1, timeoutMs: 2_000 }));
    const store = new RowStore({ server, world: systemWorld(), timeoutMs: 2_000 });
    await store.entries.put("keys/first", "body", null);
    replica.signal("SIGSTOP");
    const error = await store.entries.put("keys/second", "body", null).catch((reason: unknown) => reason);
    expect(isSandlotError(error, "store_unavailable")).toBe(true);
    expect(String(error)).toContain("0 of 1 replicas confirmed it in 500 ms");
    replica.signal("SIGCONT");
  });

  it("loads its scripts again on the connection of durable commits, and waits for that commit", async () => {
    const { master, replica } = await startPair();
    const stage = await stageOn(await openServer(master.settings({ replicasMin: 1 })));
    const commit = await stage.commitOf({ "record/a": "A" }, { isDurable: true });
    await master.command("SCRIPT", "FLUSH");
    const seq = stage.seqOf(await stage.commit(commit));
    expect(Number(await replica.command("HGET", "{sandlot}:rows", `#${commit.id}`))).toBe(seq);
  });

  it("reads from no replica: a master that became one is left", async () => {
    const { master, replica } = await startPair();
    const stage = await stageOn(await openServer(master.settings({ replicasMin: 1 })));
    await stage.write({ "record/a": "A" });
    await replica.command("REPLICAOF", "NO", "ONE");
    await master.command("REPLICAOF", HOST, String(replica.port));
    const calls = [
      () => stage.server.read(["record/a"], stage.patience()),
      () => stage.server.scan(null, 10, stage.patience()),
      async () => stage.commit({ ...(await stage.commitOf({})), writes: new Map() }),
    ];
    for (const call of calls) {
      const error = await call().catch((reason: unknown) => reason);
      expect(isSandlotError(error, "store_unavailable")).toBe(true);
    }
    await stage.until("the error says why", async () => {
      const error = await stage.row("record/a").catch((reason: unknown) => reason);
      return String(error).includes("makes it a replica of");
    });
  });
});

describe.skipIf(reasonToSkip() !== null)("redis with Sentinels", () => {
  async function startSentinels(port: number): Promise<readonly Endpoint[]> {
    const lines = [
      `sentinel monitor mymaster ${HOST} ${port} 2`,
      "sentinel down-after-milliseconds mymaster 500",
      "sentinel failover-timeout mymaster 5000",
      "sentinel parallel-syncs mymaster 1",
    ];
    const nodes = await Promise.all([0, 1, 2].map(() => startRedis({ isSentinel: true, lines })));
    for (const node of nodes) {
      const known = async () => String(await node.command("SENTINEL", "CKQUORUM", "mymaster"));
      await expect.poll(() => known().catch(String), { interval: 100 }).toContain("OK 3 usable Sentinels");
      const replicas = async () => (await node.command("SENTINEL", "REPLICAS", "mymaster")) as unknown[];
      await expect.poll(async () => (await replicas()).length, { interval: 100 }).toBe(1);
    }
    return nodes.map(({ port }) => ({ host: HOST, port }));
  }

  const settingsOf = (master: RedisProcess, nodes: readonly Endpoint[], more: Partial<RedisSettings> = {}) =>
    master.settings({
      topology: { kind: "sentinel", master: "mymaster", nodes, user: null, passwordFile: null },
      ...more,
    });

  it("follows a failover, and notices an acknowledged commit that it lost", async () => {
    const master = await startRedis({ config: PATIENT });
    // Everything talks to the master through it, so that one link can fail.
    const proxy = await TcpProxy.to(master.port);
    disposeLater(() => proxy.close());
    const { port } = proxy.endpoint;
    const replica = await startRedis({ config: { ...PATIENT, replicaof: `${HOST} ${port}` } });
    await untilLinked(master);
    const nodes = await startSentinels(port);
    // A node that does not answer is passed over.
    const settings = settingsOf(master, [{ host: HOST, port: 1 }, ...nodes], { replicasMin: 1 });
    const stage = await stageOn(await openServer(settings));
    const heard: string[] = [];
    stage.server.subscribe((topic) => heard.push(topic));
    const kept = await stage.commitOf({ "record/kept": "x" }, { isDurable: true });
    stage.seqOf(await stage.commit(kept));
    const mirror = stage.newMirror();
    proxy.freezeReplicas();
    const lost = await stage.commitOf({ "record/lost": "x" });
    stage.seqOf(await stage.commit(lost));
    await mirror.follow();
    expect(mirror.rows.has("record/lost")).toBe(true);
    heard.length = 0;
    await master.kill();
    proxy.refuse();
    // The new master has no replica, and refuses all writes until it has one.
    await expect.poll(() => replica.command("ROLE").then((role) => String(role)), { interval: 100 }).toMatch(/^master/);
    const another = await startRedis({ config: { ...PATIENT, replicaof: `${HOST} ${replica.port}` } });
    await untilLinked(replica);
    await reconnected(stage);
    const answer = await stage.commit(await stage.commitOf({ "record/new": "x" }, { seen: [kept.id, lost.id] }));
    expect(answer.kind).toBe("rewound");
    await stage.until('it hears "*" from the new master', () => heard.includes("*"));
    // A mirror of a client that has only looked drops the lost row, although its cursor is newer than all rows.
    await mirror.follow();
    expect([...mirror.rows.keys()]).toEqual(["record/kept"]);
    const next = stage.newEpoch();
    expect(await stage.server.beginEpoch(stage.epoch, next, stage.patience())).toBe(next);
    stage.epoch = next;
    const after = await stage.commitOf({ "record/after": "x" }, { isDurable: true });
    stage.seqOf(await stage.commit(after));
    expect(await another.command("HGET", "{sandlot}:rows", ":record/after")).toBe("x");
  });

  it("has a password of its own for the Sentinels", async () => {
    const { master } = await startPair();
    const lines = [`sentinel monitor mymaster ${HOST} ${master.port} 1`, "requirepass of-the-sentinels"];
    const { port } = await startRedis({ isSentinel: true, lines });
    const settings = settingsOf(master, [{ host: HOST, port }], { replicasMin: 1 });
    const refused = await openServer(settings).catch((reason: unknown) => reason);
    expect(String(refused)).toContain(`no node named the master: 127.0.0.1:${port}: NOAUTH`);
    process.env[SENTINEL_PASSWORD_VARIABLE] = "of-the-sentinels";
    try {
      await (await stageOn(await openServer(settings))).write({ "record/a": "A" });
    } finally {
      delete process.env[SENTINEL_PASSWORD_VARIABLE];
    }
  });

  it("names the Sentinels that gave no answer, and the master that none knows", async () => {
    const { master } = await startPair();
    const nodes = await startSentinels(master.port);
    const unknown = settingsOf(master, nodes);
    const topology = { ...unknown.topology, master: "another" } as RedisSettings["topology"];
    const error = await openServer({ ...unknown, topology }).catch((reason: unknown) => reason);
    expect(String(error)).toContain("it knows no master another: check store.sentinel.master");
    const nowhere = settingsOf(master, [{ host: HOST, port: 1 }]);
    const refused = await openServer(nowhere).catch((reason: unknown) => reason);
    expect(isSandlotError(refused, "store_unavailable")).toBe(true);
    expect(String(refused)).toContain("no node named the master: 127.0.0.1:1");
  });
});

describe.skipIf(reasonToSkip() !== null)("redis in a cluster", () => {
  it("finds the node of its keys, and follows them to another", async () => {
    const nodes = await Promise.all([0, 1].map(() => startRedis({ config: { "cluster-enabled": "yes" } })));
    const [one, other] = nodes;
    if (one === undefined || other === undefined) throw new Error("two nodes");
    const ids = await Promise.all(nodes.map((node) => node.command("CLUSTER", "MYID").then(String)));
    const slot = Number(await one.command("CLUSTER", "KEYSLOT", "{sandlot}:rows"));
    await one.command("CLUSTER", "ADDSLOTSRANGE", "0", String(slot));
    await other.command("CLUSTER", "ADDSLOTSRANGE", String(slot + 1), "16383");
    await one.command("CLUSTER", "MEET", HOST, String(other.port));
    const ready = async (node: RedisProcess) => String(await node.command("CLUSTER", "INFO"));
    for (const node of nodes) await expect.poll(() => ready(node), { interval: 50 }).toContain("cluster_state:ok");
    const topology = { kind: "cluster", nodes: [{ host: HOST, port: other.port }] } as const;
    const stage = await stageOn(await openServer(one.settings({ topology })));
    const heard: string[] = [];
    stage.server.subscribe((topic) => heard.push(topic));
    await stage.until("the subscription works", () => heard.includes("*"));
    await stage.commit(await stage.commitOf({ "record/a": "A", "home/a": "H" }, { topics: ["room"] }));
    await stage.until("topics arrive", () => heard.includes("room"));
    expect(await one.command("HGET", "{sandlot}:rows", ":record/a")).toBe("A");

    // The slot moves to the other node, as in a rebalancing.
    const commit = await stage.commitOf({ "record/b": "B" });
    const [from = "", to = ""] = ids;
    await other.command("CLUSTER", "SETSLOT", String(slot), "IMPORTING", from);
    await one.command("CLUSTER", "SETSLOT", String(slot), "MIGRATING", to);
    const keys = (await one.command("CLUSTER", "GETKEYSINSLOT", String(slot), "100")) as string[];
    await one.command("MIGRATE", HOST, String(other.port), "", "0", "5000", "KEYS", ...keys);
    // The other node has the keys, but not yet the slot: nothing is written anywhere.
    const error = await stage.commit(commit).catch((reason: unknown) => reason);
    expect(isSandlotError(error, "store_unavailable")).toBe(true);
    for (const node of nodes) await node.command("CLUSTER", "SETSLOT", String(slot), "NODE", to);
    await reconnected(stage);
    expect(await stage.bodies(["record/a", "home/a"])).toEqual(["A", "H"]);
    stage.seqOf(await stage.commit(commit));
    expect(await other.command("HGET", "{sandlot}:rows", ":record/b")).toBe("B");
  });
});
