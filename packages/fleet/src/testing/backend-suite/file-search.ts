/** Finding files: list, glob, grep, and whether `truncated` is correct. */

import { SANDBOX_LIMITS, type Sandbox } from "@sandlot/contract";
import type { BackendCase } from "./stage.ts";

const HERE = "/mnt/user-data/workspace";

export const fileSearchCases: readonly BackendCase[] = [
  {
    name: "list gives entries sorted by path, down to the depth that is asked for",
    run: async (stage) => {
      const sandbox = await sample(await stage.sandbox());
      const paths = async (depth?: number) =>
        (await sandbox.files.list(HERE, depth === undefined ? {} : { depth })).entries.map(({ path }) =>
          path.slice(HERE.length + 1),
        );
      const top = [".hidden", "a.txt", "link", "node_modules", "src"];
      stage.expect(await paths()).toEqual(top);
      stage.expect(await paths(1)).toEqual(top);
      stage
        .expect(await paths(2))
        .toEqual([".hidden", "a.txt", "link", "node_modules", "node_modules/m.ts", "src", "src/deep", "src/main.ts"]);
      stage.expect((await paths(3)).includes("src/deep/b.ts")).toBe(true);
      const { entries } = await sandbox.files.list(HERE);
      stage.expect(entries.map(({ kind }) => kind)).toEqual(["file", "file", "symlink", "directory", "directory"]);
    },
  },
  {
    name: "list of a file, of nothing and with senseless numbers is refused",
    run: async (stage) => {
      const { files } = await sample(await stage.sandbox());
      await stage.rejects(files.list(`${HERE}/a.txt`), "not_a_directory");
      await stage.rejects(files.list(`${HERE}/missing`), "file_not_found");
      await stage.rejects(files.list(HERE, { depth: 0 }), "invalid_request");
      await stage.rejects(files.list(HERE, { maxResults: 0 }), "invalid_request");
      await files.mkdir(`${HERE}/empty`);
      stage.expect(await files.list(`${HERE}/empty`)).toEqual({ entries: [], truncated: false });
    },
  },
  {
    name: "list says when it left something out, at the limit and at its neighbours",
    run: async (stage) => {
      const { files } = await numbered(await stage.sandbox(), 5);
      for (const [maxResults, truncated] of [
        [4, true],
        [5, false],
        [6, false],
      ] as const) {
        const listing = await files.list(`${HERE}/many`, { maxResults });
        stage.expect([listing.entries.length, listing.truncated]).toEqual([Math.min(maxResults, 5), truncated]);
        stage.expect(listing.entries[0]?.path).toBe(`${HERE}/many/10001`);
      }
    },
  },
  {
    name: "list never gives more than its limit, whatever is asked for",
    run: async (stage) => {
      const max = SANDBOX_LIMITS.listMaxResults;
      const { files } = await numbered(await stage.sandbox(), max + 1);
      const listing = await files.list(`${HERE}/many`, { maxResults: max + 1 });
      stage.expect([listing.entries.length, listing.truncated]).toEqual([max, true]);
      await files.remove(`${HERE}/many/10001`);
      const whole = await files.list(`${HERE}/many`);
      stage.expect([whole.entries.length, whole.truncated]).toEqual([max, false]);
    },
  },
  {
    name: "glob: a name at any depth, a path from the root, ** across directories",
    run: async (stage) => {
      const { files } = await sample(await stage.sandbox());
      const glob = async (pattern: string, includeDirectories = false) =>
        (await files.glob(HERE, pattern, { includeDirectories })).paths.map((path) => path.slice(HERE.length + 1));
      stage.expect(await glob("*.ts")).toEqual(["node_modules/m.ts", "src/deep/b.ts", "src/main.ts"]);
      stage.expect(await glob("**/*.ts")).toEqual(["node_modules/m.ts", "src/deep/b.ts", "src/main.ts"]);
      stage.expect(await glob("src/*.ts")).toEqual(["src/main.ts"]);
      stage.expect(await glob("src/**")).toEqual(["src/deep/b.ts", "src/main.ts"]);
      stage.expect(await glob("src/**", true)).toEqual(["src/deep", "src/deep/b.ts", "src/main.ts"]);
      stage.expect(await glob("**/deep/*")).toEqual(["src/deep/b.ts"]);
      stage.expect(await glob("[ab].*")).toEqual(["a.txt", "src/deep/b.ts"]);
      stage.expect(await glob("?.{txt,ts}")).toEqual(["a.txt", "node_modules/m.ts", "src/deep/b.ts"]);
      stage.expect(await glob(".*")).toEqual([".hidden"]);
      stage.expect(await glob("nothing*")).toEqual([]);
    },
  },
  {
    name: "glob says when it left something out, at the limit and at its neighbours",
    run: async (stage) => {
      const { globDefaultResults: standard, globMaxResults: max } = SANDBOX_LIMITS;
      const { files } = await numbered(await stage.sandbox(), max + 1);
      const counts = async (maxResults?: number) => {
        const { paths, truncated } = await files.glob(HERE, "1*", maxResults === undefined ? {} : { maxResults });
        return [paths.length, truncated];
      };
      stage.expect(await counts()).toEqual([standard, true]);
      stage.expect(await counts(standard + 1)).toEqual([standard + 1, true]);
      stage.expect(await counts(max)).toEqual([max, true]);
      stage.expect(await counts(max + 1)).toEqual([max, true]);
      stage.expect(await counts(3)).toEqual([3, true]);
      await files.remove(`${HERE}/many/10001`);
      stage.expect(await counts(max)).toEqual([max, false]);
      stage.expect(await counts(max - 1)).toEqual([max - 1, true]);
    },
  },
  {
    name: "glob refuses what is no pattern, no directory or not there",
    run: async (stage) => {
      const { files } = await sample(await stage.sandbox());
      for (const pattern of ["", "/etc/*", "../*"]) await stage.rejects(files.glob(HERE, pattern), "invalid_pattern");
      await stage.rejects(files.glob(`${HERE}/a.txt`, "*"), "not_a_directory");
      await stage.rejects(files.glob(`${HERE}/missing`, "*"), "file_not_found");
    },
  },
  {
    name: "grep finds lines by expression, without regard to case unless asked",
    run: async (stage) => {
      const { files } = await sample(await stage.sandbox());
      const lines = async (...args: Parameters<typeof files.grep> extends [string, ...infer Rest] ? Rest : never) =>
        (await files.grep(HERE, ...args)).matches.map(
          ({ path, lineNumber }) => `${path.slice(HERE.length + 1)}:${lineNumber}`,
        );
      stage.expect(await lines("^hello")).toEqual(["a.txt:1", "a.txt:3"]);
      stage.expect(await lines("^hello", { caseSensitive: true })).toEqual(["a.txt:1"]);
      stage.expect(await lines("a.c", { caseSensitive: true })).toEqual(["a.txt:2", "src/main.ts:1"]);
      stage.expect(await lines("a.c", { literal: true })).toEqual(["src/main.ts:1"]);
      stage.expect(await lines("export", { glob: "*.ts" })).toEqual(["node_modules/m.ts:1", "src/deep/b.ts:2"]);
      stage.expect(await lines("export", { glob: "src/**" })).toEqual(["src/deep/b.ts:2"]);
      stage.expect(await lines("nowhere")).toEqual([]);
      stage
        .expect((await files.grep(`${HERE}/a.txt`, "HELLO", { caseSensitive: true })).matches)
        .toEqual([{ path: `${HERE}/a.txt`, lineNumber: 3, line: "HELLO again" }]);
    },
  },
  {
    name: "grep says when it left something out, at the limit and at its neighbours",
    run: async (stage) => {
      const { files } = await stage.sandbox();
      const { grepDefaultResults: standard, grepMaxResults: max } = SANDBOX_LIMITS;
      await files.write(`${HERE}/a`, "hit\n".repeat(max - 1));
      await files.write(`${HERE}/b`, "hit");
      const counts = async (maxResults?: number) => {
        const { matches, truncated } = await files.grep(HERE, "hit", maxResults === undefined ? {} : { maxResults });
        return [matches.length, truncated];
      };
      stage.expect(await counts()).toEqual([standard, true]);
      stage.expect(await counts(standard + 1)).toEqual([standard + 1, true]);
      stage.expect(await counts(max)).toEqual([max, false]);
      stage.expect(await counts(max - 1)).toEqual([max - 1, true]);
      await files.append(`${HERE}/b`, "\nhit\n");
      stage.expect(await counts(max)).toEqual([max, true]);
      stage.expect(await counts(max + 1)).toEqual([max, true]);
    },
  },
  {
    name: "grep skips binary files and links, counts the large files and long lines it skips, and shortens what it reports",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      const { files } = sandbox;
      const { grepFileMaxBytes, grepLineMaxChars, grepReportMaxChars } = SANDBOX_LIMITS;
      const padded = (length: number) => `hit${"x".repeat(length - 3)}`;
      const fileOf = (size: number) => `hit\n${"y\n".repeat((size - 4) / 2)}`;
      await files.write(`${HERE}/size-ok`, fileOf(grepFileMaxBytes));
      await files.write(`${HERE}/size-over`, `${fileOf(grepFileMaxBytes)}y`);
      await files.write(
        `${HERE}/lines`,
        [
          padded(grepLineMaxChars),
          padded(grepLineMaxChars + 1),
          padded(grepReportMaxChars),
          padded(grepReportMaxChars + 1),
        ].join("\n"),
      );
      await files.write(`${HERE}/binary`, "hit\0");
      await sandbox.exec("ln -s size-ok link");
      await files.write(`${HERE}/binary-over`, `hit\0${"y".repeat(grepFileMaxBytes)}`);
      const { matches, ...told } = await files.grep(HERE, "hit");
      stage.expect(told).toEqual({ truncated: false, skippedFiles: 1, skippedLines: 1 });
      const { matches: _, ...ofOthers } = await files.grep(HERE, "hit", { glob: "size-ok" });
      stage.expect(ofOthers).toEqual({ truncated: false, skippedFiles: 0, skippedLines: 0 });
      const ofOne = await files.grep(`${HERE}/size-over`, "hit", { literal: true });
      stage.expect(ofOne).toEqual({ matches: [], truncated: false, skippedFiles: 1, skippedLines: 0 });
      stage.expect(matches.map(({ path, lineNumber }) => [path.slice(HERE.length + 1), lineNumber])).toEqual([
        ["lines", 1],
        ["lines", 3],
        ["lines", 4],
        ["size-ok", 1],
      ]);
      const reported = matches.slice(0, 3).map(({ line }) => [line.length, line.endsWith("...")]);
      stage.expect(reported).toEqual([
        [grepReportMaxChars, true],
        [grepReportMaxChars, false],
        [grepReportMaxChars, true],
      ]);
    },
  },
  {
    name: "grep refuses what is no expression, and gives up on one that does not end",
    run: async (stage) => {
      const { files } = await sample(await stage.sandbox());
      await stage.rejects(files.grep(HERE, "("), "invalid_pattern");
      await stage.rejects(files.grep(HERE, "[z-a]"), "invalid_pattern");
      stage.expect((await files.grep(HERE, "(", { literal: true })).matches.length).toBe(1);
      await stage.rejects(files.grep(`${HERE}/missing`, "x"), "file_not_found");
      await files.write(`${HERE}/trap`, `${"a".repeat(100)}b`);
      await stage.rejects(files.grep(HERE, "^(a+)+$"), "invalid_pattern");
    },
  },
];

/** A small project. */
async function sample(sandbox: Sandbox): Promise<Sandbox> {
  const contents: Record<string, string> = {
    "a.txt": "hello there\nabc\nHELLO again\n",
    ".hidden": "",
    "src/main.ts": "a.c(1)\r\n",
    "src/deep/b.ts": "// first\nexport const x = 1;",
    "node_modules/m.ts": "export {};\n",
  };
  for (const [name, content] of Object.entries(contents)) await sandbox.files.write(`${HERE}/${name}`, content);
  await sandbox.exec("ln -s src link");
  return sandbox;
}

/** `many/10001`, `many/10002`, …: all of one length, made without a process for each. */
async function numbered(sandbox: Sandbox, count: number): Promise<Sandbox> {
  await sandbox.exec(
    `mkdir many && cd many && i=0 && while [ $i -lt ${count} ]; do i=$((i + 1)); : > $((10000 + i)); done`,
  );
  return sandbox;
}
