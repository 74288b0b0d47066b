/** Acknowledged commits survive what PostgreSQL survives; what a failover or a restore loses is noticed. */

import { isSandlotError } from "@sandlot/contract";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openPostgresRowServer } from "../../../src/store/postgres/postgres-row-server.ts";
import { BreakableProxy } from "./breakable-proxy.ts";
import { type Client, newSchema, openClient, patience, problemOf, until, world } from "./postgres-harness.ts";
import { missingPostgres, type PostgresServer, startPostgres } from "./postgres-server.ts";

const missing = missingPostgres();
const test =
  missing === null ? it : (name: string, _: () => Promise<void>) => it(name, (context) => context.skip(missing));

let server: PostgresServer;
beforeAll(async () => {
  if (missing === null) server = await startPostgres({ settings: { wal_level: "replica", max_wal_senders: "4" } });
});
afterAll(() => server?.dispose());

test("a server killed in mid-commit: every acknowledged commit is there, every other is told by its id", async () => {
  const settings = server.settings({ schema: newSchema(), timeoutMs: 2_000 });
  await using client = await openClient(settings);
  const acknowledged = new Set<string>();
  const unknown = new Map<string, Awaited<ReturnType<Client["commitOf"]>>>();
  for (let round = 0; round < 3; round += 1) {
    let isDown = false;
    const work = async (worker: number) => {
      for (let n = 0; !isDown; n += 1) {
        const key = `record/${round}-${worker}-${n}`;
        const commit = await client.commitOf({ [key]: key }).catch(() => null);
        if (commit === null) return;
        const answer = await client.rows.commit(commit, patience()).catch(() => null);
        if (answer?.kind === "committed") acknowledged.add(key);
        else unknown.set(key, commit);
      }
    };
    const workers = Array.from({ length: 8 }, (_, worker) => work(worker));
    const before = acknowledged.size;
    await expect.poll(() => acknowledged.size).toBeGreaterThan(before + 20);
    await server.stop("kill");
    isDown = true;
    await Promise.all(workers);
    await server.start();
  }
  expect(acknowledged.size).toBeGreaterThan(50);
  expect(unknown.size).toBeGreaterThan(0);
  await until(() => client.refresh());
  const { rows } = await client.rows.read([...acknowledged], patience());
  expect(rows.filter(({ body }) => body === null)).toEqual([]);
  for (const [key, commit] of unknown) {
    const before = await client.body(key);
    const answer = await client.rows.commit(commit, patience());
    expect(answer.kind).toBe("committed");
    const [row] = (await client.rows.read([key], patience())).rows;
    expect(row).toMatchObject({ body: key, seq: answer.kind === "committed" ? answer.seq : 0 });
    expect([null, key]).toContain(before);
  }
});

test("a scan misses no commit that was under way, also between its pages", async () => {
  const schema = newSchema();
  await using client = await openClient(server.settings({ schema }));
  for (let n = 0; n < 6; n += 1) await client.write({ [`record/${n}`]: "old" });
  let page = await client.rows.scan(null, 100, patience());
  // A commit that has its transaction id and is not visible yet.
  const slow = await client.commitOf({ "record/slow": "slow", "record/2": "slow" });
  const raw = new pg.Client({ host: server.directory, port: server.port, user: "app", database: "app", password: "" });
  await raw.connect();
  try {
    await raw.query("BEGIN");
    await commitBy(raw, schema, slow);
    for (let n = 0; n < 6; n += 1) if (n !== 2) await client.write({ [`record/${n}`]: "new" });
    const seen = new Map<string, string | null>();
    const take = () => {
      for (const { key, body } of page?.rows ?? []) seen.set(key, body);
    };
    page = await client.rows.scan(page?.cursor ?? null, 2, patience());
    take();
    expect(page?.more).toBe(true);
    await raw.query("COMMIT");
    while (page?.more === true) {
      page = await client.rows.scan(page.cursor, 2, patience());
      take();
    }
    page = await client.rows.scan(page?.cursor ?? null, 100, patience());
    take();
    expect(Object.fromEntries(seen)).toMatchObject({ "record/slow": "slow", "record/2": "slow", "record/5": "new" });
    page = await client.rows.scan(page?.cursor ?? null, 100, patience());
    expect(page?.rows).toEqual([]);
  } finally {
    await raw.end();
  }
});

test("a writer that stays under way keeps the markers that scans still need", async () => {
  const schema = newSchema();
  await using client = await openClient(server.settings({ schema }));
  await client.write({ "record/a": "A" });
  const raw = new pg.Client({ host: server.directory, port: server.port, user: "app", database: "app", password: "" });
  await raw.connect();
  try {
    await raw.query("BEGIN; SELECT pg_current_xact_id()");
    const page = await client.rows.scan(null, 100, patience());
    await client.write({ "record/a": null });
    expect(await client.rows.purgeBatch(-1)).toBe(false);
    const next = await client.rows.scan(page?.cursor ?? "", 100, patience());
    expect(next?.rows).toMatchObject([{ key: "record/a", body: null }]);
    await raw.query("COMMIT");
    const last = await client.rows.scan(next?.cursor ?? "", 100, patience());
    expect(await client.rows.purgeBatch(-1)).toBe(false);
    await client.write({ "record/b": "B" });
    // The marker is gone: a cursor from before it would miss the deletion, one from after it would not.
    expect(await client.rows.scan(page?.cursor ?? "", 100, patience())).toBe(null);
    expect((await client.rows.scan(last?.cursor ?? "", 100, patience()))?.rows).toMatchObject([{ key: "record/b" }]);
  } finally {
    await raw.end();
  }
});

describe("a replica", () => {
  test("that follows later and takes over with lost commits: rewound, and scans begin anew", async () => {
    const schema = newSchema();
    const standby = await startPostgres({ standbyOf: server });
    const proxy = await BreakableProxy.start(`${server.directory}/.s.PGSQL.${server.port}`);
    try {
      // One name that leads to the primary, as a virtual address does.
      await using client = await openClient(server.settings({ schema, host: "127.0.0.1", port: proxy.port }));
      expect(client.rows.promise).toBe("may-rewind");
      const kept = await client.write({ "record/kept": "A", "home/t": "here" });
      await expect.poll(() => replayed(standby, schema, "record/kept")).toBe(true);
      expect(await problemOf(openClient(standby.settings({ schema })))).toMatch(/is a standby; connect to the primary/);
      // The replica falls behind, and the primary is lost.
      await standby.admin("ALTER SYSTEM SET primary_conninfo = ''");
      await standby.reload();
      await expect.poll(() => standby.admin("SELECT FROM pg_stat_wal_receiver")).toEqual([]);
      const lost = await client.write({ "record/lost": "A", "record/kept": "B" }, { seen: [kept] });
      const page = await client.rows.scan(null, 100, patience());
      const [before] = (await client.rows.read(["record/kept"], patience())).rows;
      await server.stop("kill");
      await standby.promote();
      proxy.redirect(`${standby.directory}/.s.PGSQL.${standby.port}`);
      const commit = await until(() => client.commitOf({ "record/new": "A" }, { seen: [lost] }));
      expect(await client.body("record/lost")).toBe(null);
      expect((await client.rows.commit(commit, patience())).kind).toBe("rewound");
      expect(await client.body("record/new")).toBe(null);
      // A client that saw nothing that was lost goes on, and its writes repeat no number and hide from no scan.
      await using other = await openClient(standby.settings({ schema }));
      await other.write({ "record/kept": "C" }, { seen: [kept] });
      const [after] = (await other.rows.read(["record/kept"], patience())).rows;
      expect(after?.seq).toBeGreaterThan(before?.seq ?? 0);
      expect(await client.rows.scan(page?.cursor ?? "", 100, patience())).toBe(null);
      const epoch = await client.rows.beginEpoch(client.epoch, world.randomHex(16) as typeof client.epoch, patience());
      client.epoch = epoch;
      expect(await client.body("record/kept")).toBe(null);
      expect(await client.body("home/t")).toBe("here");
      await client.write({ "record/new": "A" });
    } finally {
      await proxy.close();
      await standby.dispose();
      await server.start();
    }
  });

  test("that must confirm: a commit that it does not confirm in time is not acknowledged, also when it is repeated", async () => {
    const schema = newSchema();
    await using client = await openClient(server.settings({ schema, timeoutMs: 1_000 }));
    expect(client.rows.promise).toBe("linearizable");
    server.configure({ synchronous_standby_names: "'absent'" });
    await server.reload();
    try {
      const commit = await client.commitOf({ "record/a": "A" });
      expect(await problemOf(client.rows.commit(commit, patience()))).toMatch(/in time/);
      expect(await problemOf(client.rows.commit(commit, patience()))).toMatch(/in time/);
      server.configure({ synchronous_standby_names: "''" });
      await server.reload();
      expect((await until(() => client.rows.commit(commit, patience()))).kind).toBe("committed");
      expect(await client.body("record/a")).toBe("A");
    } finally {
      server.configure({ synchronous_standby_names: "''" });
      await server.reload();
    }
  });
});

describe("a dump", () => {
  test("restored in another cluster begins a new epoch, keeps homes, and can be scanned", async () => {
    const schema = newSchema();
    const other = await startPostgres();
    try {
      const client = await openClient(server.settings({ schema }));
      for (let n = 0; n < 20; n += 1) await client.write({ [`record/${n}`]: "A", [`home/${n}`]: "here" });
      const page = await client.rows.scan(null, 100, patience());
      await client.rows.close();
      const dump = await server.run(
        "pg_dump",
        "-h",
        server.directory,
        "-p",
        `${server.port}`,
        "-U",
        "admin",
        "-n",
        schema,
        "-F",
        "p",
        "app",
      );
      other.restore(dump, "app");
      await using restored = await openClient(other.settings({ schema }));
      expect(restored.epoch).not.toBe(client.epoch);
      expect(await restored.body("record/3")).toBe(null);
      expect(await restored.body("home/3")).toBe("here");
      expect(await restored.rows.scan(page?.cursor ?? "", 100, patience())).toBe(null);
      const first = await restored.rows.scan(null, 100, patience());
      expect(first?.rows.length).toBe(20);
      await restored.write({ "record/3": "B", "home/3": "there" });
      const next = await restored.rows.scan(first?.cursor ?? "", 100, patience());
      expect(next?.rows.map(({ key, body }) => [key, body])).toEqual(
        expect.arrayContaining([
          ["home/3", "there"],
          ["record/3", "B"],
        ]),
      );
      // Opening it again finds the same epoch.
      await using again = await openClient(other.settings({ schema }));
      expect(again.epoch).toBe(restored.epoch);
    } finally {
      await other.dispose();
    }
  });

  test("restored in place while instances work: their next commit is rewound", async () => {
    const schema = newSchema();
    await using client = await openClient(server.settings({ schema }));
    const first = await client.write({ "record/a": "A" });
    const page = await client.rows.scan(null, 100, patience());
    const dump = await server.run(
      "pg_dump",
      "-h",
      server.directory,
      "-p",
      `${server.port}`,
      "-U",
      "admin",
      "-n",
      schema,
      "-F",
      "p",
      "app",
    );
    const second = await client.write({ "record/a": "B" }, { seen: [first] });
    await server.admin(`DROP SCHEMA "${schema}" CASCADE`, "app");
    expect(await problemOf(client.write({ "record/a": "C" }))).toMatch(
      /gone; restart this process to make it anew, or restore/,
    );
    server.restore(dump, "app");
    const commit = await until(() => client.commitOf({ "record/a": "C" }, { seen: [second] }));
    expect(["rewound", "new-epoch"]).toContain((await client.rows.commit(commit, patience())).kind);
    expect(await client.rows.scan(page?.cursor ?? "", 100, patience())).toBe(null);
  });
});

describe("the schema", () => {
  test("is created once by processes that open it at the same time", async () => {
    const settings = server.settings({ schema: newSchema() });
    const opened = await Promise.all(Array.from({ length: 6 }, () => openClient(settings)));
    expect(new Set(opened.map(({ epoch }) => epoch)).size).toBe(1);
    await Promise.all(opened.map(({ rows }) => rows.close()));
  });

  test("of a later version is used if it allows it, and otherwise refused", async () => {
    const schema = newSchema();
    const settings = server.settings({ schema });
    await (await openPostgresRowServer(settings, world)).close();
    await server.admin(`UPDATE "${schema}".meta SET version = 99`, "app");
    const client = await openClient(settings);
    await client.write({ "record/a": "A" });
    await client.rows.close();
    await server.admin(`UPDATE "${schema}".meta SET min_reader = 99`, "app");
    const error = await openPostgresRowServer(settings, world).catch((reason: unknown) => reason);
    expect(isSandlotError(error, "store_corrupt")).toBe(true);
    expect(String(error)).toMatch(/a later version of sandlot has changed it \(version 99; this one knows \d+\)/);
  });
});

async function replayed(standby: PostgresServer, schema: string, key: string): Promise<boolean> {
  return (await standby.admin(`SELECT FROM "${schema}".rows WHERE key = '${key}'`, "app").catch(() => [])).length === 1;
}

/** The call of a commit in an open transaction. */
async function commitBy(
  raw: pg.Client,
  schema: string,
  commit: Awaited<ReturnType<Client["commitOf"]>>,
): Promise<void> {
  const keys = [...commit.reads.keys()].sort();
  await raw.query(`SELECT "${schema}".commit_rows($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`, [
    commit.id,
    commit.epoch,
    [],
    0,
    commit.notAfter,
    keys,
    keys.map((key) => commit.reads.get(key)),
    keys.map((key) => commit.writes.has(key)),
    [...commit.writes.keys()],
    [...commit.writes.values()],
    "",
    true,
  ]);
}
