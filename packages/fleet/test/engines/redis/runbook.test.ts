/** The steps of the runbook in `docs/stores/redis.md` that no other test of this folder takes. */

import { cpSync, mkdirSync, rmdirSync, rmSync } from "node:fs";
import { isSandlotError } from "@sandlot/contract";
import { describe, expect, it } from "vitest";
import type { RowStage } from "../../../src/testing/row-server-suite/stage.ts";
import { reasonToSkip } from "./redis-process.ts";
import { openServer, stageOn, startRedis } from "./stage.ts";

const untilConnected = (stage: RowStage) =>
  stage.until("it is connected again", () =>
    stage.row("record/probe").then(
      () => true,
      () => false,
    ),
  );

async function problemOf(call: Promise<unknown>): Promise<string> {
  const error = await call.catch((reason: unknown) => reason);
  if (!isSandlotError(error, "store_unavailable")) throw new Error("the call was not refused", { cause: error });
  return error.details.problem;
}

describe.skipIf(reasonToSkip() !== null)("the runbook of redis", () => {
  it("too few replicas: nothing is written until REPLICAOF brings one", async () => {
    const config = { "min-replicas-to-write": "1", "min-replicas-max-lag": "2" };
    const master = await startRedis({ config });
    const replica = await startRedis({ config: { replicaof: `127.0.0.1 ${master.port}` } });
    const other = await startRedis();
    const online = async () => String(await master.command("INFO", "replication"));
    await expect.poll(online).toMatch(/min_slaves_good_slaves:1/);
    const stage = await stageOn(await openServer(master.settings()));
    await stage.write({ "record/a": "A" });
    const refused = await stage.commitOf({ "record/refused": "A" });
    await replica.kill();
    await expect.poll(online).toMatch(/min_slaves_good_slaves:0/);
    // The server takes every script for a write.
    for (const call of [stage.commit(refused), stage.row("record/a")])
      expect(await problemOf(call)).toContain("has too few replicas that keep up (min-replicas-to-write)");
    await other.command("REPLICAOF", "127.0.0.1", String(master.port));
    await expect.poll(online).toMatch(/min_slaves_good_slaves:1/);
    expect((await stage.row("record/refused")).seq).toBe(0);
    await stage.write({ "record/a": "B" });
  });

  it("a disk that cannot be written: the server's text, nothing is written, and it goes on afterwards", async () => {
    const redis = await startRedis({ config: { save: "3600 1" } });
    const stage = await stageOn(await openServer(redis.settings()));
    await stage.write({ "record/a": "A" });
    const refused = await stage.commitOf({ "record/refused": "A" });
    const saved = async () => String(await redis.command("INFO", "persistence"));
    // A directory in the place of its snapshot fails the background save, as a full disk does.
    mkdirSync(redis.file("data/dump.rdb"));
    await redis.command("BGSAVE");
    await expect.poll(saved).toMatch(/rdb_last_bgsave_status:err/);
    for (const call of [stage.commit(refused), stage.row("record/a")])
      expect(await problemOf(call)).toContain("cannot save to its disk: MISCONF");
    rmdirSync(redis.file("data/dump.rdb"));
    await redis.command("BGSAVE");
    await expect.poll(saved).toMatch(/rdb_last_bgsave_status:ok/);
    expect(await stage.bodies(["record/a", "record/refused"])).toEqual(["A", null]);
    await stage.write({ "record/a": "B" });
  });

  it("a copy of the append-only files is put back: the loss is noticed, and homes and entries are there", async () => {
    const redis = await startRedis();
    const stage = await stageOn(await openServer(redis.settings()));
    await stage.write({ "record/a": "A", "home/t": "here", "entry/keys/k": '"hash"' });
    await redis.command("CONFIG", "SET", "auto-aof-rewrite-percentage", "0");
    await expect
      .poll(async () => String(await redis.command("INFO", "persistence")))
      .toMatch(/aof_rewrite_in_progress:0/);
    const [folder, copy] = [redis.file("data/appendonlydir"), redis.file("backup")];
    cpSync(folder, copy, { recursive: true });
    await redis.command("CONFIG", "SET", "auto-aof-rewrite-percentage", "100");
    const later = await stage.commitOf({ "record/b": "B" });
    await stage.commit(later);

    await redis.kill();
    rmSync(folder, { recursive: true });
    cpSync(copy, folder, { recursive: true });
    await redis.start();
    await untilConnected(stage);
    expect((await stage.commit(await stage.commitOf({ "record/c": "C" }, { seen: [later.id] }))).kind).toBe("rewound");

    // As an operator does when no gateway ran meanwhile.
    const before = stage.epoch;
    await redis.command("DEL", "{sandlot}:rows", "{sandlot}:index");
    const { epoch, rows } = await stage.server.read(["record/a", "home/t", "entry/keys/k"], stage.patience());
    expect(epoch).not.toBe(before);
    expect(rows.map(({ body }) => body)).toEqual([null, "here", '"hash"']);
  });
});
