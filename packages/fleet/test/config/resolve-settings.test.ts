import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir, userInfo } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { DEFAULTS } from "../../src/config/defaults.ts";
import { resolveSettings } from "../../src/config/resolve-settings.ts";
import { FLEET_ID_PATTERN } from "../../src/config/schema.ts";
import { ENVIRONMENT, refusalOf } from "./refusal.ts";

const folder = mkdtempSync(join(tmpdir(), "sandlot-config-"));
afterAll(() => rmSync(folder, { recursive: true }));

describe("the defaults", () => {
  const settings = resolveSettings(undefined, ENVIRONMENT);

  it("are complete", () => {
    const { store: _, network: _network, mount: _mount, setup: _setup, ...values } = DEFAULTS;
    expect(settings).toMatchObject(values);
    expect(settings.store).toEqual({ type: "sqlite", path: "/home/tester/.local/state/sandlot/fleet.db" });
    // A real backend cannot find a sandbox in the memory of another process.
    const { store } = resolveSettings({ backend: "memory" }, ENVIRONMENT);
    expect(store).toEqual({ type: "sqlite", path: "/home/tester/.local/state/sandlot/fleet-memory.db" });
    expect(settings.blueprints.default).toMatchObject({
      name: "default",
      blueprint: { environment: {}, limits: {}, mounts: [], network: { mode: "none", allow: [], secrets: [] } },
    });
  });

  it("are the same for an empty configuration and for undefined values", () => {
    expect(resolveSettings({}, ENVIRONMENT)).toEqual(settings);
    expect(resolveSettings({ limits: undefined, idleTimeoutMs: undefined, home: undefined }, ENVIRONMENT)).toEqual(
      settings,
    );
    expect(resolveSettings({ limits: {}, store: {}, activity: {}, blueprints: { default: {} } }, ENVIRONMENT)).toEqual(
      settings,
    );
  });

  it("pass the check they are themselves subject to when spelled out", () => {
    const { store: _, network: _network, mount: _mount, setup: _setup, ...values } = DEFAULTS;
    expect(resolveSettings(values, ENVIRONMENT)).toEqual(settings);
  });
});

describe("the maximum lifetime on a cluster", () => {
  const HOUR_MS = 3_600_000;
  const lifetime = (maxLifetimeMs: number | undefined, hardLifetimeMs: string | undefined) =>
    resolveSettings({ backend: "kubernetes", maxLifetimeMs, kubernetes: { hardLifetimeMs } }, ENVIRONMENT)
      .maxLifetimeMs;

  it("ends an hour before the cluster ends the pod, where that is earlier", () => {
    expect(lifetime(undefined, undefined)).toBe(24 * HOUR_MS);
    expect(lifetime(undefined, "10h")).toBe(9 * HOUR_MS);
    expect(lifetime(5 * HOUR_MS, "10h")).toBe(5 * HOUR_MS);
    expect(lifetime(0, "10h")).toBe(9 * HOUR_MS);
    expect(lifetime(0, undefined)).toBe(167 * HOUR_MS);
  });

  it("leaves an hour for leases", () => {
    expect(lifetime(0, "2h")).toBe(HOUR_MS);
    expect(refusalOf({ backend: "kubernetes", kubernetes: { hardLifetimeMs: "119m" } })).toMatchObject({
      path: "kubernetes.hardLifetimeMs",
      problem: "must be at least 7200000 ms: a pod takes no lease in its last hour",
    });
  });

  it("is the configured one on engines that end nothing by age", () => {
    expect(
      resolveSettings({ maxLifetimeMs: 0, kubernetes: { hardLifetimeMs: "10h" } }, ENVIRONMENT).maxLifetimeMs,
    ).toBe(0);
  });
});

describe("settings", () => {
  const settings = resolveSettings(
    {
      blueprints: { python: { mounts: [{ hostPath: "/a", sandboxPath: "/a" }], environment: { A: "b" } } },
      pool: { python: 2 },
    },
    ENVIRONMENT,
  );

  it("are frozen at every depth", () => {
    function* objects(value: unknown): Generator<object> {
      if (value === null || typeof value !== "object") return;
      yield value;
      for (const inner of Object.values(value)) yield* objects(inner);
    }
    const all = [...objects(settings)];
    expect(all.length).toBeGreaterThan(10);
    expect(all.filter((value) => !Object.isFrozen(value))).toEqual([]);
  });

  it("leave what they were made from as it was", () => {
    const config = { blueprints: { a: { mounts: [] as object[] } }, limits: { max: 3 } };
    resolveSettings(config, ENVIRONMENT);
    config.blueprints.a.mounts.push({});
    config.limits.max = 4;
    expect(config.limits.max).toBe(4);
  });

  it("have no blueprint that is not configured, under any name", () => {
    for (const name of ["constructor", "toString", "__proto__", "hasOwnProperty"]) {
      expect(settings.blueprints[name]).toBeUndefined();
      expect(settings.pool[name]).toBeUndefined();
    }
  });

  it("always have the default blueprint beside the configured ones", () => {
    expect(Object.keys(settings.blueprints).sort()).toEqual(["default", "python"]);
    expect(settings.blueprints.python?.hash).not.toBe(settings.blueprints.default?.hash);
  });

  it("give another hash to a blueprint that is isolated with something else", () => {
    const blueprints = { plain: {}, gvisor: { runtime: "runsc" }, kata: { runtime: "kata" } };
    const settings = resolveSettings({ blueprints }, ENVIRONMENT);
    expect(new Set(Object.keys(blueprints).map((name) => settings.blueprints[name]?.hash)).size).toBe(3);
    expect(settings.blueprints.gvisor?.blueprint.runtime).toBe("runsc");
  });

  it("give one hash to blueprints that differ in the order of keys only", () => {
    const hash = (environment: object) =>
      resolveSettings({ blueprints: { a: { environment } } }, ENVIRONMENT).blueprints.a?.hash;
    expect(hash({ A: "1", B: "2" })).toBe(hash({ B: "2", A: "1" }));
  });

  it("mount read-only by default", () => {
    expect(settings.blueprints.python?.blueprint.mounts[0]?.readOnly).toBe(true);
  });
});

describe("home", () => {
  it.each([
    [{ HOME: "/h", SANDLOT_HOME: "/s", XDG_STATE_HOME: "/x" }, "/s"],
    [{ HOME: "/h", SANDLOT_HOME: "", XDG_STATE_HOME: "/x" }, "/x/sandlot"],
    [{ HOME: "/h", XDG_STATE_HOME: "" }, "/h/.local/state/sandlot"],
    [{ HOME: "/h", XDG_STATE_HOME: "relative" }, "/h/.local/state/sandlot"],
    [{}, join(userInfo().homedir, ".local/state/sandlot")],
    [{ HOME: "" }, join(userInfo().homedir, ".local/state/sandlot")],
    [{ HOME: "here" }, join(userInfo().homedir, ".local/state/sandlot")],
  ])("from %j is %s", (environment, home) => {
    expect(resolveSettings({}, environment)).toMatchObject({ home, store: { path: join(home, "fleet.db") } });
  });

  it("that is configured wins, and is tidied", () => {
    expect(resolveSettings({ home: "/a/b/../c/" }, { SANDLOT_HOME: "relative" }).home).toBe("/a/c");
  });

  it("is refused when it is relative, with the absolute path that was probably meant", () => {
    expect(refusalOf({ home: "state" })).toMatchObject({ path: "home", suggestion: resolve("state") });
    expect(refusalOf({ home: "~/state" })).toMatchObject({ path: "home", suggestion: "/home/tester/state" });
    expect(refusalOf({ home: "~" })).toMatchObject({ suggestion: "/home/tester" });
    expect(refusalOf({}, { SANDLOT_HOME: "state" })).toMatchObject({
      path: "home",
      problem: expect.stringContaining("$SANDLOT_HOME"),
    });
  });

  it.each(["", "/a\0b"])("is refused when it is %j", (home) => {
    expect(refusalOf({ home }).path).toBe("home");
  });

  it("is refused when it is a file", () => {
    const home = join(folder, "file");
    writeFileSync(home, "");
    expect(refusalOf({ home })).toMatchObject({ path: "home", problem: expect.stringContaining("is a file") });
  });
});

describe("the fleet id", () => {
  it("follows from home, is stable, and passes its own check", () => {
    const ids = ["/a", "/a/", "/b/../a", "/b"].map((home) => resolveSettings({ home }, ENVIRONMENT).fleetId);
    expect(new Set(ids.slice(0, 3)).size).toBe(1);
    expect(ids[3]).not.toBe(ids[0]);
    expect(ids[0]).toMatch(FLEET_ID_PATTERN);
  });

  it("is the same through a symlink, before and after home exists", () => {
    const real = join(folder, "real");
    mkdirSync(real);
    symlinkSync(real, join(folder, "link"));
    const id = (path: string) => resolveSettings({ home: join(folder, path, "fleet") }, ENVIRONMENT).fleetId;
    const before = id("real");
    expect(id("link")).toBe(before);
    mkdirSync(join(real, "fleet"));
    expect(id("link")).toBe(before);
    expect(id("real")).toBe(before);
  });
});

describe("the store", () => {
  it("can be in memory, or in a file elsewhere", () => {
    expect(resolveSettings({ store: { type: "memory" } }, ENVIRONMENT).store).toEqual({ type: "memory" });
    expect(resolveSettings({ store: { path: "/x/y.db" } }, ENVIRONMENT).store).toEqual({
      type: "sqlite",
      path: "/x/y.db",
    });
  });

  it("in memory has no path", () => {
    expect(refusalOf({ store: { type: "memory", path: "/x" } })).toMatchObject({
      path: "store.path",
      problem: expect.stringContaining("means nothing"),
    });
  });

  it("is refused at a relative path", () => {
    expect(refusalOf({ store: { path: "x.db" } })).toMatchObject({ path: "store.path", suggestion: resolve("x.db") });
    expect(refusalOf({ store: { path: ":memory:" } }).problem).toContain("set store.type to memory");
    expect(refusalOf({ store: { path: "" } }).path).toBe("store.path");
  });

  it("is refused where a directory is, or is meant", () => {
    expect(refusalOf({ store: { path: folder } })).toEqual({
      path: "store.path",
      problem: `must be a file, but ${folder} is a directory`,
      suggestion: join(folder, "fleet.db"),
    });
    expect(refusalOf({ store: { path: "/not/there/" } }).suggestion).toBe("/not/there/fleet.db");
    expect(refusalOf({ home: "/not/there", store: { path: "/not/there" } }).suggestion).toBe("/not/there/fleet.db");
  });

  it("is refused when a directory stands at its default place", () => {
    const home = join(folder, "occupied");
    mkdirSync(join(home, "fleet.db"), { recursive: true });
    expect(refusalOf({ home })).toMatchObject({
      path: "store.path",
      problem: expect.stringContaining(join(home, "fleet.db")),
    });
  });
});
