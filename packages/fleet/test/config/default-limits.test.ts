/** The limits of a blueprint that sets none. */

import { describe, expect, it } from "vitest";
import { defaultLimits } from "../../src/config/default-limits.ts";
import { resolveSettings } from "../../src/config/resolve-settings.ts";

const GIB = 1024 ** 3;
const environment = { HOME: "/home/somebody" };
const machine = {
  memoryBytes: 16 * GIB,
  processors: 8,
  pidMax: 4_194_304,
  diskBytes: 500 * GIB,
  diskFiles: 30_000_000,
};

const limitsOf = (config: unknown, name = "default") =>
  resolveSettings(config, environment).blueprints[name]?.blueprint.limits;

describe("default limits", () => {
  it("fit the machine", () => {
    expect(defaultLimits(machine)).toEqual({
      ...{ memoryBytes: 8 * GIB, pidsMax: 2_048, cpuWeight: 50 },
      ...{ diskBytes: 10 * GIB, filesMax: 500_000 },
    });
    const small = { memoryBytes: 2 * GIB, processors: 1, pidMax: 4_096, diskBytes: 20 * GIB, diskFiles: 1_000_000 };
    expect(defaultLimits(small)).toMatchObject({
      memoryBytes: GIB,
      pidsMax: 512,
      diskBytes: 2 * GIB,
      filesMax: 100_000,
    });
    // A file system that counts no files, and a system without information.
    expect(defaultLimits({ ...machine, diskFiles: 0, pidMax: 0 })).toMatchObject({ filesMax: 500_000, pidsMax: 2_048 });
  });

  it("do not change with a reboot that leaves a little less memory", () => {
    const [now, then] = [4 * GIB, 4 * GIB - 20 * 1024 * 1024];
    expect(defaultLimits({ ...machine, memoryBytes: now - 1 })).toEqual(
      defaultLimits({ ...machine, memoryBytes: then }),
    );
  });

  it.each(["local", "docker"])("are there for every blueprint of the %s backend", (backend) => {
    const config = { backend, blueprints: { small: { limits: { memoryBytes: 1_000_000_000 } } } };
    const all = {
      pidsMax: expect.any(Number),
      cpuWeight: 50,
      diskBytes: expect.any(Number),
      filesMax: expect.any(Number),
    };
    expect(limitsOf(config)).toEqual({ ...all, memoryBytes: expect.any(Number) });
    expect(limitsOf(config, "small")).toEqual({ ...all, memoryBytes: 1_000_000_000 });
  });

  it("change no blueprint's hash, so that processes of one home that see other machines agree", () => {
    const cramped = { ...machine, memoryBytes: 2 * GIB, processors: 1, diskFiles: 1_000_000 };
    const settingsOn = (seen: typeof machine, limits: unknown = {}) =>
      resolveSettings({ blueprints: { default: { limits } } }, environment, () => seen).blueprints.default;
    expect(settingsOn(cramped)?.blueprint.limits).not.toEqual(settingsOn(machine)?.blueprint.limits);
    expect(settingsOn(cramped)?.hash).toBe(settingsOn(machine)?.hash);
    const configured = [{}, { pidsMax: 100 }, { pidsMax: 200 }, { pidsMax: "unlimited" }];
    expect(new Set(configured.map((limits) => settingsOn(machine, limits)?.hash)).size).toBe(configured.length);
  });

  it("are left out one by one with `unlimited`", () => {
    const limits = { memoryBytes: "unlimited", diskBytes: "unlimited", filesMax: "unlimited" };
    const found = limitsOf({ blueprints: { default: { limits } } });
    expect(Object.keys(found ?? {}).sort()).toEqual(["cpuWeight", "pidsMax"]);
    expect(() => limitsOf({ blueprints: { default: { limits: { pidsMax: 0 } } } })).toThrow(/from 1, or "unlimited"/);
  });

  it("are none where the backend cannot limit", () => {
    expect(limitsOf({ backend: "memory" })).toEqual({});
    expect(limitsOf({ local: { isolation: "unsafe-process" } })).toEqual({});
    expect(limitsOf({ backend: "memory", blueprints: { default: { limits: { pidsMax: "unlimited" } } } })).toEqual({});
  });
});
