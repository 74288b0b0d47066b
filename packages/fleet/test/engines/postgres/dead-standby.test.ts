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

test("no process of the server is left waiting, and callers hear that no replica confirmed", async () => {
  const settings = server.settings({ schema: newSchema(), poolMax: 4, timeoutMs: 2_000 });
  const store = new RowStore({ server: await openPostgresRowServer(settings, world), world, timeoutMs: 2_000 });
  try {
    await store.entries.put("keys/first", "body", null);
    await requireStandby("absent");
    const puts = Array.from({ length: 12 }, (_, n) => store.entries.put(`keys/k${n}`, "body", null));
    const settled = Promise.allSettled(puts);
    let most = 0;
    let isDone = false;
    void settled.then(() => (isDone = true));
    while (!isDone) {
      most = Math.max(most, await backends());
      await sleep(50);
    }
    for (const one of await settled) {
      const error = one.status === "rejected" ? one.reason : null;
      if (!isSandlotError(error, "store_unavailable")) throw new Error("a put was acknowledged", { cause: error });
    }
    const problems = (await settled).map((one) => (one.status === "rejected" ? String(one.reason) : ""));
    // The others waited for a connection meanwhile.
    expect(problems.join("\n")).toMatch(/no replica of the server .* confirmed the commit/);
    // The pool, the connection that listens, and those that are just being ended.
    expect(most).toBeLessThanOrEqual(2 * settings.poolMax + 1);
    await expect.poll(() => backends(WAITING)).toBe(0);
    // They go on by themselves.
    await requireStandby("");
    await until(() => store.entries.put("keys/later", "body", null));
  } finally {
    await store.close();
  }
});

test("a commit that was given up stands or is gone by its time limit, and changes nothing later", async () => {
  const settings = server.settings({ schema: newSchema(), timeoutMs: 1_000 });
  await using client = await openClient(settings);
  await requireStandby("absent");
  const first = await client.commitOf({ "record/a": "A" });
  const commit = { ...first, notAfter: first.notAfter - 60_000 + 3_000 };
  await problemOf(client.rows.commit(commit, AbortSignal.timeout(500)));
  await sleep(3_000);
  const { now } = await client.rows.read([], patience());
  expect(now).toBeGreaterThan(commit.notAfter);
  const body = await client.body("record/a");
  expect(await backends(WAITING)).toBe(0);
  await requireStandby("");
  await client.write({ "record/b": "B" });
  expect(await client.body("record/a")).toBe(body);
});

test("a commit whose gateway was cut off is ended by another gateway, and holds up no other commit", async () => {
  const settings = server.settings({ schema: newSchema(), timeoutMs: 1_000 });
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
    await expect.poll(() => backends(WAITING)).toBe(0);
    expect(await client.body("record/a")).toBe("A");
    await requireStandby("");
    await client.write({ "record/a": "B" });
    restore();
  } finally {
    await proxy.close();
  }
});
