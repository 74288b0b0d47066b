/**
 * The dialect of regular expressions, compared with Python's `re` and with ripgrep themselves: where all accept a
 * pattern, they find the same lines; a refusal has an explanation.
 */

import { spawnSync } from "node:child_process";
import { isSandlotError } from "@sandlot/contract";
import { describe, expect, it } from "vitest";
import { compileRegex } from "../src/patterns/guarded-regex.ts";

const LINES = [
  ...[
    "root",
    "ROOT",
    "aA",
    "a Z",
    "Alpha",
    "zulu",
    "AbcZ",
    "a1_",
    "--x-y--",
    "a.b",
    "a{2}",
    "{}",
    "x{",
    "[x]",
    "a]b",
    "a-b",
    "",
  ],
  ...[
    "aaa",
    "aXaX",
    "xyzzy",
    "tab\there",
    "p(1)",
    "don't",
    "#hash",
    "a&b",
    "C:\\dir",
    "α",
    "foo bar",
    "<b>",
    "a^b",
    "$5",
    "caf\u00e9",
  ],
  ...[
    "\u0007bell",
    "a  b",
    "0x1F",
    "abab",
    "key=value",
    "key = value",
    "  indented",
    "a,b",
    "end.",
    "a|b",
    "1,000",
    "é",
  ],
];

/** Accepted by Python and by ripgrep, with one meaning. */
const SHARED = [
  ...[
    "(?i)root",
    "(?i)A.Z$",
    "(?s)a.b",
    "(?m)^a",
    "(?P<n>a+)",
    "\\Aa",
    "\\bfoo\\b",
    "\\d+",
    "[\\w-]+",
    "[\\w.-]+",
    "\\s{2,}",
    "a{2,3}",
  ],
  ...[
    "[]x]",
    "[^]x]",
    "a\\.b",
    "a\\-b",
    "\\#hash",
    "\\&",
    "C:\\\\dir",
    "\\(1\\)",
    "a|z",
    "(?:ab)+",
    "x*?y",
    "\\x41",
    "^$",
  ],
  ...[
    "[a-c]+",
    "[^a-z]",
    "\\$5",
    "a\\^b",
    "\\t",
    "\\a",
    "key\\s*=\\s*\\w+",
    "(?i:ROOT)",

    "\\|",
    "a\\{2\\}",
    "[.*+?]",
  ],
];
/** Accepted by Python. */
const PYTHON = [
  "[[]x[]]",
  "\\'",
  '\\"',
  ...[
    "[A-Z]\\Z",
    "(?P<n>a)(?P=n)",
    "(a)\\1",
    "(?=a)a",
    "(?<=a)b",
    "(?<!a)b",
    "(?#a comment)root",
    "{}",
    "x{",
    "a]b",
    "a{,2}b",
  ],
  ...[
    "\\012",
    "[\\101]",
    "\\0",
    "\\u0041",
    "\\U00000041",
    "(?a)\\w",
    "(?u)α",
    "(?:(?:(?:a)))",
    "[a-z-]",
    "[-a]",
    "\\:",
    "\\=",
    "\\ ",
  ],
];
const RIPGREP = [
  "[[:alpha:]]+",
  "[[:digit:]_]",
  "[^[:space:]]",
  "^[[:punct:]]",
  "\\z",
  "\\x{41}",
  "(?-i)root",
  "\\p{L}",
  "[\\p{Lu}]",
];

const PYTHON_SCRIPT = `
import json, re, sys, warnings
warnings.simplefilter("ignore")
asked = json.load(sys.stdin)
def found(pattern):
    try: compiled = re.compile(pattern, re.IGNORECASE | (0 if "(?u)" in pattern else re.ASCII if "(?a)" not in pattern else 0))
    except re.error: return None
    return [line for line in asked["lines"] if compiled.search(line)]
print(json.dumps([found(pattern) for pattern in asked["patterns"]]))
`;

function ours(pattern: string): string[] {
  const expression = compileRegex(pattern, "i");
  return LINES.filter((line) => expression.test(line));
}

function byPython(patterns: readonly string[]): (string[] | null)[] {
  const input = JSON.stringify({ lines: LINES, patterns });
  return JSON.parse(spawnSync("python3", ["-c", PYTHON_SCRIPT], { input, encoding: "utf8" }).stdout);
}

function byRipgrep(pattern: string): string[] | null {
  const { status, stdout } = spawnSync("rg", ["--no-config", "--ignore-case", "--regexp", pattern, "-"], {
    input: LINES.join("\n"),
    encoding: "utf8",
  });
  return status === 2 ? null : stdout.split("\n").slice(0, -1);
}

function refusal(pattern: string): string {
  try {
    compileRegex(pattern, "i");
  } catch (error) {
    if (isSandlotError(error, "invalid_pattern")) return error.details.problem;
    throw error;
  }
  return "accepted";
}

describe("a pattern", () => {
  it("finds what Python's re finds", () => {
    const patterns = [...SHARED, ...PYTHON];
    expect(patterns.map((pattern) => [pattern, ours(pattern)])).toEqual(
      byPython(patterns).map((found, index) => [patterns[index], found]),
    );
  });

  it("finds what ripgrep finds", (context) => {
    if (spawnSync("rg", ["--version"]).status !== 0) return context.skip("ripgrep is not installed");
    // Beyond ASCII, ripgrep's \\w is another.
    const ascii = (lines: readonly string[] | null) => lines?.filter((line) => /^[\0-\x7f]*$/.test(line));
    const compared = [...SHARED, ...RIPGREP].map((pattern) => [
      pattern,
      ascii(ours(pattern)),
      ascii(byRipgrep(pattern)),
    ]);
    expect(compared.map(([pattern, found]) => [pattern, found])).toEqual(
      compared.map(([pattern, , found]) => [pattern, found]),
    );
  });

  it.each([
    ["a++", /possessive/],
    ["(?>a)", /atomic/],
    ["(a)?(?(1)b|c)", /conditions/],
    ["(?x) a b", /\(\?x\)/],
    ["(?L)a", /\(\?L\)/],
    ["a(?i)b", /at its beginning/],
    ["\\<word\\>", /edge of a word/],
    ["\\h", /\\h is no escape/],
    ["\\Qa.b\\E", /\\Q is no escape/],
    ["[[:word-like:]]x[", /has no end/],
    ["[[:foo:]]", /\[:foo:\] is no class/],
    ["[[:^alpha:]]", /negate the whole class/],
    ["[a&&b]", /&&/],
    ["[+--]", /--/],
    ["[\\A]", /\\A is no escape/],
    ["a\\", /backslash/],
    ["(", /Unterminated group/],
    ["[z-a]", /out of order/],
    ["*a", /Nothing to repeat/],
    ["(a)\\2", /./],
    ["(?P>n)", /no group/],
  ])("is refused with a sentence: %s", (pattern, sentence) => {
    const said = refusal(pattern);
    expect(said).toMatch(sentence);
    expect(said).not.toBe("accepted");
    // The translation stays hidden.
    expect(said).not.toMatch(/\/[a-z]*u[a-z]*:/);
  });

  it("keeps its beginning and its end for whole texts, whatever ^ and $ mean", () => {
    const text = "first\nsecond\n";
    expect([compileRegex("\\Asecond", "gms").test(text), compileRegex("^second", "gms").test(text)]).toEqual([
      false,
      true,
    ]);
    expect([compileRegex("first\\Z", "gms").test(text), compileRegex("first$", "gms").test(text)]).toEqual([
      false,
      true,
    ]);
  });
});
