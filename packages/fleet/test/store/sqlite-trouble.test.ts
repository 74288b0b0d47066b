/** Files that are unusable, or not usable yet: damaged, foreign, older, newer, read-only, full. */

import { execFileSync } from "node:child_process";
import {
  chmodSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import type { InstanceId, SandboxId, ThreadId } from "@sandlot/contract";
import { describe, expect, it } from "vitest";
import { Connection } from "../../src/store/sqlite/connection.ts";
import { identify } from "../../src/store/sqlite/file.ts";
import { APPLICATION_ID, migrate, SCHEMA_VERSION } from "../../src/store/sqlite/schema.ts";
import { openSqliteStore } from "../../src/store/sqlite/sqlite-store.ts";
import { troubleOf } from "../../src/world/sqlite-driver.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import { startChild } from "./children.ts";
import {
  beat,
  closeAll,
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
import { temporaryDirectory } from "./stores.ts";

const isRoot = process.getuid?.() === 0;

useTemporaryHome();

describe("a file that cannot be used", () => {
  const damages: Readonly<Record<string, () => void>> = {
    "of zero length": () => truncateSync(here.path, 0),
    "cut off in its header": () => truncateSync(here.path, 50),
    "cut off in the middle": () => truncateSync(here.path, statSync(here.path).size - 4_096),
    "of garbage": () => writeFileSync(here.path, Buffer.alloc(20_000, 7)),
    "with garbage inside": () => {
      const bytes = readFileSync(here.path);
      writeFileSync(here.path, bytes.fill(7, 4_096, bytes.length - 4_096));
    },
    "with one damaged page that opening does not need": () => {
      const bytes = readFileSync(here.path);
      writeFileSync(here.path, bytes.fill(7, bytes.length - 4_096));
    },
    "of another program": () => {
      rmSync(here.path);
      const db = new DatabaseSync(here.path);
      db.exec("CREATE TABLE bookmarks (url TEXT); PRAGMA application_id = 1");
      db.close();
    },
    "without one of its tables": () => alter("DROP TABLE leases"),
    "with a column of another name": () => alter("ALTER TABLE records RENAME COLUMN state TO condition"),
    "whose version was lost": () => alter("PRAGMA user_version = 0"),
    "that is a directory": () => {
      rmSync(here.path);
      mkdirSync(here.path);
    },
  };
  for (const [name, damage] of Object.entries(damages)) {
    it(`${name} is store_corrupt, and stays as it is`, async () => {
      await (await openWithRecord()).store.close();
      damage();
      const before = readdirSync(here.home).sort();
      const bytes = statSync(here.path).isFile() ? readFileSync(here.path) : null;
      await expect(open()).rejects.toMatchObject(corrupt);
      expect(readdirSync(here.home).sort()).toEqual(before);
      if (bytes !== null) expect(readFileSync(here.path).equals(bytes)).toBe(true);
    });
  }

  it("with a record that is none is store_corrupt when it is read", async () => {
    const { store } = await openWithRecord();
    const db = new DatabaseSync(here.path);
    const another = JSON.stringify({ ...(await store.find(USER, THREAD)), sandboxId: "another" });
    for (const body of ["{}", "not json", '{"sandboxId":"s-t"}', another]) {
      db.prepare("UPDATE records SET body = ?").run(body);
      await expect(store.find(USER, THREAD)).rejects.toMatchObject({ ...corrupt, details: { path: here.path } });
      await expect(store.list()).rejects.toMatchObject(corrupt);
    }
    db.close();
  });

  it("with a record whose fields do not fit its state is store_corrupt when it is read", async () => {
    const { store } = await openWithRecord();
    const db = new DatabaseSync(here.path);
    const creating = await store.find(USER, THREAD);
    const hold = { generation: 1, seq: 1, since: 1 };
    const wrong: readonly object[] = [
      { actor: null },
      { ref: "ref" },
      { parkedAt: 1 },
      { holders: { a: hold } },
      { state: "gone" },
      { state: "stopping" },
      { state: "ready" },
      { state: "ready", actor: null },
      { state: "ready", actor: null, ref: "ref", reason: "idle" },
      { state: "ready", actor: null, ref: "ref", purge: true },
      { state: "stopping", reason: "idle", holders: { a: hold } },
    ];
    for (const changes of wrong) {
      db.prepare("UPDATE records SET body = ?").run(JSON.stringify({ ...creating, ...changes }));
      await expect(store.find(USER, THREAD), JSON.stringify(changes)).rejects.toMatchObject(corrupt);
    }
    const right: readonly object[] = [
      {},
      { reason: "destroyed", purge: true },
      { state: "ready", actor: null, ref: "ref", holders: { a: hold } },
      { state: "stopping", reason: "idle", ref: "ref", arrival: "empty" },
    ];
    for (const changes of right) {
      db.prepare("UPDATE records SET body = ?").run(JSON.stringify({ ...creating, ...changes }));
      expect(await store.find(USER, THREAD)).toMatchObject(changes);
    }
    db.close();
  });

  it("cut down to nothing while it is open is store_corrupt", async () => {
    const { store } = await openWithRecord();
    truncateSync(here.path, 0);
    await expect(beat(store, 2)).rejects.toMatchObject(corrupt);
  });
});

function alter(sql: string): void {
  const db = new DatabaseSync(here.path);
  db.exec(sql);
  db.close();
}

describe("the schema", () => {
  it("of an older file is brought to the present, and the rows with it", async () => {
    const { store } = await openWithRecord();
    const record = await store.find(USER, THREAD);
    await store.close();
    rmSync(here.path);
    const held = {
      ...record,
      sandboxId: "held",
      thread: "t2",
      ...{ state: "ready", actor: null, ref: "ref" },
      holders: { a: { generation: 1, seq: 1, since: 1 } },
    };
    const parked = { ...record, sandboxId: "parked", thread: "t3", state: "ready", actor: null, ref: "ref" };
    const db = new DatabaseSync(here.path);
    db.exec(`PRAGMA application_id = ${APPLICATION_ID}; PRAGMA journal_mode = WAL; BEGIN`);
    expect(migrate(db, 1)).toBe("current");
    db.exec("INSERT INTO meta VALUES (1, 'the-epoch', 0, 5); INSERT INTO holders VALUES ('a', 'held')");
    for (const body of [held, parked]) {
      db.prepare("INSERT INTO records VALUES (?, 'u', ?, 'ready', 'h', ?)").run(
        body.sandboxId,
        body.thread,
        // In the older form: without the field that a later migration adds.
        JSON.stringify({ ...body, arrival: undefined }),
      );
    }
    db.exec("COMMIT");
    db.close();
    rmSync(`${here.path}.epoch`);

    const migrated = await open();
    expect(await migrated.meta()).toEqual({ epoch: "the-epoch", recovering: false });
    expect(await migrated.get("held" as SandboxId)).toEqual(held);
    expect(await migrated.list({ parked: true })).toEqual([parked]);
    await migrated.leave("a" as InstanceId);
    const check = new DatabaseSync(here.path);
    expect(check.prepare("PRAGMA user_version").get()).toEqual({ user_version: SCHEMA_VERSION });
    check.close();
  });

  it("of a newer file that this version can live with is used as it is, at open and when it happens under us", async () => {
    const { store } = await openWithRecord();
    const db = new DatabaseSync(here.path);
    db.exec(`CREATE INDEX later ON records (user); PRAGMA user_version = ${SCHEMA_VERSION + 1}`);
    db.close();
    await expect(beat(store, 2)).resolves.toMatchObject({ kind: "ok" });
    const again = await open();
    await expect(again.find(USER, THREAD)).resolves.toMatchObject({ state: "creating" });
    const check = new DatabaseSync(here.path);
    expect(check.prepare("PRAGMA user_version").get()).toEqual({ user_version: SCHEMA_VERSION + 1 });
    check.close();
  });

  it("of a newer file that it cannot read is refused with the remedy, at open and when it happens under us", async () => {
    const { store } = await openWithRecord();
    const db = new DatabaseSync(here.path);
    db.exec(`UPDATE meta SET min_reader = ${SCHEMA_VERSION + 1}; PRAGMA user_version = ${SCHEMA_VERSION + 1}`);
    db.close();
    const newer = {
      code: "store_unavailable",
      message: expect.stringContaining("restart this process with that version"),
    };
    await expect(beat(store, 2)).rejects.toMatchObject(newer);
    await expect(open()).rejects.toMatchObject(newer);
  });
});

describe("what the machine refuses", () => {
  it.each([
    ["NFS", 0x6969],
    ["CIFS", 0xff534d42],
    ["SMB", 0xfe534d42],
    ["FUSE", 0x65735546],
    ["9p", 0x01021997],
  ])("a file on %s is store_unavailable with the remedy, and nothing is made there", async (name, type) => {
    const opening = openSqliteStore({ path: here.path, world: systemWorld(), fileSystemOf: () => type });
    const message = expect.stringContaining(`it is on ${name}`);
    await expect(opening).rejects.toMatchObject({ ...unavailable, message });
    expect(readdirSync(here.home)).toEqual([]);
  });

  it.skipIf(!isRoot)("a read-only file, directory or home is store_unavailable, and names it", async () => {
    await (await open()).close();
    chmodSync(here.home, 0o755);
    const ask = async (at: string) => {
      const child = startChild("open", at, { ordinary: true });
      await child.ended;
      return child.said[0];
    };
    const refused = { code: "store_unavailable", message: expect.stringContaining(here.home) };
    for (const name of readdirSync(here.home)) chmodSync(join(here.home, name), 0o644);
    expect(await ask(here.path)).toMatchObject({
      ...refused,
      message: expect.stringContaining("cannot be read and written by this process"),
    });
    for (const name of readdirSync(here.home)) chmodSync(join(here.home, name), 0o666);
    expect(await ask(here.path)).toMatchObject({
      ...refused,
      message: expect.stringContaining("cannot be read and written by this process"),
    });
    expect(await ask(join(here.home, "new.db"))).toMatchObject(refused);
    expect(await ask(join(here.home, "sub", "dir", "new.db"))).toMatchObject(refused);
    expect(readdirSync(here.home).sort()).toEqual(["store.db", "store.db.epoch"]);
  });

  it("a file where a directory should be is store_unavailable, and nothing is left", async () => {
    writeFileSync(join(here.home, "file"), "");
    await expect(open(join(here.home, "file", "store.db"))).rejects.toMatchObject(unavailable);
    await expect(open(join(here.home, "file", "sub", "store.db"))).rejects.toMatchObject(unavailable);
    expect(readdirSync(here.home)).toEqual(["file"]);
  });

  it("too few pages: the step fails as a whole, and the next one that fits works", async () => {
    await (await openWithRecord()).store.close();
    const db = new DatabaseSync(here.path);
    const file = identify(here.path);
    if (file === null) throw new Error("no file");
    const connection = new Connection({ db, path: here.path, file, epoch: "e" as never, now: () => 1 });
    const record = connection.transact("read", (tables) => tables.records()[0]);
    if (record === undefined) throw new Error("no record");
    const pages = Number(db.prepare("PRAGMA page_count").get()?.page_count);
    db.exec(`PRAGMA max_page_count = ${pages + 2}`);
    const fill = () =>
      connection.transact("write", (tables) => {
        tables.putGeneration(1);
        for (let n = 0; n < 100; n += 1) {
          tables.putRecord({ ...record, sandboxId: `f${n}` as SandboxId, thread: `f${n}` as ThreadId });
        }
      });
    const error = await Promise.resolve()
      .then(fill)
      .catch((error: unknown) => error);
    expect(troubleOf(error)).toMatchObject({ kind: "refused", problem: expect.stringContaining("full") });
    expect(connection.transact("read", (tables) => tables.countAll())).toBe(1);
    expect(connection.transact("read", (tables) => tables.generation())).toBeGreaterThan(1);
    db.exec("PRAGMA max_page_count = 100000");
    fill();
    expect(connection.transact("read", (tables) => tables.countAll())).toBe(101);
    connection.close();
  });

  it.skipIf(!isRoot || !canMount())(
    "a full disk is store_unavailable, and passes when there is room again",
    async () => {
      const disk = join(here.home, "disk");
      mkdirSync(disk);
      execFileSync("mount", ["-t", "tmpfs", "-o", "size=512k", "tmpfs", disk]);
      try {
        here.path = join(disk, "store.db");
        const { store } = await openWithRecord();
        writeFileSync(join(disk, "ballast"), Buffer.alloc(statSync(disk).blksize));
        let refused: unknown = null;
        let acknowledged = 1;
        for (let n = 0; n < 2_000 && refused === null; n += 1) {
          refused = await reserve(store, `t${n}`).then(
            () => null,
            (error: unknown) => error,
          );
          if (refused === null) acknowledged += 1;
        }
        expect(refused).toMatchObject({ ...unavailable, message: expect.stringContaining("full") });
        expect((await store.list()).length).toBe(acknowledged);
        rmSync(join(disk, "ballast"));
        execFileSync("mount", ["-o", "remount,size=8m", disk]);
        expect((await reserve(store, "room-again")).kind).toBe("reserved");
        expect((await store.list()).length).toBe(acknowledged + 1);
        await store.close();
        expect((await (await open()).list()).length).toBe(acknowledged + 1);
        await closeAll();
      } finally {
        execFileSync("umount", ["-l", disk]);
      }
    },
  );

  it.skipIf(!isRoot || !canMount())("no room at open leaves nothing half-made", async () => {
    const disk = join(here.home, "disk");
    mkdirSync(disk);
    execFileSync("mount", ["-t", "tmpfs", "-o", "size=16k", "tmpfs", disk]);
    try {
      await expect(open(join(disk, "sub", "store.db"))).rejects.toMatchObject(unavailable);
      expect(readdirSync(disk)).toEqual([]);
    } finally {
      execFileSync("umount", ["-l", disk]);
    }
  });
});

/** Whether this process may mount, which root in a container often may not. */
function canMount(): boolean {
  const probe = temporaryDirectory();
  try {
    execFileSync("mount", ["-t", "tmpfs", "tmpfs", probe.path], { stdio: "ignore" });
    execFileSync("umount", [probe.path], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  } finally {
    probe.remove();
  }
}
