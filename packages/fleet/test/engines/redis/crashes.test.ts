/** Servers that are killed, paused, full or flushed while the store uses them. */

import { readFileSync, statSync, truncateSync } from "node:fs";
import { isSandlotError } from "@sandlot/contract";
import { describe, expect, it } from "vitest";
import type { CommitAnswer, RowServer } from "../../../src/store/rows/row-server.ts";
import type { RowStage } from "../../../src/testing/row-server-suite/stage.ts";
import { reasonToSkip } from "./redis-process.ts";
import { openServer, stageOn, startRedis } from "./stage.ts";
import { TcpProxy } from "./tcp-proxy.ts";

const untilConnected = (stage: RowStage, server: RowServer = stage.server) =>
  stage.until("it is connected again", () =>
    stage.row("record/probe", server).then(
      () => true,
      () => false,
    ),
  );

async function rejection(call: Promise<unknown>): Promise<unknown> {
  return call.then(
    (answer) => expect.fail(`it was answered: ${JSON.stringify(answer)}`),
    (error: unknown) => error,
  );
}

describe.skipIf(reasonToSkip() !== null)("redis that crashes", () => {
  it("has every acknowledged commit after kill -9, with appendfsync always", async () => {
    const redis = await startRedis();
    const server = await openServer(redis.settings());
    expect(server.promise).toBe("linearizable");
    const stage = await stageOn(server);
    const acknowledged = new Map<string, number>();
    const commits = new Map<string, string>();
    for (let round = 0; round < 3; round += 1) {
      let isDown = false;
      const write = async (n: number) => {
        for (let i = 0; !isDown; i += 1) {
          const key = `record/${round}-${n}-${i}`;
          const commit = await stage.commitOf({ [key]: "x" }).catch(() => null);
          const answer = commit === null ? null : await stage.commit(commit).catch(() => null);
          if (commit === null || answer?.kind !== "committed") {
            await stage.sleep(5);
            continue;
          }
          acknowledged.set(key, answer.seq);
          commits.set(key, commit.id);
        }
      };
      const writing = [0, 1, 2, 3].map(write);
      const before = acknowledged.size;
      await stage.until("ten commits of this round", () => acknowledged.size >= before + 10);
      await redis.kill();
      isDown = true;
      await Promise.all(writing);
      await redis.start();
      await untilConnected(stage);
      const keys = [...acknowledged.keys()];
      const rows = await stage.rows(keys);
      expect(rows.map(({ key, seq }) => [key, seq])).toEqual([...acknowledged]);
      const seen = [...commits.values()].slice(-50);
      stage.seqOf(await stage.commit(await stage.commitOf({ [`record/after-${round}`]: "x" }, { seen })));
    }
    expect(acknowledged.size).toBeGreaterThan(20);
  });

  it("notices a rewind when its disk lost the last second, as appendfsync everysec may", async () => {
    const redis = await startRedis({ config: { appendfsync: "everysec" } });
    const server = await openServer(redis.settings());
    expect(server.promise).toBe("may-rewind");
    const stage = await stageOn(server);
    const kept = await stage.commitOf({ "record/kept": "x" });
    await stage.commit(kept);
    const [file = ""] = redis.appendOnlyFiles();
    // The server writes later while it flushes.
    const isWritten = (id: string) => stage.until("it is in the file", () => readFileSync(file).includes(id));
    await isWritten(kept.id);
    const { size } = statSync(file);
    const lost = await stage.commitOf({ "record/lost": "x" });
    stage.seqOf(await stage.commit(lost));
    const mirror = stage.newMirror();
    await mirror.follow();
    expect(mirror.rows.has("record/lost")).toBe(true);
    await isWritten(lost.id);
    // Power fails before the file was flushed: only its beginning is on the disk.
    await redis.kill();
    truncateSync(file, size);
    await redis.start();
    await untilConnected(stage);
    expect(await stage.bodies(["record/kept", "record/lost"])).toEqual(["x", null]);
    const answer = await stage.commit(await stage.commitOf({ "record/new": "x" }, { seen: [lost.id] }));
    expect(answer.kind).toBe("rewound");
    expect((await stage.row("record/new")).seq).toBe(0);
    // A client that knows nothing of the loss writes. Its number is none that was given before.
    const other = stage.seqOf(await stage.commit(await stage.commitOf({ "record/other": "x" }, { seen: [kept.id] })));
    expect(other).toBeGreaterThan(Math.max(...(await stage.rows(["record/kept"])).map(({ seq }) => seq)));
    // The mirror of a client that has only looked does not keep the lost row.
    await mirror.follow();
    expect([...mirror.rows.keys()].sort()).toEqual(["record/kept", "record/other"]);
  });

  it("gives no number again after a rewind, also with a clock that was set back", async () => {
    const redis = await startRedis({ config: { appendfsync: "everysec" } });
    const stage = await stageOn(await openServer(redis.settings()));
    redis.skipTime(3_600_000);
    const ahead = await stage.write({ "record/a": "ahead" });
    redis.skipTime(-7_200_000);
    const behind = await stage.write({ "record/a": "behind" });
    expect(behind).toBeGreaterThan(ahead);
    const commit = await stage.commitOf({ "record/b": "x" });
    const seq = stage.seqOf(await stage.commit(commit));
    expect(seq).toBeGreaterThan(behind);
    expect(stage.seqOf(await stage.commit(commit))).toBe(seq);
  });
});

describe.skipIf(reasonToSkip() !== null)("redis that hangs", () => {
  it("ends every call by its deadline while it is paused, and applies nothing late", async () => {
    const redis = await startRedis();
    const server = await openServer(redis.settings({ timeoutMs: 1_000 }));
    const stage = await stageOn(server);
    const now = await stage.now();
    const commits = await Promise.all(
      Array.from({ length: 20 }, (_, n) => stage.commitOf({ [`record/${n}`]: "late" }, { notAfter: now + 500 })),
    );
    redis.signal("SIGSTOP");
    try {
      const calls = [
        ...commits.map((commit) => (signal: AbortSignal) => server.commit(commit, signal)),
        (signal: AbortSignal) => server.read(["record/a"], signal),
        (signal: AbortSignal) => server.scan(null, 10, signal),
        (signal: AbortSignal) => server.beginEpoch(stage.newEpoch(), stage.newEpoch(), signal),
      ];
      await Promise.all(calls.map((call) => stage.failureOf(() => call(AbortSignal.timeout(400)))));
      // Without a signal of the caller the connection gives the server up.
      await stage.failureOf(() => server.read(["record/a"], new AbortController().signal));
      await stage.sleep(600);
    } finally {
      redis.signal("SIGCONT");
    }
    await untilConnected(stage);
    // All of them lay in the socket, and were read by the server after `notAfter`.
    expect(await stage.bodies(commits.map((_, n) => `record/${n}`))).toEqual(commits.map(() => null));
  });

  it("finds a connection that is open and dead, and goes on", async () => {
    const redis = await startRedis();
    const proxy = await TcpProxy.to(redis.port);
    const endpoint = proxy.endpoint;
    const settings = redis.settings({ timeoutMs: 1_500, topology: { kind: "standalone", endpoint } });
    const server = await openServer(settings);
    const stage = await stageOn(server);
    proxy.freeze();
    const error = await rejection(server.read(["record/a"], new AbortController().signal));
    expect(isSandlotError(error, "store_unavailable")).toBe(true);
    // Nothing waits for the next connection.
    await stage.failureOf(() => server.read(["record/a"], new AbortController().signal));
    proxy.restore();
    proxy.cut();
    await untilConnected(stage);
    await proxy.close();
  });

  it("bounds the calls that are under way, and gives the server up although more calls come", async () => {
    const redis = await startRedis();
    const server = await openServer(redis.settings({ timeoutMs: 1_500 }));
    const stage = await stageOn(server);
    redis.signal("SIGSTOP");
    try {
      const read = () => rejection(server.read(["record/a"], stage.patience()));
      let isOver = false;
      const calls = Promise.all(Array.from({ length: 5_000 }, read)).finally(() => {
        isOver = true;
      });
      const refused = new Set<string>();
      while (!isOver) {
        refused.add(String(await Promise.race([read(), calls])));
        await stage.sleep(20);
      }
      const refusals = (await calls).filter((error) => /queue is full/.test(String(error)));
      expect(refusals.length).toBeGreaterThanOrEqual(5_000 - 4_096);
      expect([...refused].some((error) => /queue is full/.test(error))).toBe(true);
    } finally {
      redis.signal("SIGCONT");
    }
  });

  it('hears "*" when the server killed the subscription', async () => {
    const redis = await startRedis();
    const server = await openServer(redis.settings());
    const stage = await stageOn(server);
    const heard: string[] = [];
    server.subscribe((topic) => heard.push(topic));
    await stage.until("the subscription works", () => heard.includes("*"));
    heard.length = 0;
    expect(await redis.command("CLIENT", "KILL", "TYPE", "pubsub")).toBe(1);
    await stage.until('it hears "*"', () => heard.includes("*"));
    await stage.write({ "record/a": "A" });
    await stage.until("it hears of commits again", async () => {
      const commit = await stage.commitOf({ [`record/${stage.newId()}`]: "A" }, { topics: ["room"] });
      await stage.commit(commit);
      return heard.includes("room");
    });
  });
});

describe.skipIf(reasonToSkip() !== null)("redis that forgets", () => {
  it("loads its scripts again after SCRIPT FLUSH", async () => {
    const redis = await startRedis();
    const stage = await stageOn(await openServer(redis.settings()));
    const commit = await stage.commitOf({ "record/a": "A" });
    await redis.command("SCRIPT", "FLUSH");
    const seq = stage.seqOf(await stage.commit(commit));
    await redis.command("SCRIPT", "FLUSH");
    expect(await stage.row("record/a")).toEqual({ key: "record/a", seq, body: "A" });
    await redis.command("SCRIPT", "FLUSH");
    expect((await stage.server.scan(null, 10, stage.patience()))?.rows.length).toBe(1);
  });

  it("begins a new epoch after FLUSHALL, whichever call comes first", async () => {
    const redis = await startRedis();
    const server = await openServer(redis.settings());
    const stage = await stageOn(server);
    const flushed = new Set<string>([stage.epoch]);
    const calls: ((signal: AbortSignal) => Promise<string | undefined>)[] = [
      async (signal) => (await server.read(["record/a"], signal)).epoch,
      async (signal) => (await server.scan(null, 10, signal))?.epoch,
      (signal) => server.beginEpoch(stage.newEpoch(), stage.newEpoch(), signal),
      async (signal) => {
        const commit = { ...(await stage.commitOf({ "record/b": "B" })), epoch: stage.newEpoch() };
        await redis.command("FLUSHALL");
        const answer: CommitAnswer = await server.commit(commit, signal);
        return answer.kind === "new-epoch" ? answer.epoch : answer.kind;
      },
    ];
    for (const call of calls) {
      await stage.write({ "record/a": "A" });
      const { cursor = "" } = (await server.scan(null, 10, stage.patience())) ?? {};
      await redis.command("FLUSHALL");
      const epoch = await call(stage.patience());
      expect(epoch).toMatch(/^[0-9a-f]{12}-[0-9a-f]{16}$/);
      expect(flushed.has(epoch ?? "")).toBe(false);
      flushed.add(epoch ?? "");
      expect(await stage.commit(await stage.commitOf({ "record/a": "A" }))).toMatchObject({ kind: "new-epoch", epoch });
      expect(await server.scan(cursor, 10, stage.patience())).toBe(null);
      stage.epoch = (await server.read([], stage.patience())).epoch;
      expect(stage.epoch).toBe(epoch);
    }
  });

  it("refuses commits when it is full, and takes them again after old entries are gone", async () => {
    const redis = await startRedis({ config: { maxmemory: "8mb" } });
    const stage = await stageOn(await openServer(redis.settings()));
    const body = "x".repeat(400_000);
    let written = 0;
    let error: unknown;
    for (; error === undefined; written += 1) {
      const commit = await stage.commitOf({ [`record/${written}`]: body });
      error = await stage.commit(commit).then(
        () => undefined,
        (reason: unknown) => reason,
      );
    }
    expect(isSandlotError(error, "store_unavailable")).toBe(true);
    expect(String(error)).toContain("raise maxmemory (redis-cli CONFIG SET maxmemory <bytes>)");
    // Nothing of the refused commit is there, and reading goes on.
    expect((await stage.row(`record/${written - 1}`)).seq).toBe(0);
    expect((await stage.row("record/0")).body).toBe(body);
    const mirror = stage.newMirror();
    await mirror.follow(3);
    expect(mirror.rows.size).toBe(written - 1);
    // Old ids are removed although no commit runs.
    const ids = await redis.command("ZCOUNT", "{sandlot}:index", "-inf", "(0");
    redis.skipTime(700_000);
    await stage.commit(await stage.commitOf({ "record/more": body })).catch(() => undefined);
    expect(Number(await redis.command("ZCOUNT", "{sandlot}:index", "-inf", "(0"))).toBeLessThan(Number(ids) / 2);
    await redis.command("CONFIG", "SET", "maxmemory", "64mb");
    await stage.write({ "record/more": body });
  });

  it("removes old ids and markers now and then, while commits go on", async () => {
    const redis = await startRedis({ config: { appendfsync: "everysec" } });
    const stage = await stageOn(await openServer(redis.settings()));
    for (let n = 0; n < 60; n += 1) await stage.write({ [`record/${n}`]: "x", [`home/${n}`]: "x" });
    for (let n = 0; n < 60; n += 1) await stage.write({ [`record/${n}`]: null, [`home/${n}`]: null });
    const sizes = () =>
      Promise.all(
        ["rows", "index", "kept-rows", "kept-index"].map(async (name) =>
          Number(await redis.command(name.endsWith("rows") ? "HLEN" : "ZCARD", `{sandlot}:${name}`)),
        ),
      );
    // Facts of the store and 120 ids; an epoch, 120 ids, 60 rows and their markers.
    const [rows = 0, ...indexes] = await sizes();
    expect(rows).toBeGreaterThan(120);
    expect(indexes).toEqual([241, 0, 120]);
    redis.skipTime(610_000);
    for (let n = 0; n < 3; n += 1) {
      await stage.write({ "record/again": String(n) });
      await stage.sleep(60);
    }
    // One row and three ids are left.
    expect(await sizes()).toEqual([rows - 120 + 4, 4, 0, 0]);
  });
});

describe.skipIf(reasonToSkip() !== null)("two fleets on one redis", () => {
  it("see nothing of each other", async () => {
    const redis = await startRedis();
    const one = await stageOn(await openServer(redis.settings({ prefix: "one" })));
    const other = await stageOn(await openServer(redis.settings({ prefix: "other" })));
    expect(one.epoch).not.toBe(other.epoch);
    const heard: string[] = [];
    other.server.subscribe((topic) => heard.push(topic));
    await other.until("the subscription works", () => heard.includes("*"));
    heard.length = 0;
    await one.commit(await one.commitOf({ "record/a": "A", "home/a": "H" }, { topics: ["room"] }));
    expect(await other.bodies(["record/a", "home/a"])).toEqual([null, null]);
    const mirror = other.newMirror();
    await mirror.follow();
    expect(mirror.rows.size).toBe(0);
    await other.server.beginEpoch(other.epoch, other.newEpoch(), other.patience());
    expect(await one.bodies(["record/a", "home/a"])).toEqual(["A", "H"]);
    await one.sleep(50);
    expect(heard).toEqual([]);
  });
});
