import { editDistance, nearest } from "@sandlot/contract";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { refusalOf } from "./refusal.ts";

describe("an unknown key", () => {
  it.each([
    [{ idleTimeout: 1 }, "idleTimeout", "idleTimeoutMs"],
    [{ idle_timeout: 1 }, "idle_timeout", "idleTimeoutMs"],
    [{ IDLETIMEOUTMS: 1 }, "IDLETIMEOUTMS", "idleTimeoutMs"],
    [{ idle: 1 }, "idle", "idleTimeoutMs"],
    [{ acquireTimoutMs: 1 }, "acquireTimoutMs", "acquireTimeoutMs"],
    [{ limit: {} }, "limit", "limits"],
    [{ limits: { maxPerUsr: 1 } }, "limits.maxPerUsr", "maxPerUser"],
    [{ store: { pth: "/x" } }, "store.pth", "path"],
    [{ leakDetection: { captureStack: true } }, "leakDetection.captureStack", "captureStacks"],
    [{ blueprints: { default: { env: {} } } }, "blueprints.default.env", undefined],
    [{ blueprints: { default: { environnement: {} } } }, "blueprints.default.environnement", "environment"],
    [{ blueprints: { "a.b": { limits: { memory: 1 } } } }, 'blueprints["a.b"].limits.memory', "memoryBytes"],
    [{ blueprints: { a: { network: { alow: [] } } } }, "blueprints.a.network.alow", "allow"],
    [{ maxPerUser: 3 }, "maxPerUser", "limits.maxPerUser"],
    [{ captureStacks: true }, "captureStacks", "leakDetection.captureStacks"],
    [{ zebra: 1 }, "zebra", undefined],
    [{ "my key": 1 }, '["my key"]', undefined],
  ])("%j is refused", (config, path, suggestion) => {
    const refusal = refusalOf(config);
    expect(refusal).toMatchObject({ path, problem: "this key does not exist" });
    expect(refusal.suggestion).toBe(suggestion);
  });

  it("in a list is found by its place", () => {
    const mounts = [
      { hostPath: "/a", sandboxPath: "/a" },
      { hostpath: "/b", sandboxPath: "/b" },
    ];
    expect(refusalOf({ blueprints: { a: { mounts } } })).toMatchObject({
      path: "blueprints.a.mounts[1].hostpath",
      problem: "this key does not exist",
      suggestion: "hostPath",
    });
  });

  it("several at once: the first one precisely, and how many more there are", () => {
    const { path, problem } = refusalOf({ idleTimeout: 1, zebra: 2, limits: { max: "many" } });
    expect(path).toBe("idleTimeout");
    expect(problem).toBe("this key does not exist (and 2 more problems)");
  });
});

describe("nearest", () => {
  it("finds a word again after up to two typos", () => {
    const words = ["idleTimeoutMs", "maxLifetimeMs", "blueprints", "fleetId", "pool"];
    const typo = fc.record({
      at: fc.nat(),
      letter: fc.constantFrom(..."abcxyz"),
      kind: fc.constantFrom("insert", "drop", "replace"),
    });
    fc.assert(
      fc.property(fc.constantFrom(...words), fc.array(typo, { maxLength: 2 }), (word, typos) => {
        let typed = word;
        for (const { at, letter, kind } of typos) {
          const index = at % (typed.length + 1);
          typed =
            typed.slice(0, index) +
            (kind === "drop" ? "" : letter) +
            typed.slice(kind === "insert" ? index : index + 1);
        }
        const found = nearest(typed, words);
        expect(found).toBeDefined();
        expect(editDistance(typed.toLowerCase(), String(found).toLowerCase())).toBeLessThanOrEqual(2);
      }),
    );
  });

  it("stays silent about words that have nothing in common", () => {
    expect(nearest("zebra", ["limits", "store", "pool"])).toBeUndefined();
    expect(nearest("x", ["limits"])).toBeUndefined();
    expect(nearest("anything", [])).toBeUndefined();
  });
});

describe("the edit distance", () => {
  it.each([
    ["", "", 0],
    ["", "abc", 3],
    ["abc", "", 3],
    ["kitten", "sitting", 3],
    ["ab", "ba", 2],
  ])("from %j to %j is %i", (a, b, distance) => {
    expect(editDistance(a, b)).toBe(distance);
  });

  it("is a distance: zero for equal words only, the same both ways, never longer by a detour", () => {
    const word = fc.string({ unit: fc.constantFrom("a", "b", "c"), maxLength: 6 });
    fc.assert(
      fc.property(word, word, word, (a, b, c) => {
        expect(editDistance(a, b) === 0).toBe(a === b);
        expect(editDistance(a, b)).toBe(editDistance(b, a));
        expect(editDistance(a, c)).toBeLessThanOrEqual(editDistance(a, b) + editDistance(b, c));
      }),
    );
  });
});
