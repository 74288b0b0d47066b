/** The section `store` of a configuration with the type `postgres`: what it becomes, and what is wrong with it. */

import { describe, expect, it } from "vitest";
import { problemsFrom } from "../../src/config/problems.ts";
import { resolveSettings } from "../../src/config/resolve-settings.ts";
import { POSTGRES_STORE } from "../../src/store/postgres/entry.ts";
import type { PostgresSettings } from "../../src/store/postgres/settings.ts";

const WHO = { type: "postgres", database: "fleet", user: "sandlot" };
const resolve = (store: object, more: object = {}) =>
  resolveSettings({ home: "/tmp/nowhere", store, ...more }, {}).store as PostgresSettings;
const problems = (store: object, more: object = {}) =>
  problemsFrom(() => resolve(store, more)).map(({ path, problem }) => `${path} ${problem}`);

describe("the settings of a PostgreSQL store", () => {
  it("have defaults for all but the database and the user", () => {
    expect(resolve(WHO)).toEqual({
      type: "postgres",
      host: "127.0.0.1",
      port: 5432,
      database: "fleet",
      user: "sandlot",
      passwordFile: null,
      schema: "sandlot",
      tls: null,
      poolMax: 8,
      timeoutMs: 5_000,
    });
    expect(problems({ type: "postgres" })).toEqual([
      "store.database must be set with the store type postgres",
      "store.user must be set with the store type postgres",
    ]);
  });

  it("come from a URL as well", () => {
    const url = "postgres://us%65r@db.example:6432/fle%20et?sslmode=verify-ca";
    expect(resolve({ type: "postgres", url })).toMatchObject({
      host: "db.example",
      port: 6432,
      database: "fle et",
      user: "user",
      tls: { mode: "verify-ca", caFile: null },
    });
    expect(resolve({ type: "postgres", url: "postgresql://a@[::1]/b" })).toMatchObject({ host: "::1", tls: null });
    const socket = resolve({ type: "postgres", url: "postgres://a@localhost/b?host=/run/postgresql" });
    expect(socket).toMatchObject({ host: "/run/postgresql", port: 5432 });
    expect(POSTGRES_STORE.describe(socket)).toBe(
      "postgres at /run/postgresql/.s.PGSQL.5432, database b, schema sandlot",
    );
  });

  it("refuse several hosts, and say what to name instead", () => {
    const several =
      /names several hosts, and a gateway connects to one; give one name that always leads to the primary/;
    for (const url of [
      "postgres://user@one.example:5432,two.example:5433/db",
      "postgres://one.example,two.example/db?sslmode=require",
      "postgresql://user@/db?host=one.example,two.example",
      "postgresql://user@one.example/db?host=one.example&host=two.example",
    ]) {
      const found = problems({ type: "postgres", url });
      expect(found).toEqual([expect.stringMatching(several)]);
      expect(found[0]).toMatch(/^store\.url /);
    }
    expect(problems({ ...WHO, host: "one.example,two.example" })).toEqual([
      expect.stringMatching(/^store\.host names/),
    ]);
    expect(problems({ type: "postgres", url: "postgres://user@one.example/db,2" })).toEqual([]);
  });

  it("refuse a password in a URL without showing it", () => {
    for (const url of ["postgres://user:s3cret@host/db", "postgres://user@host/db?password=s3cret"]) {
      const [problem, ...others] = problems({ type: "postgres", url });
      expect(problem).toMatch(
        /^store.url has a password, which logs and process lists would show; .*SANDLOT_POSTGRES_PASSWORD/,
      );
      expect(problem).not.toContain("s3cret");
      expect(others).toEqual([]);
    }
  });

  it("refuse what does not fit together", () => {
    const url = "postgres://user@host/db";
    expect(problems({ type: "postgres", url, host: "other" })).toEqual([
      "store.host is in store.url already; give one of them",
    ]);
    expect(problems({ type: "postgres", url: "mysql://user@host/db" })[0]).toMatch(/must be a URL such as postgres:/);
    expect(problems({ type: "postgres", url: "postgres://user@host" })).toEqual(["store.url must name the database"]);
    expect(problems({ type: "postgres", url: `${url}?target=x` })).toEqual([
      "store.url has the parameter target; known are sslmode and host",
    ]);
    expect(problems({ type: "postgres", url: `${url}?sslmode=require`, tls: { mode: "verify-full" } })).toEqual([
      "store.tls.mode is verify-full, but store.url has sslmode=require; give one of them",
    ]);
    expect(problems({ ...WHO, tls: { certFile: "/c" } })).toEqual([
      "store.tls.keyFile must be set too: a certificate needs its key",
    ]);
    expect(problems({ ...WHO, host: "/run/postgresql", tls: {} })).toEqual([
      "store.tls means nothing for a socket on this machine; remove it",
    ]);
    expect(problems({ ...WHO, passwordFile: "relative" })[0]).toMatch(/^store.passwordFile must be an absolute path/);
    expect(problems({ ...WHO, database: 3 })).toEqual([
      "store.database must be a name with the store type postgres (it is 3)",
    ]);
    expect(problems({ ...WHO, schema: "Fleet" })[0]).toMatch(/^store.schema must be 1 to 40 lower-case letters/);
    expect(problems({ ...WHO, schema: "pg_x" })[0]).toMatch(/^store.schema must not begin with pg_/);
    expect(problems({ ...WHO, poolMax: 0 })[0]).toMatch(/^store.poolMax must be at least 1/);
    expect(problems({ ...WHO, path: "/x" })).toEqual([
      "store.path means nothing with the store type postgres; remove it, or set store.type to sqlite",
    ]);
  });

  it("allow calls of less than half a session's lifetime", () => {
    const lifetime = { sessionLifetimeMs: 10_000, housekeepingIntervalMs: 1_000 };
    expect(resolve({ ...WHO, timeoutMs: "4999ms" }, lifetime).timeoutMs).toBe(4_999);
    expect(resolve(WHO, lifetime).timeoutMs).toBe(4_999);
    expect(problems({ ...WHO, timeoutMs: 5_000 }, lifetime)).toEqual([
      "store.timeoutMs is 5000, but must be less than half of sessionLifetimeMs (10000), so that one slow call does not end a session",
    ]);
  });
});
