import { describe, expect, expectTypeOf, it } from "vitest";
import { DURATION_MAX_MS } from "../../src/backend/config/amounts.ts";
import { DEFAULTS } from "../../src/config/defaults.ts";
import type { FleetConfig } from "../../src/config/fleet-config.ts";
import { resolveSettings } from "../../src/config/resolve-settings.ts";
import { fleetConfigJsonSchema } from "../../src/config/schema.ts";
import { ENVIRONMENT, refusalOf } from "./refusal.ts";

const OFF_AT_ZERO = ["idleTimeoutMs", "maxLifetimeMs"] as const;
const NEVER_ZERO = [
  "orphanTimeoutMs",
  "acquireTimeoutMs",
  "sessionLifetimeMs",
  "stopTimeoutMs",
  "housekeepingIntervalMs",
] as const;

describe("a type", () => {
  it.each([
    [null, "", "must be an object, but is null"],
    [[], "", "must be an object, but is a list"],
    ["x", "", "must be an object, but is a string"],
    [{ idleTimeoutMs: "soon" }, "idleTimeoutMs", 'must be a duration such as 500ms, 30s, 10m or 1h, but is "soon"'],
    [
      { local: { tmpBytes: "2 gigs" } },
      "local.tmpBytes",
      'must be a size such as 512MiB, 2GiB or 500MB, but is "2 gigs"',
    ],
    [{ idleTimeoutMs: true }, "idleTimeoutMs", "must be a number, but is true"],
    [{ idleTimeoutMs: null }, "idleTimeoutMs", "must be a number, but is null"],
    [{ idleTimeoutMs: 1.5 }, "idleTimeoutMs", "must be a whole number, but is the number 1.5"],
    [{ idleTimeoutMs: Number.NaN }, "idleTimeoutMs", "must be a number, but is NaN"],
    [{ idleTimeoutMs: Number.POSITIVE_INFINITY }, "idleTimeoutMs", "must be a number, but is Infinity"],
    [{ autoRestart: "yes" }, "autoRestart", "must be true or false, but is a string"],
    [{ limits: 3 }, "limits", "must be an object, but is the number 3"],
    [{ limits: { max: [] } }, "limits.max", "must be a number, but is a list"],
    [{ blueprints: { default: [] } }, "blueprints.default", "must be an object, but is a list"],
    [{ blueprints: { default: { mounts: {} } } }, "blueprints.default.mounts", "must be a list, but is an object"],
    [
      { blueprints: { a: { environment: { A: 1 } } } },
      "blueprints.a.environment.A",
      "must be a string, but is the number 1",
    ],
  ])("%j is refused", (config, path, problem) => {
    expect(refusalOf(config)).toEqual({ path, problem });
  });

  it("a value that may be a secret is not shown", () => {
    expect(refusalOf({ blueprints: { a: { environment: "hunter2" } } }).problem).not.toContain("hunter2");
  });
});

describe("a choice", () => {
  it.each([
    [{ limits: { mode: "hrad" } }, "limits.mode", "hard"],
    [{ limits: { onFull: "rejct" } }, "limits.onFull", "reject"],
    [{ store: { type: "sqlite3" } }, "store.type", "sqlite"],
    [{ backend: "Memory" }, "backend", "memory"],
  ])("%j is refused with a suggestion", (config, path, suggestion) => {
    expect(refusalOf(config)).toMatchObject({ path, suggestion, problem: expect.stringContaining(suggestion) });
  });

  it("a backend that does not exist is refused with those that do", () => {
    const problem = 'must be one of local, docker, kubernetes, remote, memory, but is "firecracker"';
    expect(refusalOf({ backend: "firecracker" })).toEqual({ path: "backend", problem });
  });
});

describe("a duration", () => {
  it.each(OFF_AT_ZERO)("%s can be 0, and not below", (key) => {
    expect(resolveSettings({ [key]: 0 }, ENVIRONMENT)[key]).toBe(0);
    expect(resolveSettings({ [key]: 1 }, ENVIRONMENT)[key]).toBe(1);
    expect(refusalOf({ [key]: -1 })).toMatchObject({
      path: key,
      problem: expect.stringContaining("negative; 0 means"),
    });
  });

  it.each(NEVER_ZERO)("%s cannot be 0, and the refusal says why", (key) => {
    for (const value of [0, -1]) {
      const { path, problem } = refusalOf({ [key]: value });
      expect(path).toBe(key);
      expect(problem).toMatch(/^must be at least 1 ms: \w.* \(it is -?\d\)$/);
    }
  });

  it.each([...OFF_AT_ZERO, "acquireTimeoutMs", "stopTimeoutMs"] as const)(
    "%s ends where a timer would overflow",
    (key) => {
      expect(resolveSettings({ [key]: DURATION_MAX_MS }, ENVIRONMENT)[key]).toBe(DURATION_MAX_MS);
      expect(refusalOf({ [key]: DURATION_MAX_MS + 1 })).toMatchObject({
        path: key,
        problem: expect.stringContaining("at most"),
      });
    },
  );

  it("the limit is Node's: one millisecond more would fire at once", () => {
    expect(DURATION_MAX_MS).toBe(2 ** 31 - 1);
  });

  it("nested ones follow the same rule", () => {
    expect(refusalOf({ leakDetection: { afterMs: -1 } }).path).toBe("leakDetection.afterMs");
    expect(refusalOf({ activity: { previewQuietMs: -1 } }).path).toBe("activity.previewQuietMs");
    expect(resolveSettings({ activity: { previewQuietMs: 0 } }, ENVIRONMENT).activity.previewQuietMs).toBe(0);
  });
});

describe("a count", () => {
  it.each([
    [{ limits: { max: 0 } }, "limits.max"],
    [{ limits: { max: -1 } }, "limits.max"],
    [{ limits: { max: 1_000_001 } }, "limits.max"],
    [{ limits: { maxPerUser: -1 } }, "limits.maxPerUser"],
    [{ limits: { queueMax: -1 } }, "limits.queueMax"],
    [{ pool: { default: -1 } }, "pool.default"],
    [{ activity: { cpuShareMin: 0 } }, "activity.cpuShareMin"],
    [{ blueprints: { a: { limits: { pidsMax: 0 } } } }, "blueprints.a.limits.pidsMax"],
    [{ blueprints: { a: { limits: { cpuCount: 0 } } } }, "blueprints.a.limits.cpuCount"],
    [
      { blueprints: { a: { network: { mode: "allowlist", allow: [{ host: "h", ports: [0] }] } } } },
      "blueprints.a.network.allow[0].ports[0]",
    ],
    [
      { blueprints: { a: { network: { mode: "allowlist", allow: [{ host: "h", ports: [65_536] }] } } } },
      "blueprints.a.network.allow[0].ports[0]",
    ],
    [
      { blueprints: { a: { network: { mode: "allowlist", allow: [{ host: "h", ports: [] }] } } } },
      "blueprints.a.network.allow[0].ports",
    ],
  ])("%j is refused", (config, path) => {
    expect(refusalOf(config)).toMatchObject({ path, problem: expect.stringMatching(/^must /) });
  });

  it("the smallest ones are accepted", () => {
    const settings = resolveSettings(
      { limits: { max: 1, maxPerUser: 0, queueMax: 0 }, pool: { default: 0 } },
      ENVIRONMENT,
    );
    expect(settings.limits).toMatchObject({ max: 1, maxPerUser: 0, queueMax: 0 });
  });
});

describe("a name", () => {
  it.each(["a", "7", "a-b", "a".repeat(40)])("the fleet id %s is accepted", (fleetId) => {
    expect(resolveSettings({ fleetId }, ENVIRONMENT).fleetId).toBe(fleetId);
  });

  it.each(["", "-a", "a-", "A", "a_b", "a.b", "a b", "ä", "a\n", "a".repeat(41)])(
    "the fleet id %j is refused",
    (fleetId) => {
      expect(refusalOf({ fleetId })).toMatchObject({ path: "fleetId", problem: expect.stringContaining("lower-case") });
    },
  );

  it.each(["", "-a", "a b", "a/b", "a".repeat(65)])("the blueprint name %j is refused", (name) => {
    expect(refusalOf({ blueprints: { [name]: {} } }).problem).toContain("the name of a blueprint");
  });

  it.each(["", "1A", "A-B", "A B", "A="])("the variable name %j is refused", (name) => {
    expect(refusalOf({ blueprints: { a: { environment: { [name]: "x" } } } }).problem).toContain(
      "the name of a variable",
    );
  });
});

describe("the JSON Schema", () => {
  /** Every property with its path, through objects, maps and lists. */
  function* properties(schema: unknown, path: string): Generator<[string, Record<string, unknown>]> {
    if (schema === null || typeof schema !== "object") return;
    const { properties: inner = {}, additionalProperties, items } = schema as Record<string, unknown>;
    for (const [key, value] of Object.entries(inner as object)) {
      yield [`${path}.${key}`, value];
      yield* properties(value, `${path}.${key}`);
    }
    yield* properties(additionalProperties, `${path}.*`);
    yield* properties(items, `${path}[]`);
  }

  const schema = fleetConfigJsonSchema();
  const all = [...properties(schema, "")];

  it("describes every key, and forbids every other", () => {
    expect(all.length).toBeGreaterThan(40);
    expect(all.filter(([, { description }]) => typeof description !== "string").map(([path]) => path)).toEqual([]);
    const open = all.filter(([, value]) => "properties" in value && value.additionalProperties !== false);
    expect(open.map(([path]) => path)).toEqual([]);
    expect(schema).toMatchObject({ additionalProperties: false, title: expect.any(String) });
  });

  it("requires no key at the top, and shows the defaults", () => {
    expect(schema).not.toHaveProperty("required");
    const defaults = Object.fromEntries(all.map(([path, value]) => [path, value.default]));
    expect(defaults).toMatchObject({
      ".idleTimeoutMs": DEFAULTS.idleTimeoutMs,
      ".limits.max": DEFAULTS.limits.max,
      ".store.type": "sqlite",
      ".leakDetection.captureStacks": false,
    });
  });

  it("can be written and read again", () => {
    expect(JSON.parse(JSON.stringify(schema))).toEqual(schema);
  });
});

it("a constant is a configuration too", () => {
  const config = { pool: { default: 1 }, blueprints: { default: { mounts: [] } }, limits: { mode: "soft" } } as const;
  expectTypeOf(config).toExtend<FleetConfig>();
  expectTypeOf<{ limits: { mode: "medium" } }>().not.toExtend<FleetConfig>();
  expect(resolveSettings(config, ENVIRONMENT).limits.mode).toBe("soft");
});
