/**
 * A replica that has to confirm every commit, and is gone: what the server's processes do, what a caller is told, and what
 * stands afterwards.
 */

import { setTimeout as sleep } from "node:timers/promises";
import { isSandlotError } from "@sandlot/contract";
import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import { openPostgresRowServer } from "../../../src/store/postgres/postgres-row-server.ts";
import { RowStore } from "../../../src/store/rows/row-store.ts";
import { BreakableProxy } from "./breakable-proxy.ts";
import { newSchema, openClient, patience, problemOf, until, world } from "./postgres-harness.ts";
import { missingPostgres, type PostgresServer, startPostgres } from "./postgres-server.ts";

const missing = missingPostgres();
const test =
  missing === null ? it : (name: string, _: () => Promise<void>) => it(name, (context) => context.skip(missing));

let server: PostgresServer;
beforeAll(async () => {
  if (missing === null) server = await startPostgres();
});
afterEach(async () => {
  if (missing === null) await requireStandby("");
});
afterAll(() => server?.dispose());

async function requireStandby(name: string): Promise<void> {
  server.configure({ synchronous_standby_names: `'${name}'` });
  await server.reload();
  // The checkpointer makes the setting known to commits.
  await expect
    .poll(() => server.admin("SELECT current_setting('synchronous_standby_names') AS now"))
    .toEqual([{ now: name }]);
}

async function backends(where = "true"): Promise<number> {
  const sql = `SELECT count(*)::integer AS count FROM pg_stat_activity WHERE application_name = 'sandlot' AND ${where}`;
  return Number((await server.admin(sql))[0]?.count);
}

const WAITING = "wait_event = 'SyncRep'";

/** The limit finds hangs: without a request to stop they would wait for ever. */
async function noneWaits(): Promise<void> {
  await expect.poll(() => backends(WAITING)).toBe(0);
}

test("no process of the server is left waiting when callers have given up", async () => {
  const settings = server.settings({ schema: newSchema(), poolMax: 4, timeoutMs: 2_000 });
  const store = new RowStore({ server: await openPostgresRowServer(settings, world), world, timeoutMs: 2_000 });
  try {
    await store.entries.put("keys/first", "body", null);
    await requireStandby("absent");
    const puts = Array.from({ length: 12 }, (_, n) => store.entries.put(`keys/k${n}`, "body", null));
    for (const one of await Promise.allSettled(puts)) {
      const error = one.status === "rejected" ? one.reason : null;
      if (!isSandlotError(error, "store_unavailable")) throw new Error("a put was acknowledged", { cause: error });
    }
    await noneWaits();
    expect(await backends()).toBeLessThanOrEqual(settings.poolMax + 1);
    // They go on by themselves.
    await requireStandby("");
    await until(() => store.entries.put("keys/later", "body", null));
  } finally {
    await store.close();
  }
});

test("the caller hears that no replica confirmed, before its own time is over", async () => {
  const settings = server.settings({ schema: newSchema(), timeoutMs: 12_000 });
  await using client = await openClient(settings);
  const commit = await client.commitOf({ "record/a": "A" });
  await requireStandby("absent");
  // A new connection knows of the setting.
  await using other = await openClient(settings);
  expect(await problemOf(other.rows.commit(commit, patience()))).toMatch(/no replica of the server .* confirmed/);
  expect(await other.body("record/a")).toBe("A");
  await noneWaits();
});

test("a commit that was given up stands or is gone soon, and changes nothing when the replica is back", async () => {
  await using client = await openClient(server.settings({ schema: newSchema(), timeoutMs: 1_000 }));
  await requireStandby("absent");
  await problemOf(client.rows.commit(await client.commitOf({ "record/a": "A" }), AbortSignal.timeout(500)));
  await noneWaits();
  const body = await client.body("record/a");
  await requireStandby("");
  await client.write({ "record/b": "B" });
  expect(await client.body("record/a")).toBe(body);
});

test("a commit whose gateway was cut off is ended by another gateway, and holds up no other commit", async () => {
  const settings = server.settings({ schema: newSchema(), timeoutMs: 20_000 });
  await using client = await openClient(settings);
  const proxy = await BreakableProxy.start(`${server.directory}/.s.PGSQL.${server.port}`);
  await using lost = await openClient({ ...settings, host: "127.0.0.1", port: proxy.port });
  try {
    await requireStandby("absent");
    const commit = await lost.commitOf({ "record/a": "A" });
    const answer = problemOf(lost.rows.commit(commit, patience()));
    await expect.poll(() => backends(WAITING)).toBe(1);
    // Its connection ends, and no request to cancel reaches the server.
    const restore = proxy.interrupt();
    await answer;
    expect(await backends(WAITING)).toBe(1);
    await sleep(1_000);
    expect(await client.rows.endOrphans(1_000)).toBe(1);
    await noneWaits();
    expect(await client.body("record/a")).toBe("A");
    await requireStandby("");
    await client.write({ "record/a": "B" });
    restore();
  } finally {
    await proxy.close();
  }
});

test("a server that forbids to end orphans is purged all the same, and the other way round", async () => {
  const settings = server.settings({ schema: newSchema() });
  await using client = await openClient(settings);
  const kept = async () =>
    Number(
      (await server.admin(`SELECT count(*)::integer AS count FROM "${settings.schema}".commits`, "app"))[0]?.count,
    );
  await client.write({ "record/a": "A" });
  await server.admin("REVOKE EXECUTE ON FUNCTION pg_catalog.pg_cancel_backend(integer) FROM PUBLIC", "app");
  try {
    expect(await problemOf(client.rows.endOrphans())).toMatch(/the role lacks a right/);
    expect(await kept()).toBe(1);
    await client.rows.purge(-1_000);
    expect(await kept()).toBe(0);
  } finally {
    await server.admin("GRANT EXECUTE ON FUNCTION pg_catalog.pg_cancel_backend(integer) TO PUBLIC", "app");
  }
  await server.admin(`DROP FUNCTION "${settings.schema}".purge(bigint, integer)`, "app");
  await client.rows.purge();
  expect(await client.rows.endOrphans()).toBe(0);
});

test("a commit whose connection broke is stopped by a request on another one", async () => {
  const settings = server.settings({ schema: newSchema(), timeoutMs: 20_000 });
  const proxy = await BreakableProxy.start(`${server.directory}/.s.PGSQL.${server.port}`);
  await using client = await openClient({ ...settings, host: "127.0.0.1", port: proxy.port });
  try {
    await requireStandby("absent");
    const answer = problemOf(client.rows.commit(await client.commitOf({ "record/a": "A" }), patience()));
    await expect.poll(() => backends(WAITING)).toBe(1);
    proxy.cut();
    await answer;
    await noneWaits();
    expect(await until(() => client.body("record/a"))).toBe("A");
  } finally {
    await proxy.close();
  }
});
