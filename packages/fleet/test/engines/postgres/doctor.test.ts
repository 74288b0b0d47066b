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
