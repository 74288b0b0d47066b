import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fc, test } from "@fast-check/vitest";
import { afterAll, describe, expect } from "vitest";
import { candidates, widened } from "../src/files/ripgrep.ts";
import { grepFiles } from "../src/files/search.ts";
import { walk } from "../src/files/walk.ts";
import { pathPattern } from "../src/patterns/glob-pattern.ts";

const root = mkdtempSync(join(tmpdir(), "sd-search-"));
afterAll(() => rmSync(root, { recursive: true, force: true }));

describe("a walk", () => {
  const name = fc.string({ unit: fc.constantFrom("a", "b", "-", ".", "0", "é"), minLength: 1, maxLength: 3 });
  const path = fc.array(
    name.filter((text) => text !== "." && text !== ".."),
    { minLength: 1, maxLength: 4 },
  );

  test.prop([fc.uniqueArray(path, { maxLength: 12, selector: (names) => names.join("/") })], { numRuns: 40 })(
    "goes in the order of full paths",
    async (paths) => {
      const here = mkdtempSync(join(root, "walk-"));
      for (const names of paths) {
        mkdirSync(join(here, ...names), { recursive: true });
      }
      const seen: string[] = [];
      await walk(
        { root: here, depth: Number.POSITIVE_INFINITY, unlisted: [] },
        ({ relative }) => seen.push(relative) > 0,
      );
      const wanted = new Set(paths.flatMap((names) => names.map((_, i) => names.slice(0, i + 1).join("/"))));
      expect(seen).toEqual([...wanted].sort());
    },
  );
});

describe("a glob pattern", () => {
  test("enters only where something can match", () => {
    const { mayMatchBelow } = pathPattern("src/*/x/**/y.ts");
    expect(["src", "src/a", "src/a/x", "src/a/x/any/where"].map(mayMatchBelow)).toEqual([true, true, true, true]);
    expect(["lib", "src/a/z"].map(mayMatchBelow)).toEqual([false, false]);
    expect(pathPattern("src/*.ts").mayMatchBelow("src/a")).toBe(false);
    expect(pathPattern("*.ts").mayMatchBelow("any/where")).toBe(true);
  });
});

describe("ripgrep", () => {
  test("is asked only for what both languages read alike", () => {
    for (const pattern of ["a", "foo bar", "a.c", "(a|b)+c?", "[a-z0-9]+", "^x$", "a\\.b", "\\d\\w\\s", "(?:ab)*"])
      expect([pattern, widened(pattern)]).toEqual([pattern, expect.any(String)]);
    for (const pattern of ["\\bx", "(?=x)", "[^a]", "é", "(a)\\1", "\\W", "x{2}", "\\u0041", "(?<n>x)"])
      expect([pattern, widened(pattern)]).toEqual([pattern, null]);
  });

  test("changes nothing about the results", async (context) => {
    if (spawnSync("rg", ["--version"], { stdio: "ignore" }).status !== 0)
      return context.skip("ripgrep is not installed");
    const here = mkdtempSync(join(root, "rg-"));
    const contents = [
      "foo bar\r\nFOO\n",
      "a\u00e9c aéc\nfoo\n",
      Buffer.from([0x61, 0xff, 0x63, 0x0a]),
      "x\0foo",
      "\ufeff foo",
      "",
    ];
    for (const [index, content] of contents.entries()) {
      const path = join(here, index % 2 === 0 ? `.hidden/${index}` : `dir/${index}.txt`);
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(path, content);
    }
    writeFileSync(join(here, ".gitignore"), "*\n");
    for (const pattern of [
      "foo",
      "f.o",
      "a.c",
      "a.*c",
      "^foo",
      "bar$",
      "\\s",
      "\\w+",
      "[a-c]+",
      "(foo|c)$",
      "nothing",
    ]) {
      for (const caseSensitive of [true, false]) {
        const found = await candidates(here, { pattern, literal: false, caseSensitive, unlisted: [] });
        const { matches } = await grepFiles(here, pattern, { caseSensitive }, 100);
        expect(found).not.toBeNull();
        // Without ripgrep: an equivalent pattern that ripgrep does not get.
        const slow = await grepFiles(here, `(?=)(?:${pattern})`, { caseSensitive }, 100);
        expect([pattern, matches]).toEqual([pattern, slow.matches]);
      }
    }
  });
});
