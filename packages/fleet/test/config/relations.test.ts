import { isSandlotError } from "@sandlot/contract";
import { describe, expect, it } from "vitest";
import type { Capability } from "../../src/backend/backend.ts";
import { neededCapabilities, requireCapabilities } from "../../src/config/capabilities.ts";
import { resolveSettings } from "../../src/config/resolve-settings.ts";
import { ENVIRONMENT, refusalOf } from "./refusal.ts";

const accepted = (config: unknown) => resolveSettings(config, ENVIRONMENT);

describe("limits", () => {
  const blueprints = { a: {}, b: {} };

  it("have room for every blank", () => {
    expect(accepted({ blueprints, pool: { a: 2, b: 3 }, limits: { max: 5 } }).limits.max).toBe(5);
    expect(refusalOf({ blueprints, pool: { a: 2, b: 3 }, limits: { max: 4 } })).toEqual({
      path: "limits.max",
      problem: "is 4, but pool asks for 5 blank sandboxes; raise it or ask for fewer",
    });
  });

  it("give no user more than there is", () => {
    expect(accepted({ limits: { max: 3, maxPerUser: 3 } }).limits.maxPerUser).toBe(3);
    expect(refusalOf({ limits: { max: 3, maxPerUser: 4 } })).toMatchObject({
      path: "limits.maxPerUser",
      problem: expect.stringContaining("limits.max is 3"),
    });
    expect(refusalOf({ limits: { max: 3, users: { alice: { max: 4 } } } })).toMatchObject({
      path: "limits.users.alice.max",
      problem: expect.stringContaining("limits.max is 3"),
    });
  });
});

describe("a network", () => {
  const withHost = (host: string, addresses?: readonly string[]) => ({
    blueprints: {
      a: { network: { mode: "allowlist", allow: [{ host, ports: [80], ...(addresses && { addresses }) }] } },
    },
  });

  it("names hosts and addresses that can be asked for", () => {
    expect(() => accepted(withHost("*.example.org", ["10.0.0.0/8"]))).not.toThrow();
    for (const host of ["a b", "http://a/", "*", "a.*.b"])
      expect(refusalOf(withHost(host)).path).toBe("blueprints.a.network.allow[0].host");
    expect(refusalOf(withHost("a.example", ["10.0.0.0/33"])).path).toBe("blueprints.a.network.allow[0].addresses[0]");
  });
});

describe("the pool", () => {
  it("names configured blueprints, or the default one", () => {
    expect({ ...accepted({ pool: { default: 1 } }).pool }).toEqual({ default: 1 });
    expect(refusalOf({ blueprints: { python: {} }, pool: { pyhton: 1 } })).toEqual({
      path: "pool.pyhton",
      problem: "names a blueprint that is not configured; configured are default, python",
      suggestion: "python",
    });
    expect(refusalOf({ pool: { constructor: 1 } }).path).toBe("pool.constructor");
  });
});

describe("durations", () => {
  it("let housekeeping look three times in a session lifetime", () => {
    expect(accepted({ sessionLifetimeMs: 3_000, housekeepingIntervalMs: 1_000 }).housekeepingIntervalMs).toBe(1_000);
    expect(refusalOf({ sessionLifetimeMs: 3_000, housekeepingIntervalMs: 1_001 })).toMatchObject({
      path: "housekeepingIntervalMs",
      problem: expect.stringContaining("use at most 1000"),
    });
    expect(refusalOf({ sessionLifetimeMs: 14_999 }).path).toBe("housekeepingIntervalMs");
    expect(accepted({ sessionLifetimeMs: 3, housekeepingIntervalMs: 1 }).sessionLifetimeMs).toBe(3);
    expect(refusalOf({ sessionLifetimeMs: 2, housekeepingIntervalMs: 1 }).path).toBe("sessionLifetimeMs");
  });

  it("do not call a sandbox orphaned before its holder could register again", () => {
    expect(accepted({ orphanTimeoutMs: 15_000 }).orphanTimeoutMs).toBe(15_000);
    expect(refusalOf({ orphanTimeoutMs: 14_999 })).toMatchObject({ path: "orphanTimeoutMs" });
  });

  it("make stacks pay only where leaks are looked for", () => {
    expect(accepted({ leakDetection: { afterMs: 1, captureStacks: true } }).leakDetection.captureStacks).toBe(true);
    expect(refusalOf({ leakDetection: { captureStacks: true } }).path).toBe("leakDetection.captureStacks");
  });
});

describe("mounts", () => {
  const mounted = (...sandboxPaths: string[]) => ({
    blueprints: { a: { mounts: sandboxPaths.map((sandboxPath) => ({ hostPath: "/h", sandboxPath })) } },
  });

  it.each(["/data", "/mnt/data", "/mnt/user-data-2", "/mnt/skills.d"])("may be at %s", (path) => {
    expect(accepted(mounted(path)).blueprints.a?.blueprint.mounts[0]?.sandboxPath).toBe(path);
  });

  it.each([
    "/",
    "/mnt",
    "/mnt/",
    "/mnt/user-data",
    "/mnt/user-data/workspace/x",
    "/a/../mnt/skills",
    "/mnt//acp-workspace",
  ])("may not hide what belongs to the thread: %s", (path) => {
    expect(refusalOf(mounted(path))).toMatchObject({
      path: "blueprints.a.mounts[0].sandboxPath",
      problem: expect.stringContaining("would hide /mnt/"),
    });
  });

  it("have absolute paths on both sides", () => {
    expect(refusalOf(mounted("data")).path).toBe("blueprints.a.mounts[0].sandboxPath");
    expect(refusalOf({ blueprints: { a: { mounts: [{ hostPath: "~/d", sandboxPath: "/d" }] } } })).toMatchObject({
      path: "blueprints.a.mounts[0].hostPath",
      suggestion: "/home/tester/d",
    });
  });

  it("do not share a place", () => {
    expect(refusalOf(mounted("/d", "/e", "/d/")).path).toBe("blueprints.a.mounts[2].sandboxPath");
  });
});

describe("the network", () => {
  const network = (mode: string, hosts: number) => ({
    blueprints: { a: { network: { mode, allow: Array.from({ length: hosts }, () => ({ host: "h", ports: [443] })) } } },
  });

  it("has a list exactly when it goes by one", () => {
    expect(accepted(network("allowlist", 1)).blueprints.a?.blueprint.network.allow).toHaveLength(1);
    expect(refusalOf(network("allowlist", 0)).problem).toContain("names nothing");
    expect(refusalOf(network("open", 1)).problem).toContain("network.mode open");
    expect(refusalOf(network("none", 1)).path).toBe("blueprints.a.network.allow");
  });
});

it("several relations at once: the first one, and how many more", () => {
  const { path, problem } = refusalOf({ home: "x", limits: { max: 1, maxPerUser: 2 }, pool: { nope: 2 } });
  expect(path).toBe("home");
  expect(problem).toMatch(/\(and 3 more problems\)$/);
});

describe("capabilities", () => {
  const all = new Set<Capability>(["image", "runtime", "limits", "mounts", "network"]);
  const named = (blueprint: object) => {
    // A backend that can limit would add its defaults.
    const found = accepted({ backend: "memory", blueprints: { python: blueprint } }).blueprints.python;
    if (found === undefined) throw new Error("no blueprint");
    return found;
  };

  it.each([
    [{ image: "python:3" }, "image"],
    [{ runtime: "runsc" }, "runtime"],
    [{ limits: { memoryBytes: 1 } }, "limits"],
    [{ limits: { cpuCount: 0.5 } }, "limits"],
    [{ mounts: [{ hostPath: "/a", sandboxPath: "/a" }] }, "mounts"],
    [{ network: { mode: "open" } }, "network"],
    [{ network: { mode: "allowlist", allow: [{ host: "h", ports: [1] }] } }, "network"],
  ] as const)("%j needs them", (config, capability) => {
    const blueprint = named(config);
    expect(neededCapabilities(blueprint.blueprint)).toEqual([capability]);
    requireCapabilities(blueprint, "docker", all);
    const lacking = new Set([...all].filter((one) => one !== capability));
    try {
      requireCapabilities(blueprint, "memory", lacking);
      expect.unreachable();
    } catch (error) {
      expect(isSandlotError(error, "capability_missing") && error.details).toEqual({
        backend: "memory",
        capability,
        neededBy: "blueprint python",
      });
    }
  });

  it("nothing is needed by a blueprint that asks for nothing, or only for variables", () => {
    for (const config of [{}, { environment: { A: "b" } }, { network: { mode: "none" } }, { limits: {} }]) {
      requireCapabilities(named(config), "memory", new Set());
    }
  });
});
