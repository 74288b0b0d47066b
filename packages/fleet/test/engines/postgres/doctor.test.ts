/** `sandlot doctor` on a PostgreSQL store: every finding that is not fine says how to mend it, and nothing is created. */

import { afterAll, beforeAll, expect, it } from "vitest";
import { postgresFindings } from "../../../src/store/postgres/doctor.ts";
import { systemWorld } from "../../../src/world/system-world.ts";
import { newSchema, openClient } from "./postgres-harness.ts";
import { missingPostgres, type PostgresServer, startPostgres } from "./postgres-server.ts";

const missing = missingPostgres();
const test =
  missing === null ? it : (name: string, _: () => Promise<void>) => it(name, (context) => context.skip(missing));

let server: PostgresServer;
beforeAll(async () => {
  if (missing === null) server = await startPostgres();
});
afterAll(() => server?.dispose());

const found = async (...args: Parameters<typeof postgresFindings>) => {
  const findings = await postgresFindings(...args);
  for (const { status, fix } of findings) if (status !== "ok") expect(fix).toMatch(/\S/);
  return Object.fromEntries(findings.map((finding) => [finding.name, finding]));
};

test("a healthy server before and after the first use", async () => {
  const settings = server.settings({ schema: newSchema() });
  const before = await found(settings);
  expect(Object.values(before).map(({ status }) => status)).toEqual(Object.keys(before).map(() => "ok"));
  expect(before["store rights"]?.detail).toMatch(/will create the schema/);
  expect(await server.admin(`SELECT FROM pg_namespace WHERE nspname = '${settings.schema}'`, "app")).toEqual([]);
  await using client = await openClient(settings);
  await client.write({ "record/a": "A" });
  const after = await found(settings);
  expect(after["store rights"]?.detail).toMatch(/app owns the schema/);
  expect(after["store server"]?.detail).toMatch(/^PostgreSQL \d+\.\d+, fsync/);
  expect(after["store size"]).toMatchObject({ status: "ok", detail: expect.stringMatching(/MiB$/) });
  expect(after["store replicas"]?.detail).toBe("none; one server");
  expect(Object.keys(after)).toEqual([
    "store",
    "store server",
    "store rights",
    "store latency",
    "store clock",
    "store replicas",
    "store orphans",
    "store encryption",
    "store size",
    "store transactions",
  ]);
});

test("a server that cannot be reached, or must not be used", async () => {
  const gone = await found(server.settings({ host: "127.0.0.1", port: 1 }));
  expect(gone.store).toMatchObject({ status: "fail", fix: "start the server, or correct store.host and store.port" });
  await server.admin("ALTER ROLE app SET synchronous_commit = off");
  const unsafe = await found(server.settings({ schema: newSchema() }));
  expect(unsafe["store server"]).toMatchObject({ status: "fail", fix: expect.stringMatching(/ALTER SYSTEM SET/) });
  await server.admin("ALTER ROLE app RESET synchronous_commit");
});

test("rights, a wrong clock, an open network and a later version", async () => {
  await server.admin("CREATE ROLE poor LOGIN");
  const schema = newSchema();
  const poor = server.settings({ user: "poor", schema });
  expect((await found(poor))["store rights"]).toMatchObject({
    status: "fail",
    fix: expect.stringContaining(`CREATE SCHEMA IF NOT EXISTS "${schema}" AUTHORIZATION "poor"`),
  });
  await using client = await openClient(server.settings({ schema }));
  await client.write({ "record/a": "A" });
  expect((await found(poor))["store rights"]?.detail).toMatch(/may not use the schema/);
  await server.admin(`GRANT USAGE ON SCHEMA "${schema}" TO poor; GRANT SELECT ON "${schema}".meta TO poor`, "app");
  expect((await found(poor))["store rights"]).toMatchObject({ status: "warn", fix: expect.stringMatching(/OWNER TO/) });
  const world = { ...systemWorld(), wallMs: () => Date.now() + 5_000 };
  expect((await found(poor, world))["store clock"]?.detail).toMatch(/differs by (?:4|5)\d\d\d ms/);
  const tls = { mode: "require", caFile: null, certFile: null, keyFile: null } as const;
  const far = await found({ ...poor, host: "localhost", tls });
  expect(far.store?.detail).toMatch(/offers no TLS/);
  await server.admin(`UPDATE "${schema}".meta SET min_reader = 99`, "app");
  expect((await found(poor))["store rights"]).toMatchObject({ status: "fail", fix: "use that version of sandlot" });
});

test("a replica that does not confirm", async () => {
  const standby = await startPostgres({ standbyOf: server });
  try {
    await expect
      .poll(async () => (await found(server.settings({ schema: newSchema() })))["store replicas"])
      .toMatchObject({ status: "warn", fix: expect.stringMatching(/synchronous_standby_names/) });
  } finally {
    await standby.dispose();
  }
});

test("commits that wait for a replica, and that the role may not end", async () => {
  const settings = server.settings({ schema: newSchema() });
  await using client = await openClient(settings);
  await client.write({ "record/a": "A" });
  expect((await found(settings))["store orphans"]).toMatchObject({
    status: "ok",
    detail: "no commit waits for a replica",
  });
  const requireStandby = async (name: string) => {
    server.configure({ synchronous_standby_names: `'${name}'` });
    await server.reload();
    await expect
      .poll(() => server.admin("SHOW synchronous_standby_names"))
      .toEqual([{ synchronous_standby_names: name }]);
  };
  // With the replica gone it would wait for ever, as every other commit.
  const repair = (fix: string | undefined) =>
    server.admin(`SET synchronous_commit = local; ${statementOf(fix)}`, "app");
  const orphans = async () => (await found(settings))["store orphans"];
  await server.admin("REVOKE EXECUTE ON FUNCTION pg_catalog.pg_cancel_backend(integer) FROM PUBLIC", "app");
  await server.admin("CREATE ROLE second LOGIN");
  await server.admin(`GRANT USAGE ON SCHEMA "${settings.schema}" TO second`, "app");
  await requireStandby("absent");
  try {
    const forbidden = await orphans();
    expect(forbidden).toMatchObject({ status: "warn", detail: expect.stringMatching(/^app may not cancel: /) });
    await repair(forbidden?.fix);
    const shared = await orphans();
    expect(shared).toMatchObject({ status: "warn", detail: expect.stringMatching(/the commits of second/) });
    await repair(shared?.fix);
    expect(await orphans()).toMatchObject({ status: "ok", detail: "app ends the commits of gateways that have died" });
  } finally {
    await requireStandby("");
    await server.admin("GRANT EXECUTE ON FUNCTION pg_catalog.pg_cancel_backend(integer) TO PUBLIC", "app");
  }
});

/** The statement of `psql app -c '…'`. */
function statementOf(fix: string | undefined): string {
  const statement = fix?.match(/-c '([^']+)'/)?.[1];
  if (statement === undefined) throw new Error(`the fix ${fix} has no statement`);
  return statement;
}
