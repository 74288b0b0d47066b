import { mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import { SANDBOX_LIMITS } from "@sandlot/contract";
import { describe, expect, onTestFinished, test } from "vitest";
import { openFleet } from "../../src/open-fleet.ts";
import { attached } from "./attached.ts";
import { code } from "./expectations.ts";

async function tree(names: Readonly<Record<string, string>>) {
  const { sandbox, daemon } = await attached();
  const root = daemon.workspace;
  for (const [name, content] of Object.entries(names)) {
    mkdirSync(dirname(join(root, name)), { recursive: true });
    writeFileSync(join(root, name), content);
  }
  const short = (paths: readonly string[]) => paths.map((path) => relative(root, path));
  return { files: sandbox.files, root, short, at: (name: string) => join(root, name) };
}

async function inMemory(content: string) {
  const home = mkdtempSync(join(tmpdir(), "sl-memory-"));
  const fleet = await openFleet({ backend: "memory", home });
  onTestFinished(async () => {
    await fleet.close({ destroy: true });
    rmSync(home, { recursive: true, force: true });
  });
  const { sandbox } = await fleet.acquire({ thread: "t" });
  await sandbox.files.write("/mnt/user-data/workspace/names", content);
  return sandbox.files;
}

describe("a listing", () => {
  test("is sorted by path and goes as deep as asked", async () => {
    const { files, root, short, at } = await tree({ "a/b": "", "a-b": "", "a.c": "", "b/c/d": "", "a/z/y": "" });
    symlinkSync("a", at("link"));
    const list = async (options?: object) => short((await files.list(root, options)).entries.map(({ path }) => path));
    expect(await list()).toEqual(["a", "a-b", "a.c", "b", "link"]);
    const all = ["a", "a-b", "a.c", "a/b", "a/z", "a/z/y", "b", "b/c", "b/c/d", "link"];
    expect(await list({ depth: 9 })).toEqual(all);
    expect(await list({ depth: 2 })).toEqual(all.filter((path) => path.split("/").length <= 2));
    expect((await files.list(root)).entries.at(-1)).toMatchObject({ kind: "symlink" });
  });

  test("says when it left something out", async () => {
    const { files, root, at } = await tree(Object.fromEntries(Array.from({ length: 30 }, (_, i) => [`d/f${i}`, ""])));
    expect(await files.list(root, { depth: 2, maxResults: 31 })).toMatchObject({ truncated: false });
    const cut = await files.list(root, { depth: 2, maxResults: 30 });
    expect(cut.truncated).toBe(true);
    expect(cut.entries.length).toBe(30);
    expect(await code(files.list(root, { depth: 0 }))).toBe("invalid_request");
    expect(await code(files.list(root, { maxResults: 0 }))).toBe("invalid_request");
    expect(await code(files.list(at("d/f1")))).toBe("not_a_directory");
    expect(await code(files.list(at("none")))).toBe("file_not_found");
  });
});

describe("files that are still being written", () => {
  test("is neither listed nor found, and what a killed daemon left behind is", async () => {
    const { files, root, short, at } = await tree({ ".sandboxd-2-1.tmp": "needle" });
    const seen = async () => [
      ...short((await files.list(root)).entries.map(({ path }) => path)),
      ...short((await files.glob(root, "*")).paths),
      // With ripgrep, and without.
      ...short((await files.grep(root, "needle")).matches.map(({ path }) => path)),
      ...short((await files.grep(root, "(?<!x)needle")).matches.map(({ path }) => path)),
    ];
    const left = Array.from({ length: 4 }, () => ".sandboxd-2-1.tmp");
    await files.upload(
      at("target"),
      (async function* () {
        yield Buffer.alloc(2_000_000, "needle\n");
        await expect.poll(() => readdirSync(root).length).toBe(2);
        expect(await seen()).toEqual(left);
        expect((await files.grep(root, "needle")).skippedFiles).toBe(0);
      })(),
    );
    expect(await seen()).toEqual([".sandboxd-2-1.tmp", "target", ".sandboxd-2-1.tmp", "target", ...left.slice(2)]);
    expect((await files.grep(root, "needle")).skippedFiles).toBe(1);
  });
});

describe("glob", () => {
  test("speaks the language of every backend", async () => {
    const { files, root, short } = await tree({
      "a.ts": "",
      "b.js": "",
      "src/c.ts": "",
      "src/deep/d.ts": "",
      "src/deep/e.md": "",
      ".hidden/f.ts": "",
      "node_modules/g/h.ts": "",
    });
    const glob = async (pattern: string, options?: object) => short((await files.glob(root, pattern, options)).paths);
    expect(await glob("*.ts")).toEqual([".hidden/f.ts", "a.ts", "node_modules/g/h.ts", "src/c.ts", "src/deep/d.ts"]);
    expect(await glob("src/*.ts")).toEqual(["src/c.ts"]);
    expect(await glob("src/**/*.ts")).toEqual(["src/c.ts", "src/deep/d.ts"]);
    expect(await glob("**/[de].{ts,md}")).toEqual(["src/deep/d.ts", "src/deep/e.md"]);
    expect(await glob("src/**")).toEqual(["src/c.ts", "src/deep/d.ts", "src/deep/e.md"]);
    expect(await glob("s??", { includeDirectories: true })).toEqual(["src"]);
    expect(await glob("s??")).toEqual([]);
    expect(await files.glob(root, "*.ts", { maxResults: 2 })).toMatchObject({ truncated: true });
    expect(await files.glob(root, "*.ts", { maxResults: 5 })).toMatchObject({ truncated: false });
    for (const pattern of ["", "/a", "../x", "a\0", "x".repeat(1_001), "{a,b}".repeat(7)])
      expect([pattern, await code(files.glob(root, pattern))]).toEqual([pattern, "invalid_pattern"]);
    expect(await code(files.glob(join(root, "a.ts"), "*"))).toBe("not_a_directory");
  });
});

describe("grep", () => {
  test("finds lines by pattern or text", async () => {
    const { files, root, at } = await tree({
      "a.txt": "Foo bar\nnothing\r\nfoo.bar\n",
      "b/c.txt": "xx foo yy",
      "b/d.md": "foo(bar)\n",
      binary: "foo\0bar",
    });
    const grep = async (pattern: string, options?: object) =>
      (await files.grep(root, pattern, options)).matches.map(
        (m) => `${relative(root, m.path)}:${m.lineNumber}:${m.line}`,
      );
    expect(await grep("foo")).toEqual([
      "a.txt:1:Foo bar",
      "a.txt:3:foo.bar",
      "b/c.txt:1:xx foo yy",
      "b/d.md:1:foo(bar)",
    ]);
    expect(await grep("foo", { caseSensitive: true, glob: "*.txt" })).toEqual([
      "a.txt:3:foo.bar",
      "b/c.txt:1:xx foo yy",
    ]);
    expect(await grep("foo.bar", { literal: true })).toEqual(["a.txt:3:foo.bar"]);
    expect(await grep("foo(", { literal: true })).toEqual(["b/d.md:1:foo(bar)"]);
    expect(await grep("^nothing$")).toEqual(["a.txt:2:nothing"]);
    expect((await files.grep(at("b/c.txt"), "f.o")).matches).toHaveLength(1);
    expect(await code(files.grep(root, "("))).toBe("invalid_pattern");
    expect(await code(files.grep(at("none"), "x"))).toBe("file_not_found");
  });

  test("reads a pattern as ripgrep and Python do, and refuses what it does not know", async () => {
    const { files, root } = await tree({ names: "root\nAlpha Z\nzulu\n" });
    const memory = await inMemory("root\nAlpha Z\nzulu\n");
    for (const [at, where] of [
      [files, root],
      [memory, "/mnt/user-data/workspace"],
    ] as const) {
      const lines = async (pattern: string) => (await at.grep(where, pattern)).matches.map(({ line }) => line);
      expect(await lines("(?i)ROOT")).toEqual(["root"]);
      expect(await lines("(?P<n>o)(?P=n)")).toEqual(["root"]);
      expect(await lines("\\Az")).toEqual(["zulu"]);
      expect(await lines("[a-z]\\Z")).toEqual(["root", "Alpha Z", "zulu"]);
      expect(await lines("^[[:alpha:]]+$")).toEqual(["root", "zulu"]);
      for (const pattern of ["o++", "\\h", "(?x)a b"])
        expect(await code(at.grep(where, pattern))).toBe("invalid_pattern");
    }
  });

  test("keeps its limits and says when it reached one", async () => {
    const { files, root, at } = await tree({
      many: "x\n".repeat(600),
      long: `x${"y".repeat(3_000)}\nx${"z".repeat(500)}\n`,
      large: `x\n${"-".repeat(SANDBOX_LIMITS.grepFileMaxBytes)}`,
    });
    const all = await files.grep(root, "x");
    expect(all.truncated).toBe(true);
    expect(all.matches.length).toBe(SANDBOX_LIMITS.grepDefaultResults);
    const most = await files.grep(at("many"), "x", { maxResults: 1_000 });
    expect([most.matches.length, most.truncated]).toEqual([SANDBOX_LIMITS.grepMaxResults, true]);
    const long = await files.grep(at("long"), "x");
    expect(long.matches.map(({ line }) => line)).toEqual([`x${"z".repeat(196)}...`]);
    expect(long).toMatchObject({ truncated: false, skippedFiles: 0, skippedLines: 1 });
    const large = { matches: [], truncated: false, skippedFiles: 1, skippedLines: 0 };
    expect(await files.grep(at("large"), "x")).toEqual(large);
    // Ripgrep chooses the files for the first pattern and not for the second, which looks behind.
    for (const pattern of ["xy+", "(?<=x)y+"])
      expect(await files.grep(root, pattern), pattern).toEqual({ ...large, skippedLines: 1 });
  });

  test("gives up on a pattern that would never end", async () => {
    // The first line matches, so that the file is searched also where ripgrep has chosen the files.
    const { files, root } = await tree({ f: `aaa\n${"a".repeat(60)}!` });
    expect(await code(files.grep(root, "(a+)+$"))).toBe("invalid_pattern");
  });

  test("never follows a link out of its root", async () => {
    const { files, root, at } = await tree({ "in/f": "needle" });
    symlinkSync("/etc", at("in/out"));
    symlinkSync("f", at("in/l"));
    expect((await files.grep(at("in"), "needle")).matches.map(({ path }) => path)).toEqual([at("in/f")]);
    expect((await files.glob(root, "passwd")).paths).toEqual([]);
  });
});
