// biome-ignore-all lint/suspicious/noTemplateCurlyInString: braces after a dollar sign are what is tested.
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { resolveSettings } from "../../src/config/resolve-settings.ts";
import { expandVariables } from "../../src/config/variables.ts";
import { ENVIRONMENT, refusalOf } from "./refusal.ts";

const SET = { A: "1", AB: "2", _x9: "3", EMPTY: "", DOLLAR: "$A ${A} $$" };

describe("a value", () => {
  it.each([
    ["", ""],
    ["plain", "plain"],
    ["$A", "1"],
    ["${A}", "1"],
    ["$AB", "2"], // The longest name wins, as in a shell.
    ["${A}B", "1B"],
    ["$A-B", "1-B"],
    ["$A.$A", "1.1"],
    ["$A$AB", "12"],
    ["$A${AB}$A", "121"],
    ["x$_x9", "x3"],
    ["[$EMPTY]", "[]"],
    ["$$", "$"],
    ["$$A", "$A"],
    ["$$$A", "$1"],
    ["$$$$", "$$"],
    ["$${A}", "${A}"],
    ["$$$${A}", "$${A}"],
    ["$DOLLAR", "$A ${A} $$"], // The content of a variable is not expanded again.
    ["{A}", "{A}"],
    ["A\n$A\n", "A\n1\n"],
  ])("%j comes to %j", (text, value) => {
    expect(expandVariables(text, SET)).toEqual({ ok: true, value });
  });

  it.each([
    "$",
    "a$",
    "$ A",
    "$1",
    "$-",
    "${",
    "${}",
    "${A",
    "${A-x}",
    "${A:-x}",
    "${ A}",
    "${1}",
    "$$$",
    "$A$",
    "$(A)",
    "$ä",
  ])("%j is refused for its dollar sign", (text) => {
    expect(expandVariables(text, SET)).toMatchObject({ ok: false, problem: expect.stringContaining("write $$") });
  });

  it.each([
    ["$ABC", "ABC"],
    ["${a}", "a"],
    ["$A_", "A_"],
    ["$_", "_"],
    ["$A $B $C", "B"],
    ["$toString", "toString"],
    ["$__proto__", "__proto__"],
  ])("%j is refused and names the variable %s", (text, name) => {
    expect(expandVariables(text, SET)).toMatchObject({ ok: false, problem: expect.stringContaining(` ${name},`) });
  });
});

describe("any value", () => {
  const name = fc.stringMatching(/^[A-Za-z_][A-Za-z0-9_]{0,5}$/);
  const content = fc.string({ unit: fc.constantFrom("$", "{", "}", "A", "b", "_", "0", " ", "ä", "\n") });

  it("comes through unchanged when its dollar signs are doubled", () => {
    fc.assert(
      fc.property(fc.oneof(content, fc.string({ unit: "binary" })), (text) => {
        expect(expandVariables(text.replaceAll("$", "$$$$"), {})).toEqual({ ok: true, value: text });
      }),
    );
  });

  it("is its parts put together, whatever stands beside a reference", () => {
    type Part = { readonly text: string; readonly value: string };
    const environment = fc.dictionary(name, content, { minKeys: 1, maxKeys: 5, noNullPrototype: true });
    fc.assert(
      fc.property(
        environment.chain((variables) => {
          const known = fc.constantFrom(...Object.keys(variables));
          const part: fc.Arbitrary<Part> = fc.oneof(
            fc.constantFrom("a", "_", "9", "{", "}", "-", " ", "\n", "é").map((text) => ({ text, value: text })),
            fc.constant({ text: "$$", value: "$" }),
            known.map((key) => ({ text: `\${${key}}`, value: variables[key]! })),
            // A bare reference ends at the first character that no name can have.
            fc.tuple(known, fc.constantFrom("-", " ", "/", "}", "$$", "é")).map(([key, end]) => ({
              text: `$${key}${end}`,
              value: `${variables[key]}${end === "$$" ? "$" : end}`,
            })),
          );
          return fc.tuple(fc.constant(variables), fc.array(part, { maxLength: 8 }));
        }),
        ([variables, parts]) => {
          const text = parts.map((part) => part.text).join("");
          const value = parts.map((part) => part.value).join("");
          expect(expandVariables(text, variables)).toEqual({ ok: true, value });
        },
      ),
    );
  });

  it("with an unset variable anywhere is refused by that variable's name, and no value is shown", () => {
    fc.assert(
      fc.property(name, fc.boolean(), fc.boolean(), (missing, braced, before) => {
        fc.pre(missing !== "SECRET");
        const reference = braced ? `\${${missing}}` : `$${missing}`;
        const result = expandVariables(before ? `$SECRET/${reference}` : `${reference}/$SECRET`, { SECRET: "hunter2" });
        expect(result).toMatchObject({ ok: false, problem: expect.stringContaining(` ${missing},`) });
        expect(JSON.stringify(result)).not.toContain("hunter2");
      }),
    );
  });
});

describe("a blueprint's environment", () => {
  const config = { blueprints: { python: { environment: { TOKEN: "$API_TOKEN", PRICE: "5$$" } } } };

  it("is resolved", () => {
    const { blueprints } = resolveSettings(config, { ...ENVIRONMENT, API_TOKEN: "abc" });
    expect({ ...blueprints.python!.blueprint.environment }).toEqual({ TOKEN: "abc", PRICE: "5$" });
  });

  it("is part of the hash, so that a changed secret reaches new sandboxes", () => {
    const [one, two] = ["abc", "abd"].map((API_TOKEN) => resolveSettings(config, { ...ENVIRONMENT, API_TOKEN }));
    expect(one!.blueprints.python!.hash).not.toBe(two!.blueprints.python!.hash);
  });

  it("names path and variable when that is not set", () => {
    expect(refusalOf(config)).toEqual({
      path: "blueprints.python.environment.TOKEN",
      problem: "needs the environment variable API_TOKEN, which is not set; write $$ for a dollar sign",
    });
  });

  it("is the only place where a dollar sign means something", () => {
    expect(resolveSettings({ home: "/data/$HOME" }, ENVIRONMENT).home).toBe("/data/$HOME");
  });
});
