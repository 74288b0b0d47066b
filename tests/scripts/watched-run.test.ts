/**
 * A step of the tests is ended when it makes no progress, with everything that it started, and what it was doing is named;
 * one that is slow and makes progress is left alone.
 */

import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, it, onTestFinished } from "vitest";
import { runWatched } from "../../scripts/watched-run.mjs";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const STALL_MS = 1_500;

function place(): string {
  const path = mkdtempSync(join(tmpdir(), "sandlot-watched-"));
  onTestFinished(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

it("answers with the exit code of a command, and that of a shell for a signal", async () => {
  expect(await runWatched("sh", ["-c", "exit 3"])).toEqual({ code: 3, stalled: null });
  expect(await runWatched("sh", ["-c", "kill -9 $$"])).toEqual({ code: 137, stalled: null });
  expect(await runWatched("/nothing/here", [])).toEqual({ code: 127, stalled: null });
});

it("leaves a command alone that takes longer than the limit and reports progress", async () => {
  const file = join(place(), "progress");
  const printing = "for i in 1 2 3 4 5 6 7 8; do sleep 0.5; printf .; done; echo";
  const writing = `for i in 1 2 3 4 5 6 7 8; do sleep 0.5; echo $i > "${file}"; done`;
  const ended = await Promise.all([
    runWatched("sh", ["-c", printing], { stallMs: STALL_MS }),
    runWatched("sh", ["-c", writing], { stallMs: STALL_MS, progressFile: file }),
  ]);
  expect(ended).toEqual([
    { code: 0, stalled: null },
    { code: 0, stalled: null },
  ]);
});

it("ends a command that is silent, with what it started, and says what it was doing", async () => {
  const folder = place();
  const [progress, pids] = [join(folder, "progress"), join(folder, "pids")];
  writeFileSync(progress, "the first thing\nthe second thing\n");
  const script = `sleep 600 & echo $! > "${pids}"; wait`;
  const { code, stalled } = await runWatched("sh", ["-c", script], { stallMs: STALL_MS, progressFile: progress });
  expect(code).not.toBe(0);
  expect(stalled).toEqual(["the first thing", "the second thing"]);
  const pid = Number(readFileSync(pids, "utf8"));
  await expect.poll(() => isRunning(pid)).toBe(false);
});

it("names the test that keeps vitest from going on", async () => {
  const folder = mkdtempSync(join(ROOT, ".cache", "hanging-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  mkdirSync(join(folder, "some"));
  writeFileSync(
    join(folder, "some", "hanging.test.ts"),
    'import { it } from "vitest";\nit("passes", () => {});\nit("never ends", { timeout: 0 }, () => new Promise(() => {}));\n',
  );
  writeFileSync(join(folder, "vitest.config.mjs"), 'export default { test: { pool: "forks" } };\n');
  const progressFile = join(folder, "progress");
  const { stalled } = await runWatched(
    process.execPath,
    [
      ...[join(ROOT, "node_modules/vitest/vitest.mjs"), "run", "--root", folder],
      `--reporter=${join(ROOT, "scripts/vitest-summary.ts")}`,
    ],
    { stallMs: 10_000, progressFile, env: { ...process.env, SANDLOT_TEST_PROGRESS: progressFile } },
  );
  expect(stalled).toContain("some/hanging.test.ts > never ends");
  expect(stalled).not.toContain("some/hanging.test.ts > passes");
});
