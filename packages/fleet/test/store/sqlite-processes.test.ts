/** The SQLite store among real processes: stopped, killed, and all at once. */

import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { type InstanceId, isSandlotError } from "@sandlot/contract";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { openSqliteStore, type SqliteStore } from "../../src/store/sqlite/sqlite-store.ts";
import { nextGeneration } from "../../src/testing/store-suite/stage.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import { type Child, startChild } from "./children.ts";
import { temporaryDirectory } from "./stores.ts";

const world = systemWorld();
let home: ReturnType<typeof temporaryDirectory>;
let path: string;
let children: Child[];
let stores: SqliteStore[];

beforeEach(() => {
  home = temporaryDirectory();
  path = join(home.path, "store.db");
  children = [];
  stores = [];
});

afterEach(async () => {
  for (const child of children) child.process.kill("SIGKILL");
  await Promise.all(children.map((child) => child.ended));
  await Promise.all(stores.map((store) => store.close()));
  home.remove();
});

function child(command: string, argument = ""): Child {
  const started = startChild(command, path, { argument });
  children.push(started);
  return started;
}

async function open(operationTimeoutMs?: number): Promise<SqliteStore> {
  const store = await openSqliteStore({
    path,
    world,
    ...(operationTimeoutMs === undefined ? {} : { operationTimeoutMs }),
  });
  stores.push(store);
  return store;
}

describe("a peer that was stopped inside a transaction", () => {
  it("does not freeze us, costs store_unavailable at the deadline, and is waited for when it goes on", async () => {
    const hurried = await open(400);
    const patient = await open(20_000);
    const stalled = child("stall");
    await stalled.hasSaid(1);

    const delay = monitorEventLoopDelay({ resolution: 2 });
    delay.enable();
    const began = performance.now();
    const writes = await Promise.allSettled(Array.from({ length: 40 }, () => hurried.leave("none" as InstanceId)));
    const tookMs = performance.now() - began;
    delay.disable();
    for (const write of writes) {
      expect(write.status === "rejected" && isSandlotError(write.reason, "store_unavailable")).toBe(true);
    }
    expect(tookMs).toBeGreaterThan(390);
    expect(tookMs).toBeLessThan(10_000);
    // Forty writers that each try on their own would block for forty busy timeouts in a row.
    expect(delay.max / 1e6).toBeLessThan(2_000);
    expect(delay.mean / 1e6).toBeLessThan(200);
    // Reading does not need the lock.
    expect((await hurried.meta()).epoch).toBe((await patient.meta()).epoch);

    const waiting = Promise.all([nextGeneration(patient), nextGeneration(patient)]);
    stalled.process.kill("SIGCONT");
    await stalled.ended;
    const [one, two] = await waiting;
    expect(two).not.toBe(one);
    expect(await nextGeneration(hurried)).toBeGreaterThan(Math.max(one, two));
  });

  it("is waited for by who opens, too", async () => {
    await (await open()).close();
    const stalled = child("stall");
    await stalled.hasSaid(1);
    await expect(open(150)).rejects.toMatchObject({ code: "store_unavailable" });
    const opening = open(20_000);
    stalled.process.kill("SIGCONT");
    expect((await (await opening).meta()).recovering).toBe(true);
  });

  it("closes at once all the same", async () => {
    const store = await open(10_000);
    const stalled = child("stall");
    await stalled.hasSaid(1);
    const write = store.leave("none" as InstanceId);
    const began = performance.now();
    await store.close();
    await expect(write).rejects.toMatchObject({ code: "store_unavailable" });
    expect(performance.now() - began).toBeLessThan(8_000);
  });
});

describe("kill -9", () => {
  it("at any moment loses nothing that was acknowledged", async () => {
    const store = await open();
    const acknowledged: unknown[] = [];
    for (let round = 0; round < 6; round += 1) {
      const writer = child("write");
      await writer.hasSaid(1 + Math.floor(Math.random() * 200));
      writer.process.kill("SIGKILL");
      await writer.ended;
      acknowledged.push(...writer.said);
    }
    const kept = new Set<unknown>((await store.list()).map(({ sandboxId }) => sandboxId));
    expect(acknowledged.filter((sandboxId) => !kept.has(sandboxId))).toEqual([]);
    expect(kept.size).toBeLessThanOrEqual(acknowledged.length + 6);
    // A new process finds the file in order; opening checks all of it.
    const opener = child("open");
    await opener.ended;
    expect(opener.said).toMatchObject([{ epoch: (await store.meta()).epoch }]);
  });
});

describe("several processes at once", () => {
  it("never exceed the limit", async () => {
    const hammers = [child("hammer", "3"), child("hammer", "3"), child("hammer", "3")];
    await Promise.all(hammers.map((hammer) => hammer.ended));
    for (const { said } of hammers) {
      const [{ reserved, most }] = said as [{ reserved: number; most: number }];
      expect(reserved).toBeGreaterThan(0);
      expect(most).toBeLessThanOrEqual(3);
    }
    expect(await (await open()).list()).toEqual([]);
  });

  it("make one store of a fresh path, with one epoch and nothing half-made beside it", async () => {
    const openers = Array.from({ length: 4 }, () => child("open"));
    await Promise.all(openers.map((opener) => opener.ended));
    const epochs = new Set(openers.map(({ said }) => (said[0] as { epoch: string }).epoch));
    expect(epochs.size).toBe(1);
    expect(epochs.has((await (await open()).meta()).epoch)).toBe(true);
    await Promise.all(stores.map((store) => store.close()));
    expect(readdirSync(home.path).sort()).toEqual(["store.db", "store.db.epoch"]);
  });

  it.skipIf(process.platform !== "linux")("do not loosen this process's locks by opening a second time", async () => {
    await open();
    const { ino } = statSync(path);
    const isOurs = (lock: string) => lock.includes(` ${process.pid} `) && lock.includes(`:${ino} `);
    const isLocked = () => readFileSync("/proc/locks", "utf8").split("\n").some(isOurs);
    expect(isLocked()).toBe(true);
    const second = await open();
    expect(isLocked()).toBe(true);
    await second.close();
    expect(isLocked()).toBe(true);
  });

  it("in one process too", async () => {
    const opened = await Promise.all(Array.from({ length: 8 }, () => open()));
    const epochs = await Promise.all(opened.map(async (store) => (await store.meta()).epoch));
    expect(new Set(epochs).size).toBe(1);
  });
});
