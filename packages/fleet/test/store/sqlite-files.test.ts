/** A file as a whole: created, deleted, replaced. */

import {
  copyFileSync,
  existsSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as delay } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { nextGeneration } from "../../src/testing/store-suite/stage.ts";
import {
  beat,
  corrupt,
  here,
  open,
  openWithRecord,
  reserve,
  THREAD,
  USER,
  unavailable,
  useTemporaryHome,
} from "./sqlite-fixture.ts";

useTemporaryHome();

describe("a fresh path", () => {
  it("gets a store of its own, readable by its owner only, in directories that are made", async () => {
    const deep = join(here.home, "a #? % b", "c", "store.db");
    const store = await open(deep);
    expect(await store.meta()).toMatchObject({ recovering: true });
    for (const name of ["", "-wal", "-shm", ".epoch"]) expect(statSync(deep + name).mode & 0o777).toBe(0o600);
    expect(statSync(join(here.home, "a #? % b")).mode & 0o777).toBe(0o700);
  });

  it("below /proc, where none can be made, is refused", { skip: !existsSync("/proc/self") }, async () => {
    await expect(open("/proc/none/deep/store.db")).rejects.toMatchObject(unavailable);
  });

  it("keeps what was written, and its epoch, when it is opened again", async () => {
    const { store, epoch } = await openWithRecord();
    const record = await store.find(USER, THREAD);
    await store.close();
    expect(readdirSync(here.home).sort()).toEqual(["store.db", "store.db.epoch"]);
    const again = await open();
    expect(await again.meta()).toEqual({ epoch, recovering: false });
    expect(await again.find(USER, THREAD)).toEqual(record);
  });

  it("is reached through a symbolic link as the file it leads to", async () => {
    const { epoch } = await openWithRecord();
    symlinkSync(here.path, join(here.home, "link.db"));
    expect((await (await open(join(here.home, "link.db"))).meta()).epoch).toBe(epoch);
    expect(existsSync(join(here.home, "link.db.epoch"))).toBe(false);
  });

  it("forgets files that a killed process was making", async () => {
    const draft = `${here.path}.new-0123456789abcdef`;
    writeFileSync(draft, "");
    writeFileSync(`${here.path}.new-fresh`, "");
    utimesSync(draft, 1, 1);
    await open();
    expect(existsSync(draft)).toBe(false);
    expect(existsSync(`${here.path}.new-fresh`)).toBe(true);
  });

  it("gives no generation twice, also when the last commits were lost", async () => {
    const { store } = await openWithRecord();
    await store.close();
    const lastMoment = Date.now() - 60_000;
    const db = new DatabaseSync(here.path);
    db.prepare("UPDATE meta SET generation = ?").run(lastMoment);
    db.close();
    expect(await nextGeneration(await open())).toBeGreaterThan(lastMoment + 50_000);
  });
});

describe("a deleted file", () => {
  it("is not made anew at the next start", async () => {
    await (await open()).close();
    rmSync(here.path);
    await expect(open()).rejects.toMatchObject({ ...corrupt, message: expect.stringContaining("deleted") });
    expect(readdirSync(here.home)).toEqual(["store.db.epoch"]);
    rmSync(`${here.path}.epoch`);
    expect((await (await open()).meta()).recovering).toBe(true);
  });

  it("is told by its WAL, when the marker was deleted with it", async () => {
    writeFileSync(`${here.path}-wal`, "left behind");
    await expect(open()).rejects.toMatchObject(corrupt);
  });

  it("while it is open, is unavailable at the next beat, and is not made anew", async () => {
    const { store, epoch } = await openWithRecord();
    renameSync(here.path, `${here.path}.away`);
    await expect(beat(store, 2)).rejects.toMatchObject({ ...unavailable, message: expect.stringContaining("deleted") });
    await expect(store.meta()).rejects.toMatchObject(unavailable);
    await expect(nextGeneration(store)).rejects.toMatchObject(unavailable);
    expect(existsSync(here.path)).toBe(false);
    // The same file is back: it is the known store.
    renameSync(`${here.path}.away`, here.path);
    expect(await beat(store, 3, epoch)).toMatchObject({ kind: "ok", epoch });
  });

  it("while it is open, is noticed by other steps soon", async () => {
    const { store } = await openWithRecord();
    rmSync(here.path);
    await delay(260);
    await expect(store.find(USER, THREAD)).rejects.toMatchObject(unavailable);
  });
});

describe("a replaced file", () => {
  it("while it is open: a backup of this store gets a new epoch and begins in recovery", async () => {
    const { store, epoch } = await openWithRecord();
    const peer = await open();
    await nextGeneration(store);
    new DatabaseSync(here.path).exec(`VACUUM INTO '${here.path}.backup'`);
    await reserve(store, "t2");
    const given = await nextGeneration(store);
    renameSync(`${here.path}.backup`, here.path);

    const answer = await beat(store, 2, epoch);
    const renewed = (await store.meta()).epoch;
    expect(answer).toEqual({ kind: "new-epoch", epoch: renewed });
    expect(renewed).not.toBe(epoch);
    expect(await store.meta()).toEqual({ epoch: renewed, recovering: true });
    expect(await store.list()).toEqual([]);
    expect(await nextGeneration(store)).toBeGreaterThan(given);
    // The peer opens the same file with the same epoch, and everything is still in order for both.
    expect(await beat(peer, 3, epoch)).toEqual({ kind: "new-epoch", epoch: renewed });
    await beat(peer, 4, renewed);
    expect(await store.sessions()).toMatchObject([{ instance: "a", beat: 4 }]);
    await store.close();
    await beat(peer, 5, renewed);
    expect(await (await open()).sessions()).toMatchObject([{ beat: 5 }]);
  });

  it("while nobody has it open: the same", async () => {
    const { store, epoch } = await openWithRecord();
    await store.close();
    copyFileSync(here.path, `${here.path}.backup`);
    renameSync(`${here.path}.backup`, here.path);
    const again = await open();
    const meta = await again.meta();
    expect(meta.recovering).toBe(true);
    expect(meta.epoch).not.toBe(epoch);
    expect(await again.list()).toEqual([]);
    await again.close();
    expect(await (await open()).meta()).toEqual(meta);
  });

  it("of another epoch is a new epoch, too", async () => {
    const { store, epoch } = await openWithRecord();
    const other = await open(join(here.home, "other.db"));
    await other.endRecovery((await other.meta()).epoch, "");
    await other.close();
    renameSync(join(here.home, "other.db"), here.path);
    expect((await beat(store, 2, epoch)).kind).toBe("new-epoch");
    expect((await store.meta()).recovering).toBe(true);
  });

  it("that is damaged is store_corrupt, until a good one is there", async () => {
    const { store, epoch } = await openWithRecord();
    writeFileSync(`${here.path}.bad`, "not a database, but long enough to be looked at as one".repeat(10));
    renameSync(`${here.path}.bad`, here.path);
    await expect(beat(store, 2, epoch)).rejects.toMatchObject(corrupt);
    await expect(store.meta()).rejects.toMatchObject(corrupt);
    const other = await open(join(here.home, "other.db"));
    await other.close();
    renameSync(join(here.home, "other.db"), here.path);
    await delay(260);
    expect((await beat(store, 3, epoch)).kind).toBe("new-epoch");
  });

  it("without its marker: a missing marker is written again, an unreadable one too", async () => {
    const { store, epoch } = await openWithRecord();
    await store.close();
    const marker = readFileSync(`${here.path}.epoch`, "utf8");
    for (const damage of [() => rmSync(`${here.path}.epoch`), () => writeFileSync(`${here.path}.epoch`, "{")]) {
      damage();
      const again = await open();
      expect(await again.meta()).toEqual({ epoch, recovering: false });
      await again.close();
      expect(readFileSync(`${here.path}.epoch`, "utf8")).toBe(marker);
    }
  });
});
