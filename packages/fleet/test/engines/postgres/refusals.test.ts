/** What the PostgreSQL store refuses at open, with the setting and the command that mends it; logins, TLS and rights. */

import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { inspect } from "node:util";
import { isSandlotError } from "@sandlot/contract";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { refusalOf, type ServerFacts } from "../../../src/store/postgres/connect.ts";
import { openPostgresRowServer } from "../../../src/store/postgres/postgres-row-server.ts";
import type { PostgresSettings, PostgresTls } from "../../../src/store/postgres/settings.ts";
import { newSchema, openClient, problemOf, until, world } from "./postgres-harness.ts";
import { missingPostgres, type PostgresServer, startPostgres } from "./postgres-server.ts";

const missing = missingPostgres();
const test =
  missing === null ? it : (name: string, _: () => Promise<void>) => it(name, (context) => context.skip(missing));
const PASSWORD = "rIght-s3cret";

let server: PostgresServer;
let files: string;
beforeAll(async () => {
  files = mkdtempSync(join(tmpdir(), "sl-pg-files-"));
  if (missing !== null) return;
  server = await startPostgres({
    hba: [
      "local all trusted trust",
      "hostssl all app 127.0.0.1/32 scram-sha-256",
      "host all app 127.0.0.1/32 scram-sha-256",
    ],
  });
  await server.admin(`ALTER ROLE app PASSWORD '${PASSWORD}'`);
  await server.admin("CREATE ROLE trusted LOGIN");
  await server.admin("GRANT CREATE ON DATABASE app TO trusted");
});
afterAll(async () => {
  await server?.dispose();
  rmSync(files, { recursive: true, force: true });
});

const open = (settings: PostgresSettings) => openPostgresRowServer(settings, world);
const trusted = (over: Partial<PostgresSettings> = {}) =>
  server.settings({ user: "trusted", schema: newSchema(), ...over });

describe("a server on which acknowledged commits can be lost", () => {
  for (const setting of ["fsync", "full_page_writes", "synchronous_commit"]) {
    test(`with ${setting} = off is refused at open and while it is used`, async () => {
      await using client = await openClient(trusted());
      await client.write({ "record/a": "A" });
      server.configure({ [setting]: "off" });
      await server.reload();
      try {
        const expected = new RegExp(`has ${setting} = off.*ALTER SYSTEM SET ${setting} = on; SELECT pg_reload_conf`);
        await expect.poll(() => problemOf(open(trusted())).catch(() => "opened")).toMatch(expected);
        await expect.poll(() => problemOf(client.write({ "record/a": "B" })).catch(() => "written")).toMatch(expected);
      } finally {
        server.configure({ [setting]: "on" });
        await server.reload();
      }
      await until(() => client.write({ "record/a": "C" }));
    });
  }

  test("for one role only is refused as well", async () => {
    await server.admin("ALTER ROLE trusted SET synchronous_commit = off");
    try {
      expect(await problemOf(open(trusted()))).toMatch(/ALTER ROLE … \/ ALTER DATABASE … RESET synchronous_commit/);
    } finally {
      await server.admin("ALTER ROLE trusted RESET synchronous_commit");
    }
  });
});

test("a database with another encoding is refused", async () => {
  await server.admin("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
  expect(await problemOf(open(trusted({ database: "latin" })))).toMatch(
    /server_encoding = LATIN1.*createdb --encoding=UTF8/,
  );
});

it("a version before 15, and a standby, are refused", () => {
  const facts: ServerFacts = {
    version: 15,
    versionText: "15.18",
    isStandby: false,
    isReadOnly: false,
    encoding: "UTF8",
    unsafe: [],
    cluster: "1.2",
    synchronousCommit: "on",
    synchronousStandbys: "",
    replicaCount: 0,
    nowMs: 0,
  };
  expect(refusalOf(facts, "db:5432")).toBe(null);
  expect(refusalOf({ ...facts, version: 14, versionText: "14.2" }, "db:5432")).toMatch(
    /PostgreSQL 14.2; use 15 or newer \(pg_upgrade/,
  );
  expect(refusalOf({ ...facts, isStandby: true }, "db:5432")).toMatch(
    /is a standby; connect to the primary.*pg_ctl promote/,
  );
});

test("rights: an own schema is enough, and none is told", async () => {
  await server.admin("CREATE ROLE least LOGIN");
  await server.write("pg_hba.conf", ["local all all trust", "host all app 127.0.0.1/32 scram-sha-256"].join("\n"));
  await server.reload();
  const schema = newSchema();
  const settings = server.settings({ user: "least", schema });
  await expect
    .poll(() => problemOf(open(settings)).catch(() => "opened"))
    .toMatch(/the role lacks a right; let it own the schema: CREATE SCHEMA … AUTHORIZATION/);
  await server.admin(`CREATE SCHEMA "${schema}" AUTHORIZATION least`, "app");
  await using client = await openClient(settings);
  await client.write({ "record/a": "A" }, { topics: ["room"] });
  expect((await client.rows.scan(null, 10, AbortSignal.timeout(5_000)))?.rows.length).toBe(1);
  expect(await client.rows.purgeBatch(-1)).toBe(false);
});

describe("logins", () => {
  const loopback = (over: Partial<PostgresSettings> = {}) =>
    server.settings({ host: "127.0.0.1", schema: newSchema(), ...over });

  test("the password comes from a file or the environment", async () => {
    const path = join(files, "password");
    writeFileSync(path, `${PASSWORD}\n`);
    await (await open(loopback({ passwordFile: path }))).close();
    process.env.SANDLOT_POSTGRES_PASSWORD = PASSWORD;
    // The driver's own variables count for nothing.
    process.env.PGPASSWORD = "wrong";
    process.env.PGHOST = "nowhere";
    try {
      await (await open(loopback())).close();
    } finally {
      for (const name of ["SANDLOT_POSTGRES_PASSWORD", "PGPASSWORD", "PGHOST"]) delete process.env[name];
    }
  });

  test("a wrong or missing password is told without showing it", async () => {
    const path = join(files, "wrong");
    writeFileSync(path, "wr0ng-s3cret");
    const error = await open(loopback({ passwordFile: path })).catch((reason: unknown) => reason);
    expect(isSandlotError(error, "store_unavailable")).toBe(true);
    expect(String(error)).toMatch(/refused the password; check SANDLOT_POSTGRES_PASSWORD or store.passwordFile/);
    expect(inspect(error, { depth: 10, showHidden: true })).not.toContain("wr0ng-s3cret");
    expect(await problemOf(open(loopback()))).toMatch(/asks for a password|refused the password/);
    const gone = loopback({ passwordFile: join(files, "none") });
    expect(await problemOf(open(gone))).toMatch(/store.passwordFile: .* cannot be read \(ENOENT\)/);
  });

  test("errors of statements show neither rows nor passwords", async () => {
    const schema = newSchema();
    await using client = await openClient(trusted({ schema }));
    // An error whose detail quotes the row.
    await server.admin(`ALTER TABLE "${schema}".rows ADD CONSTRAINT small CHECK (length(body) < 10)`, "app");
    const error = await client.write({ "record/a": "token-of-a-sandbox" }).catch((reason: unknown) => reason);
    expect(isSandlotError(error, "store_unavailable")).toBe(true);
    expect(inspect(error, { depth: 10, showHidden: true })).not.toContain("token-of-a-sandbox");
  });

  test("a database that does not exist, and a port where nothing listens", async () => {
    expect(await problemOf(open(trusted({ database: "none" })))).toMatch(
      /the database does not exist; make it with: createdb/,
    );
    expect(await problemOf(open(loopback({ port: 1 })))).toMatch(
      /127.0.0.1:1: nothing listens there; start the server/,
    );
    expect(await problemOf(open(trusted({ host: "/nowhere" })))).toMatch(/there is no such socket/);
  });
});

describe("TLS", () => {
  const tls = (over: Partial<PostgresTls>): Partial<PostgresSettings> => ({
    host: "localhost",
    passwordFile: join(files, "password"),
    schema: newSchema(),
    tls: { mode: "verify-full", caFile: join(files, "ca.crt"), certFile: null, keyFile: null, ...over },
  });

  beforeAll(async () => {
    if (missing !== null) return;
    writeFileSync(join(files, "password"), PASSWORD);
    authority("ca");
    authority("other");
    certificate("server", "/CN=localhost", "subjectAltName=DNS:localhost");
    certificate("elsewhere", "/CN=elsewhere", "subjectAltName=DNS:elsewhere");
    certificate("client", "/CN=app", "subjectAltName=DNS:app");
    use("server");
    server.configure({
      ssl: "on",
      ssl_ca_file: "'ca.crt'",
      ssl_cert_file: "'server.crt'",
      ssl_key_file: "'server.key'",
    });
    for (const name of ["ca.crt"]) server.write(name, readFileSync(join(files, name), "utf8"));
    server.write(
      "pg_hba.conf",
      [
        "local all all trust",
        "hostssl certified all 127.0.0.1/32 cert map=any",
        "hostssl all app 127.0.0.1/32 scram-sha-256",
        "hostssl all app ::1/128 scram-sha-256",
      ].join("\n"),
    );
    server.write("pg_ident.conf", "any app app");
    await server.admin("CREATE DATABASE certified OWNER app");
    await server.restart();
  });

  test("is used, and the server's certificate and name are checked", async () => {
    await using client = await openClient(server.settings(tls({})));
    await client.write({ "record/a": "A" });
    const [used] = await server.admin(
      "SELECT count(*)::int AS count FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE ssl AND usename = 'app'",
    );
    expect(used?.count).toBeGreaterThan(0);
    await (await open(server.settings(tls({ mode: "verify-ca" })))).close();
    await (await open(server.settings(tls({ mode: "require", caFile: null })))).close();
  });

  test("a statement that is given up is stopped at the server over TLS too", async () => {
    await using client = await openClient(server.settings(tls({})));
    server.configure({ synchronous_standby_names: "'absent'" });
    await server.reload();
    try {
      const commit = await client.commitOf({ "record/a": "A" });
      await problemOf(client.rows.commit(commit, AbortSignal.timeout(500)));
      const waiting = () => server.admin("SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
      await expect.poll(waiting).toEqual([]);
      expect(await client.body("record/a")).toBe("A");
    } finally {
      server.configure({ synchronous_standby_names: "''" });
      await server.reload();
    }
  });

  test("a certificate of another authority is refused", async () => {
    for (const mode of ["verify-ca", "verify-full"] as const) {
      const problem = await problemOf(open(server.settings(tls({ mode, caFile: join(files, "other.crt") }))));
      expect(problem).toMatch(
        /certificate is .*; set store.tls.caFile|not signed by the authority of store.tls.caFile/,
      );
    }
    expect(await problemOf(open(server.settings(tls({ caFile: null }))))).toMatch(/store.tls.caFile/);
  });

  test("a certificate for another host is refused by verify-full only", async () => {
    use("elsewhere");
    server.configure({ ssl_cert_file: "'elsewhere.crt'", ssl_key_file: "'elsewhere.key'" });
    await server.reload();
    await expect
      .poll(() => problemOf(open(server.settings(tls({})))).catch(() => "opened"))
      .toMatch(/certificate is for another host; use that name in store.host/);
    await (await open(server.settings(tls({ mode: "verify-ca" })))).close();
    server.configure({ ssl_cert_file: "'server.crt'", ssl_key_file: "'server.key'" });
    await server.reload();
  });

  test("a server without it is told what to set, and one that insists on it too", async () => {
    expect(await problemOf(open(server.settings({ ...tls({}), tls: null })))).toMatch(
      /refused the login; check .*pg_hba.conf/,
    );
    server.configure({ ssl: "off" });
    await server.restart();
    expect(await problemOf(open(server.settings(tls({}))))).toMatch(
      /offers no TLS; set ssl = on there, or store.tls.mode/,
    );
    server.configure({ ssl: "on" });
    await server.restart();
  });

  test("a client's certificate instead of a password", async () => {
    const keys = { certFile: join(files, "client.crt"), keyFile: join(files, "client.key") };
    const settings = server.settings({
      ...tls(keys),
      host: "127.0.0.1",
      database: "certified",
      passwordFile: null,
    });
    const tolerant = { ...settings, tls: { mode: "verify-ca", caFile: join(files, "ca.crt"), ...keys } as const };
    await using client = await openClient(tolerant);
    await client.write({ "record/a": "A" });
    const without = { ...tolerant, schema: newSchema(), tls: { ...tolerant.tls, certFile: null, keyFile: null } };
    expect(await problemOf(open(without))).toMatch(/refused the login/);
  });

  const openssl = (...args: readonly string[]) => execFileSync("openssl", [...args], { cwd: files, stdio: "pipe" });

  function authority(name: string): void {
    openssl(
      "req",
      "-x509",
      "-newkey",
      "rsa:2048",
      "-nodes",
      "-days",
      "2",
      "-subj",
      `/CN=${name}`,
      "-keyout",
      `${name}.key`,
      "-out",
      `${name}.crt`,
    );
  }

  function certificate(name: string, subject: string, extension: string): void {
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", subject, "-keyout", `${name}.key`, "-out", `${name}.csr`);
    writeFileSync(join(files, `${name}.ext`), extension);
    openssl(
      "x509",
      "-req",
      "-in",
      `${name}.csr`,
      "-CA",
      "ca.crt",
      "-CAkey",
      "ca.key",
      "-CAcreateserial",
      "-days",
      "2",
      "-extfile",
      `${name}.ext`,
      "-out",
      `${name}.crt`,
    );
  }

  function use(name: string): void {
    for (const kind of ["crt", "key"])
      server.write(`${name}.${kind}`, readFileSync(join(files, `${name}.${kind}`), "utf8"));
  }
});
