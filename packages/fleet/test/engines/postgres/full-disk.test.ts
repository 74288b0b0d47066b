/** A PostgreSQL server whose disk is really full: that of its data, and that of its write-ahead log. */

import { afterEach, expect, it } from "vitest";
import { openPostgresRowServer } from "../../../src/store/postgres/postgres-row-server.ts";
import { RowStore } from "../../../src/store/rows/row-store.ts";
import { missingMounts } from "../../support/small-disk.ts";
import { useFullDisk } from "../full-disk.ts";
import { newSchema, openClient, problemOf, until, world } from "./postgres-harness.ts";
import { missingPostgres, type PostgresServer, type ServerOptions, startPostgres } from "./postgres-server.ts";

const missing = missingPostgres() ?? missingMounts();
const test =
  missing === null ? it : (name: string, _: () => Promise<void>) => it(name, (context) => context.skip(missing));

const MEBIBYTE = 1_048_576;
/** A log that is recycled soon, so that it takes little of a small disk. */
const SHORT_LOG = { max_wal_size: "8MB", min_wal_size: "2MB" };

let server: PostgresServer | null = null;
afterEach(async () => {
  await server?.dispose();
  server = null;
});

async function start(disk: ServerOptions["disk"]): Promise<PostgresServer> {
  server = await startPostgres({ settings: SHORT_LOG, ...(disk && { disk }) });
  return server;
}

test("the disk of the data is full: a fleet refuses what is new, keeps what is held, loses nothing and heals by itself", async () => {
  const { disk, settings } = await onDataDisk();
  await useFullDisk({
    disk,
    problem: /its disk is full; free space or enlarge the disk/,
    async openStore(using, timeoutMs) {
      return new RowStore({ server: await openPostgresRowServer(settings(timeoutMs), world), world: using, timeoutMs });
    },
  });
});

test("the disk of the data is full: reads go on, and a refused commit costs no connection", async () => {
  const { disk, settings } = await onDataDisk();
  await using client = await openClient(settings(5_000));
  await client.write({ "record/a": "A" });
  disk.fill();
  const fill = async () => {
    for (let number = 0; ; number += 1) await client.write({ [`record/${number}`]: "x".repeat(4_000) });
  };
  expect(await problemOf(fill())).toMatch(/its disk is full/);
  const before = await connections();
  for (let turn = 0; turn < 10; turn += 1) {
    expect(await problemOf(client.write({ [`record/more-${turn}`]: "x".repeat(4_000) }))).toMatch(/its disk is full/);
    expect(await client.body("record/a")).toBe("A");
  }
  expect(await connections()).toEqual(before);
  disk.free();
  await client.write({ "record/a": "B" });
});

test("the disk of the log is full: the server ends, and goes on with every acknowledged commit when it is started again", async () => {
  const running = await start({ of: "log", sizeBytes: 16 * MEBIBYTE });
  await using client = await openClient(running.settings({ schema: newSchema() }));
  const acknowledged: string[] = [];
  const write = async () => {
    const key = `record/${acknowledged.length}`;
    await client.write({ [key]: "x".repeat(6_000) });
    acknowledged.push(key);
  };
  await write();
  running.disk.fill();
  const fill = async () => {
    for (;;) await write();
  };
  expect(await problemOf(fill())).toMatch(/its disk is full|the connection (?:broke|was reset)|starting, stopping/);
  // It restarts itself, finds no room for its recovery, and gives up.
  await expect.poll(() => running.isRunning).toBe(false);
  expect(await problemOf(write())).toMatch(/there is no such socket; start the server/);
  running.disk.free();
  await running.start();
  await until(write);
  for (const key of acknowledged) expect(await client.body(key)).toBe("x".repeat(6_000));
});

async function onDataDisk() {
  const running = await start({ of: "data", sizeBytes: 64 * MEBIBYTE });
  const schema = newSchema();
  return { disk: running.disk, settings: (timeoutMs: number) => running.settings({ schema, timeoutMs }) };
}

/** The server's processes of the client's connections. */
async function connections(): Promise<readonly unknown[]> {
  const rows = await server?.admin("SELECT pid FROM pg_stat_activity WHERE usename = 'app' ORDER BY pid");
  return (rows ?? []).map(({ pid }) => pid);
}
