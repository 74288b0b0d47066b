import { mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, it, vi } from "vitest";
import { Interruption } from "../../src/cli/interruption.ts";
import { run } from "../../src/cli/program.ts";
import { runCli } from "./run-cli.ts";

const folder = mkdtempSync(join(tmpdir(), "sandlot-demo-test-"));
afterAll(() => rmSync(folder, { recursive: true }));

/** A separate temporary directory and home, so that leftovers are seen wherever they are. */
function places(name: string) {
  const temporary = join(folder, name, "tmp");
  const home = join(folder, name, "home");
  mkdirSync(temporary, { recursive: true });
  return {
    temporary,
    environment: { TMPDIR: temporary, HOME: home, SANDLOT_HOME: join(home, "sandlot") },
    parent: join(folder, name),
  };
}

it("shows every step and leaves nothing behind", async () => {
  const { temporary, environment, parent } = places("text");
  const startedAt = performance.now();
  const { code, stdout, stderr } = await runCli(["demo"], environment);
  const durationMs = performance.now() - startedAt;

  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  const titles = stdout.match(/^\d\. .*$/gm);
  expect(titles).toEqual([
    "1. Two conversations ask for a sandbox",
    "2. Each one has its own files",
    "3. A helper joins a conversation",
    "4. The sandbox crashes",
    "5. A pause, and the conversation goes on",
    "6. Everything is closed",
  ]);
  expect(stdout).toContain("hears of it: crashed");
  expect(stdout).toContain("(exit code 1)");
  expect(stdout).toContain('"research" is parked');
  expect(stdout).toContain("Where to read next");
  expect(stdout.split("\n").filter((line) => line.length > 100)).toEqual([]);
  expect(readdirSync(temporary)).toEqual([]);
  expect(readdirSync(parent)).toEqual(["tmp"]);
  // The promise is three seconds on an idle machine; tests share theirs.
  expect(durationMs).toBeLessThan(10_000);
});

it("prints one JSON document with --json", async () => {
  const { environment } = places("json");
  const { code, stdout } = await runCli(["demo", "--json"], environment);
  expect(code).toBe(0);
  const { steps } = JSON.parse(stdout) as { steps: { title: string; lines: unknown[] }[] };
  expect(steps).toHaveLength(6);
  expect(steps[1]?.lines).toContainEqual({
    command: "cat notes.txt",
    output: "Sandlots are where games begin.\n",
    exitCode: 0,
  });
});

it.each(["1. Two", "3. A helper", "5. A pause"])(
  "leaves nothing behind when it is interrupted at %j",
  async (moment) => {
    const { temporary } = places(`interrupted-${moment[0]}`);
    vi.stubEnv("TMPDIR", temporary);
    const interruption = new AbortController();
    let stdout = "";
    let stderr = "";
    const terminal = {
      out: (text: string) => {
        stdout += text;
        if (text.includes(moment)) interruption.abort(new Interruption("SIGTERM"));
      },
      error: (text: string) => {
        stderr += text;
      },
      write: async () => true,
      isWatched: false,
      stdin: process.stdin,
      size: () => ({ columns: 80, rows: 24 }),
      onResize: () => () => undefined,
      environment: {},
    };
    try {
      expect(await run(["node", "sandlot", "demo"], terminal, interruption.signal)).toBe(143);
    } finally {
      vi.unstubAllEnvs();
    }
    expect(stderr).toBe("Interrupted by SIGTERM; everything was closed.\n");
    expect(stdout).not.toContain("Everything is closed");
    expect(readdirSync(temporary)).toEqual([]);
  },
);
