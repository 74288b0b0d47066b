/** What the file viewer makes of text: colours, tables, Markdown. All of it may come from a sandbox. */

import { describe, expect, test } from "vitest";
import { parseDelimited } from "../src/viewer/delimited.ts";
import { highlight, languageOf } from "../src/viewer/highlight.ts";
import { type Block, type Inline, parseMarkdown, safeAddress } from "../src/viewer/markdown.ts";

const coloured = (name: string, text: string) => {
  const language = languageOf(name);
  if (language === null) throw new Error(`no language for ${name}`);
  return highlight(text, language);
};

/** Text that makes careless parsers slow, or deep. */
const SIZE = 100_000;
const HOSTILE: Readonly<Record<string, string>> = {
  brackets: "[".repeat(SIZE),
  links: "[a](".repeat(SIZE / 4),
  images: "![".repeat(SIZE / 2),
  stars: "*a **b ".repeat(SIZE / 7),
  underscores: "_a__b".repeat(SIZE / 5),
  ticks: "a`` `b```".repeat(SIZE / 9),
  quotes: ">".repeat(SIZE),
  quotedLines: Array.from({ length: 2_000 }, (_, at) => `${">".repeat(at % 100)} a`).join("\n"),
  nested: Array.from({ length: 1_000 }, (_, at) => `${" ".repeat(at * 2)}- a`).join("\n"),
  rules: "- ".repeat(SIZE / 2),
  table: `${"|".repeat(SIZE)}\n|-|-|`,
  tags: "<!--<a ".repeat(SIZE / 7),
  escapes: "\\".repeat(SIZE),
  strings: `"'\``.repeat(SIZE / 3),
  comments: "/*".repeat(SIZE / 2),
  separators: ",".repeat(SIZE),
  quotesInCells: `"""`.repeat(SIZE / 3),
  lines: "\n".repeat(SIZE),
  spaces: " ".repeat(SIZE),
  addresses: "http://".repeat(SIZE / 7),
};

describe("colours", () => {
  test("are guesses, and the text stays what it is", () => {
    const text = 'const a = "b\\"c"; // d\nreturn 42;\n/* e */ x';
    const pieces = coloured("a.ts", text);
    expect(pieces.map(({ text: piece }) => piece).join("")).toBe(text);
    expect(pieces.filter(({ kind }) => kind !== "plain")).toEqual([
      { kind: "keyword", text: "const" },
      { kind: "string", text: '"b\\"c"' },
      { kind: "comment", text: "// d" },
      { kind: "keyword", text: "return" },
      { kind: "number", text: "42" },
      { kind: "comment", text: "/* e */" },
    ]);
  });

  test("know languages by extension or name, and no others", () => {
    expect(coloured("a.py", '"""x\ny"""').map(({ kind }) => kind)).toEqual(["string"]);
    expect(coloured("q.SQL", "SELECT 1 -- x").map(({ kind }) => kind)).toEqual([
      ...["keyword", "plain", "number", "plain", "comment"],
    ]);
    expect(languageOf("Makefile")).not.toBeNull();
    for (const name of ["a.txt", "constructor", "x.toString", ""]) expect(languageOf(name)).toBeNull();
  });
});

describe("tables", () => {
  test("are read with quotes, line breaks in cells and either separator", () => {
    expect(parseDelimited('a,b\r\n"x, ""y""\n2",3\n', false)).toEqual({
      ...{ header: ["a", "b"], rows: [['x, "y"\n2', "3"]], isCut: false },
    });
    expect(parseDelimited("a;b\n1;2", false).rows).toEqual([["1", "2"]]);
    expect(parseDelimited("a\tb\n1,5\t", true).rows).toEqual([["1,5", ""]]);
    expect(parseDelimited('"open', false).header).toEqual(["open"]);
    expect(parseDelimited("", false)).toEqual({ header: [], rows: [], isCut: false });
  });

  test("are cut where they are too large for a page", () => {
    const rows = parseDelimited("a,b\n".repeat(5_000), false);
    expect([rows.rows.length, rows.isCut]).toEqual([2_000, true]);
    const columns = parseDelimited(",".repeat(500), false);
    expect([columns.header.length, columns.isCut]).toEqual([100, true]);
  });
});

describe("Markdown", () => {
  const textOf = (inlines: readonly Inline[]): string =>
    inlines.map((one) => ("text" in one ? one.text : textOf(one.inner))).join("");

  test("has headings, lists, code, quotes, tables and rules", () => {
    const text = [
      ...["# One", "", "two *three* **four** `five`", "", "- a", "  - b", "- c", "", "3. d", "", "> quoted", ""],
      ...[
        "```ts",
        "const x = '<b>';",
        "```",
        "",
        "| h | i |",
        "|---|---|",
        "| 1 | 2 |",
        "",
        "---",
        "",
        "Title",
        "=====",
      ],
    ].join("\n");
    const blocks = parseMarkdown(text);
    expect(blocks.map(({ kind }) => kind)).toEqual([
      ...["heading", "paragraph", "list", "list", "quote", "code", "table", "rule", "heading"],
    ]);
    const [, paragraph, list, ordered, , code] = blocks;
    expect(paragraph).toEqual({
      kind: "paragraph",
      inner: [
        { kind: "text", text: "two " },
        { kind: "em", inner: [{ kind: "text", text: "three" }] },
        { kind: "text", text: " " },
        { kind: "strong", inner: [{ kind: "text", text: "four" }] },
        { kind: "text", text: " " },
        { kind: "code", text: "five" },
      ],
    });
    expect(list?.kind === "list" && list.items.map((item) => item.map(({ kind }) => kind))).toEqual([
      ["paragraph", "list"],
      ["paragraph"],
    ]);
    expect(ordered).toMatchObject({ start: 3 });
    expect(code).toEqual({ kind: "code", language: "ts", text: "const x = '<b>';" });
  });

  test("takes no text for markup, and leads to addresses of the web only", () => {
    const html = `<img src=x onerror="alert(1)"> <script>alert(1)</script>`;
    const [block] = parseMarkdown(html) as [Extract<Block, { readonly kind: "paragraph" }>];
    expect(textOf(block.inner)).toBe(html);
    expect(block.inner.every(({ kind }) => kind === "text")).toBe(true);
    for (const address of ["javascript:alert(1)", "JaVaScRiPt:alert(1)", "data:text/html,x", "file:///etc", "/a", "x"])
      expect(safeAddress(address)).toBeNull();
    const [links] = parseMarkdown("[a](javascript:alert(1)) ![i](https://e.example/p.png) <https://b.example>") as [
      Extract<Block, { readonly kind: "paragraph" }>,
    ];
    const hrefs = links.inner.flatMap((one) => (one.kind === "link" ? [one.href] : []));
    expect(hrefs).toEqual(["https://e.example/p.png", "https://b.example/"]);
  });
});

test.each(Object.entries(HOSTILE))(
  "hostile text costs no more than its length: %s",
  (_name, text) => {
    // A quadratic parser takes minutes for it, a deep one throws. The limit finds that, on a busy machine too.
    const began = performance.now();
    parseMarkdown(text);
    expect(
      coloured("a.ts", text)
        .map(({ text: piece }) => piece)
        .join(""),
    ).toBe(text);
    parseDelimited(text, false);
    expect(performance.now() - began).toBeLessThan(30_000);
  },
  60_000,
);
