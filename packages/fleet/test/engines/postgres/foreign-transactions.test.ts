/** Another program's transaction that writes and stays open: what it costs the store, and who names it. */

import pg from "pg";
import { afterAll, beforeAll, expect, it } from "vitest";
import { postgresFindings } from "../../../src/store/postgres/doctor.ts";
import { type Client, newSchema, openClient, patience, world } from "./postgres-harness.ts";
import { missingPostgres, type PostgresServer, startPostgres } from "./postgres-server.ts";

const missing = missingPostgres();
const test =
  missing === null ? it : (name: string, _: () => Promise<void>) => it(name, (context) => context.skip(missing));

let server: PostgresServer;
beforeAll(async () => {
  if (missing === null) server = await startPostgres({ settings: { max_prepared_transactions: "2" } });
});
afterAll(() => server?.dispose());

/** A transaction in another database, with an id of its own, that stays open. */
async function openTransaction(): Promise<
  AsyncDisposable & { readonly pid: number; query(sql: string): Promise<unknown> }
> {
  const raw = new pg.Client({
    ...{ host: server.directory, port: server.port, user: "admin", database: "postgres", password: "" },
    application_name: "nightly",
  });
  await raw.connect();
  await raw.query("BEGIN");
  const { rows } = await raw.query("SELECT pg_backend_pid() AS pid, pg_current_xact_id()");
  return {
    pid: rows[0].pid,
    query: (sql) => raw.query(sql),
    [Symbol.asyncDispose]: () => raw.end(),
  };
}

/** Scans from `since` to the end. */
async function scanned(client: Client, since: string | null, limit: number) {
  const keys: string[] = [];
  for (let cursor = since, pages = 1; ; pages += 1) {
    const page = await client.rows.scan(cursor, limit, patience());
    if (page === null) return { keys, cursor: null, pages };
    keys.push(...page.rows.map(({ key }) => key));
    cursor = page.cursor;
    if (!page.more) return { keys, cursor, pages };
    if (pages > 100) throw new Error("the scan does not end");
  }
}

async function fill(client: Client, from: number, count: number): Promise<void> {
  const keys = Array.from({ length: count }, (_, n) => `record/${from + n}`);
  await client.write(Object.fromEntries(keys.map((key) => [key, "body"])));
}

test("a new epoch during an older transaction of another program: scans of everything and of changes end", async () => {
  await using client = await openClient(server.settings({ schema: newSchema() }));
  await fill(client, 0, 20);
  await client.write({ "home/t": "here" });
  await using _open = await openTransaction();
  const before = await scanned(client, null, 100);
  client.epoch = await client.rows.beginEpoch(client.epoch, world.randomHex(16) as typeof client.epoch, patience());
  // A position of the former epoch would not show that its rows are gone.
  expect((await scanned(client, before.cursor, 100)).cursor).toBe(null);
  await fill(client, 100, 30);
  const all = await scanned(client, null, 10);
  expect(all.keys.length).toBe(31);
  expect(new Set(all.keys).size).toBe(31);
  await client.write({ "record/100": null });
  const changes = await scanned(client, all.cursor, 10);
  // Nothing of the former epoch, and no row twice.
  expect(changes.keys).toEqual(["record/100"]);
});

test("a scan shows each change once while an older transaction of another program stays open", async () => {
  await using client = await openClient(server.settings({ schema: newSchema() }));
  await using _open = await openTransaction();
  const first = await scanned(client, null, 100);
  await fill(client, 0, 50);
  const changes = await scanned(client, first.cursor, 20);
  expect(new Set(changes.keys).size).toBe(50);
  const rest = await scanned(client, changes.cursor, 20);
  expect(rest.keys).toEqual([]);
  await client.write({ "record/7": "again" });
  expect((await scanned(client, rest.cursor, 20)).keys).toEqual(["record/7"]);
});

/** The finding of `sandlot doctor` after a schema's commits have become an hour older. */
async function findingAnHourLater(schema: string) {
  await server.admin(`UPDATE "${schema}".commits SET at = at - 3600000`, "app");
  const findings = await postgresFindings(server.settings({ schema }));
  return findings.find(({ name }) => name === "store transactions");
}

test("the doctor names the process of a transaction that stays open, and how old it is at least", async () => {
  const schema = newSchema();
  await using client = await openClient(server.settings({ schema }));
  expect(await findingAnHourLater(schema)).toMatchObject({ status: "ok" });
  await using open = await openTransaction();
  await client.write({ "record/a": "A" });
  // This role may not see when another role's transaction began.
  const finding = await findingAnHourLater(schema);
  expect(finding).toMatchObject({ status: "warn", fix: `end it: SELECT pg_terminate_backend(${open.pid});` });
  expect(finding?.detail).toMatch(
    new RegExp(`process ${open.pid} \\(nightly in database postgres\\) writes for at least 36\\d\\d s`),
  );
});

test("the doctor names a prepared transaction that was left behind", async () => {
  const schema = newSchema();
  await using client = await openClient(server.settings({ schema }));
  await using open = await openTransaction();
  await open.query("PREPARE TRANSACTION 'left behind'");
  try {
    await client.write({ "record/a": "A" });
    const finding = await findingAnHourLater(schema);
    expect(finding).toMatchObject({ status: "warn", fix: expect.stringContaining("ROLLBACK PREPARED 'left behind'") });
  } finally {
    await server.admin("ROLLBACK PREPARED 'left behind'");
  }
});
