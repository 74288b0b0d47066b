/** What a command loads before it does anything: the time that every start takes. Of the built command line. */

import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, describe, expect, test } from "vitest";

const PACKAGE = join(import.meta.dirname, "../..");
const LAUNCHER = join(PACKAGE, "bin/sandlot.mjs");
const isBuilt = existsSync(join(PACKAGE, "dist/bundle/programs/cli/main.js"));
let home = "";

beforeEach((context) => {
  home = mkdtempSync(join(tmpdir(), "sandlot-start-"));
  if (!isBuilt) context.skip("not built: run npm run build");
});
afterEach(() => rmSync(home, { recursive: true, force: true }));

function start(args: readonly string[], environment: Record<string, string> = {}) {
  const { NODE_COMPILE_CACHE: _, ...inherited } = process.env;
  const env = { ...inherited, SANDLOT_HOME: join(home, "state"), XDG_CACHE_HOME: join(home, "cache"), ...environment };
  const { status, stdout, stderr } = spawnSync(process.execPath, [LAUNCHER, ...args], { env, encoding: "utf8" });
  expect(status, stderr).toBe(0);
  return stdout;
}

/** The text of everything of ours that a command has loaded. */
function loadedBy(...args: readonly string[]): string {
  const folder = join(home, "coverage");
  start(args, { NODE_V8_COVERAGE: folder });
  const [report = ""] = readdirSync(folder);
  const { result } = JSON.parse(readFileSync(join(folder, report), "utf8")) as { result: { url: string }[] };
  const ours = result.filter(({ url }) => url.includes("/dist/bundle/"));
  expect(ours.length).toBeGreaterThan(1);
  return ours.map(({ url }) => readFileSync(fileURLToPath(url), "utf8")).join("\n");
}

describe("a command loads what it needs", () => {
  test.each([["--version"], ["--help"], ["completion", "bash"]])("%s: neither zod nor a fleet", (...args) => {
    const text = loadedBy(...args);
    expect(text).not.toContain("ZodString");
    expect(text).not.toContain("node:sqlite");
    expect(text.length).toBeLessThan(200_000);
  });

  test("keys: no server", () => {
    const text = loadedBy("keys", "list");
    expect(text).not.toContain("FST_ERR_");
    expect(text).not.toContain("node:sqlite");
  });

  test("ps: no server, and no other backend", () => {
    const text = loadedBy("ps");
    expect(text).not.toContain("FST_ERR_");
    expect(text).not.toContain("dockerode");
  });
});

describe("what was compiled is kept", () => {
  const compiled = () => join(home, "cache/sandlot/compiled");

  test("in a folder of one's own", () => {
    start(["--version"]);
    expect(statSync(compiled()).mode & 0o777).toBe(0o700);
    expect(readdirSync(compiled()).length).toBe(1);
  });

  test("not in one that others may write, or that is a link", () => {
    mkdirSync(join(home, "cache/sandlot"), { recursive: true });
    mkdirSync(join(home, "open"), { mode: 0o700 });
    symlinkSync(join(home, "open"), compiled());
    start(["--version"]);
    expect(readdirSync(join(home, "open"))).toEqual([]);
    rmSync(compiled());
    spawnSync("mkdir", ["-m", "0777", compiled()]);
    start(["--version"]);
    expect(readdirSync(compiled())).toEqual([]);
  });
});
