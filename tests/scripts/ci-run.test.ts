/** `.ci/run` ends with one line that sums both suites, whatever became of each, and an exit code that agrees with it. */

import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, it, onTestFinished } from "vitest";

const RUN = fileURLToPath(new URL("../../.ci/run", import.meta.url));

/** Runs it with an `npm` that does this for each suite. */
function ciRun(test: string, engines: string) {
  const folder = mkdtempSync(join(tmpdir(), "sandlot-ci-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const script = `#!/bin/sh\ncase "$*" in\n*test:engines) ${engines} ;;\n*test) ${test} ;;\nesac\n`;
  writeFileSync(join(folder, "npm"), script, { mode: 0o755 });
  const env = { ...process.env, PATH: [folder, process.env.PATH].join(delimiter) };
  const { status, stdout } = spawnSync(RUN, { env, encoding: "utf8" });
  return { status, lines: stdout.trimEnd().split("\n") };
}

it.each([
  ["echo 10 passed, 0 failed", "echo 5 passed, 0 failed", 0, "15 passed, 0 failed"],
  ["echo 9 passed, 1 failed; exit 1", "echo 5 passed, 0 failed", 1, "14 passed, 1 failed"],
  ["echo 10 passed, 0 failed", "echo 3 passed, 2 failed; exit 1", 1, "13 passed, 2 failed"],
  ["echo broken; exit 1", "echo 5 passed, 0 failed", 1, "5 passed, 1 failed"],
  ["echo 10 passed, 0 failed", "kill -9 $$", 1, "10 passed, 1 failed"],
  ["echo 10 passed, 0 failed; exit 1", "echo 5 passed, 0 failed", 1, "15 passed, 1 failed"],
])("%s and %s", (test, engines, status, last) => {
  const run = ciRun(test, engines);
  expect({ status: run.status, last: run.lines.at(-1) }).toEqual({ status, last });
});

it("names what failed in either suite above the last line", () => {
  const failed = (suite: string) =>
    `echo === a; echo 'FAILED in ${suite}: x > y: a reason'; echo 1 passed, 1 failed; exit 1`;
  const { lines } = ciRun(failed("vitest"), `${failed("engines")}`);
  expect(lines.slice(-3)).toEqual([
    "FAILED in vitest: x > y: a reason",
    "FAILED in engines: x > y: a reason",
    "2 passed, 2 failed",
  ]);
});
