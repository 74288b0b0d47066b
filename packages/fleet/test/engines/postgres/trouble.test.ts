/** A PostgreSQL server in trouble: every call ends by its deadline with a problem that a person can act on. */

import pg from "pg";
import { afterAll, beforeAll, expect, it } from "vitest";
import { BreakableProxy } from "./breakable-proxy.ts";
import { newSchema, openClient, patience, problemOf, until } from "./postgres-harness.ts";
import { missingPostgres, type PostgresServer, startPostgres } from "./postgres-server.ts";

const missing = missingPostgres();
const test =
  missing === null ? it : (name: string, _: () => Promise<void>) => it(name, (context) => context.skip(missing));

let server: PostgresServer;
beforeAll(async () => {
  if (missing === null)
    server = await startPostgres({ settings: { max_connections: "12", superuser_reserved_connections: "3" } });
});
afterAll(() => server?.dispose());

test("a paused server: every call ends by its deadline, and goes on afterwards", async () => {
  await using client = await openClient(server.settings({ schema: newSchema(), timeoutMs: 1_000 }));
  await client.write({ "record/a": "before" });
  const commit = await client.commitOf({ "record/a": "during" });
  server.signal("SIGSTOP");
  const took: number[] = [];
  try {
    // The first two use connections that exist; the others have to make one.
    for (const call of [
      () => client.rows.commit(commit, patience()),
      () => client.rows.read(["record/a"], patience()),
      () => client.rows.scan(null, 10, patience()),
      () => client.rows.commit(commit, AbortSignal.timeout(200)),
    ]) {
      const begun = performance.now();
      expect(await problemOf(call())).toMatch(/in time; look whether it is overloaded, stopped or cut off/);
      took.push(performance.now() - begun);
    }
  } finally {
    server.signal("SIGCONT");
  }
  // The signals of the calls would end them after half a minute.
  for (const ms of took) expect(ms).toBeLessThan(20_000);
  // The commit may have taken effect meanwhile. Its id tells.
  const answer = await until(() => client.rows.commit(commit, patience()));
  expect(answer.kind).toBe("committed");
  expect(await client.body("record/a")).toBe("during");
});

test("a server that only reads: refused with the setting, and used again afterwards", async () => {
  await using client = await openClient(server.settings({ schema: newSchema() }));
  await client.write({ "record/a": "A" });
  server.configure({ default_transaction_read_only: "on" });
  await server.reload();
  // A reload reaches each process of the server in its own time.
  await expect.poll(() => refusal(client.write({ "record/a": "B" }))).toMatch(/default_transaction_read_only/);
  expect(await problemOf(client.write({ "record/a": "B" }))).toMatch(/default_transaction_read_only/);
  server.configure({ default_transaction_read_only: "off" });
  await server.reload();
  await until(() => client.write({ "record/a": "C" }));
  expect(await client.body("record/a")).toBe("C");
});

test("a full disk: refused with what to do, nothing is applied, and it goes on when there is space", async () => {
  const schema = newSchema();
  await using client = await openClient(server.settings({ schema }));
  // The error of a server whose disk is full, at the last write of a commit.
  await server.admin(
    `CREATE FUNCTION "${schema}".no_space() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
       RAISE EXCEPTION 'could not extend file "base/1/2": No space left on device' USING ERRCODE = '53100'; END $$;
     CREATE TRIGGER no_space BEFORE INSERT ON "${schema}".rows EXECUTE FUNCTION "${schema}".no_space()`,
    "app",
  );
  const commit = await client.commitOf({ "record/a": "A" });
  expect(await problemOf(client.rows.commit(commit, patience()))).toMatch(/its disk is full; free space/);
  expect(await client.body("record/a")).toBe(null);
  await server.admin(`DROP TRIGGER no_space ON "${schema}".rows`, "app");
  // Its id was not remembered either.
  expect((await client.rows.commit(commit, patience())).kind).toBe("committed");
  expect(await client.body("record/a")).toBe("A");
});

test("no connection left: refused with the settings to change, and used again afterwards", async () => {
  await using client = await openClient(server.settings({ schema: newSchema() }));
  await client.write({ "record/a": "A" });
  await server.admin("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'");
  const others: pg.Client[] = [];
  for (;;) {
    const other = new pg.Client({
      host: server.directory,
      port: server.port,
      user: "app",
      database: "app",
      password: "",
    });
    other.on("error", () => {});
    if (
      !(await other.connect().then(
        () => true,
        () => false,
      ))
    )
      break;
    others.push(other);
  }
  expect(others.length).toBeGreaterThan(3);
  const problem = await problemOf(client.write({ "record/a": "B" }));
  expect(problem).toMatch(/no connection left; raise max_connections there, or lower store.poolMax/);
  await Promise.all(others.map((other) => other.end()));
  await until(() => client.write({ "record/a": "B" }));
});

test("a connection that breaks in mid-answer: the commit is told by its id and applied once", async () => {
  const proxy = await BreakableProxy.start(`${server.directory}/.s.PGSQL.${server.port}`);
  try {
    await using client = await openClient(
      server.settings({ schema: newSchema(), host: "127.0.0.1", port: proxy.port }),
    );
    for (const bytes of [0, 1, 7, 40]) {
      const commit = await client.commitOf({ [`record/${bytes}`]: "A" });
      proxy.breakAfterBytes = bytes;
      expect(await problemOf(client.rows.commit(commit, patience()))).toMatch(
        /the connection (?:broke|was reset)|closed/,
      );
      proxy.breakAfterBytes = null;
      expect((await until(() => client.rows.commit(commit, patience()))).kind).toBe("committed");
      const again = await client.rows.commit(commit, patience());
      const [row] = (await client.rows.read([`record/${bytes}`], patience())).rows;
      expect(again).toMatchObject({ kind: "committed", seq: row?.seq });
    }
  } finally {
    await proxy.close();
  }
});

test('a listening connection that is killed: "*", and topics again', async () => {
  const schema = newSchema();
  await using client = await openClient(server.settings({ schema }));
  const heard: string[] = [];
  client.rows.subscribe((topic) => heard.push(topic));
  const topics = ["thread:1"];
  const tell = () => client.write({ "record/a": "A" }, { topics });
  await expect.poll(() => tell().then(() => heard)).toContain("thread:1");
  heard.length = 0;
  await server.admin(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%${schema}"'`);
  await expect.poll(() => heard).toContain("*");
  heard.length = 0;
  await client.write({ "record/a": "B" }, { topics: ["thread:2", "room"] });
  await expect.poll(() => heard).toEqual(["thread:2", "room"]);
});

test("two fleets in two schemas know nothing of each other", async () => {
  await using one = await openClient(server.settings({ schema: newSchema() }));
  await using other = await openClient(server.settings({ schema: newSchema() }));
  expect(one.epoch).not.toBe(other.epoch);
  const heard: string[] = [];
  other.rows.subscribe((topic) => heard.push(topic));
  const tell = () => other.write({ "record/x": "x" }, { topics: ["mine"] });
  await expect.poll(() => tell().then(() => heard)).toContain("mine");
  heard.length = 0;
  const id = await one.write({ "record/a": "A" }, { topics: ["theirs"] });
  expect(await other.body("record/a")).toBe(null);
  expect((await other.rows.scan(null, 10, patience()))?.rows.map(({ key }) => key)).toEqual(["record/x"]);
  const answer = await other.rows.commit(await other.commitOf({ "record/y": "y" }, { seen: [id] }), patience());
  expect(answer.kind).toBe("rewound");
  await tell();
  await expect.poll(() => heard).toContain("mine");
  expect(heard).not.toContain("theirs");
});

test("more calls than connections wait in line, and those that wait too long are told why", async () => {
  const schema = newSchema();
  await using client = await openClient(server.settings({ schema, poolMax: 2 }));
  const commits = await Promise.all(Array.from({ length: 30 }, (_, n) => client.commitOf({ [`record/${n}`]: "x" })));
  const answers = await Promise.all(commits.map((commit) => client.rows.commit(commit, patience())));
  expect(new Set(answers.map(({ kind }) => kind))).toEqual(new Set(["committed"]));
  const [connections] = await server.admin(
    "SELECT count(*)::int AS count FROM pg_stat_activity WHERE usename = 'app' AND query NOT LIKE 'LISTEN%'",
  );
  expect(connections?.count).toBeLessThanOrEqual(2);
  // Two calls that wait for a lock, and one that waits for a connection.
  const blocker = new pg.Client({
    host: server.directory,
    port: server.port,
    user: "app",
    database: "app",
    password: "",
  });
  await blocker.connect();
  await blocker.query(`BEGIN; SELECT pg_advisory_xact_lock(hashtextextended('${schema}', 1))`);
  try {
    const stuck: Promise<string>[] = [];
    for (const commit of commits.slice(0, 2)) {
      stuck.push(problemOf(client.rows.commit({ ...commit, id: `${commit.id}x` }, patience(5_000))));
      // Each by itself: commits of one moment would be joined.
      const waiting = "SELECT count(*)::int AS count FROM pg_stat_activity WHERE wait_event = 'advisory'";
      await expect.poll(async () => (await server.admin(waiting))[0]?.count, { timeout: 3_000 }).toBe(stuck.length);
    }
    expect(await problemOf(client.rows.read([], AbortSignal.timeout(300)))).toMatch(
      /all 2 connections .* store.poolMax/,
    );
    for (const problem of await Promise.all(stuck)) expect(problem).toMatch(/did not answer in time|took longer than/);
  } finally {
    await blocker.end();
  }
  await until(() => client.write({ "record/after": "x" }));
});

/** `null` when the call succeeds. */
async function refusal(call: Promise<unknown>): Promise<string> {
  return problemOf(call).catch(() => "no refusal");
}
