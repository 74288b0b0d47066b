/** The modules a command loads before it does anything: the time that every start takes. Of the built command line. */

import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
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

/** The text of all our modules that a command has loaded. */
function loadedBy(args: readonly string[], environment: Record<string, string> = {}): string {
  const folder = join(home, "coverage");
  start(args, { ...environment, NODE_V8_COVERAGE: folder });
  const [report = ""] = readdirSync(folder);
  const { result } = JSON.parse(readFileSync(join(folder, report), "utf8")) as { result: { url: string }[] };
  const ours = result.filter(({ url }) => url.includes("/dist/bundle/"));
  expect(ours.length).toBeGreaterThan(1);
  return ours.map(({ url }) => readFileSync(fileURLToPath(url), "utf8")).join("\n");
}

describe("a command loads what it needs", () => {
  test.each([["--version"], ["--help"], ["completion", "bash"]])("%s: neither zod nor a fleet", (...args) => {
    const text = loadedBy(args);
    expect(text).not.toContain("ZodString");
    expect(text).not.toContain("node:sqlite");
    expect(text.length).toBeLessThan(200_000);
  });

  test("keys: no server", () => {
    const text = loadedBy(["keys", "list"]);
    expect(text).not.toContain("FST_ERR_");
    expect(text).not.toContain("node:sqlite");
  });

  test("exec through a gateway: neither zod nor a fleet", async () => {
    const env = { ...process.env, SANDLOT_HOME: join(home, "served"), SANDLOT_BACKEND: "memory" };
    const gateway = spawn(process.execPath, [LAUNCHER, "serve", "--port", "0", "--json"], {
      env,
      stdio: ["ignore", "pipe", "inherit"],
    });
    const ended = once(gateway, "close");
    try {
      const [line] = (await once(gateway.stdout, "data")) as [Buffer];
      const { listening } = JSON.parse(String(line)) as { listening: string };
      const apiKey = readFileSync(join(home, "served", "operator.key"), "utf8").trim();
      const through = { SANDLOT_URL: listening, SANDLOT_API_KEY: apiKey };
      const text = loadedBy(["exec", "-t", "t1", "--", "echo", "there"], through);
      expect(text).not.toContain("ZodString");
      expect(text).not.toContain("node:sqlite");
    } finally {
      gateway.kill();
      await ended;
    }
  });

  test("ps: no server, and no other backend", () => {
    const text = loadedBy(["ps"]);
    expect(text).not.toContain("FST_ERR_");
    expect(text).not.toContain("dockerode");
  });

  test("ps where nothing is to be cleared up: no fleet, and no backend", () => {
    start(["ps"]);
    const text = loadedBy(["ps"]);
    expect(text).not.toContain("late-binding");
    expect(text).not.toContain("housekeeping-failed");
    expect(text).toContain("node:sqlite");
  });
});

describe("compiled code is kept", () => {
  const compiled = () => join(home, "cache/sandlot/compiled");
  const file = () => join(compiled(), readdirSync(compiled())[0] ?? "");

  test("in a folder of one's own", () => {
    start(["--version"]);
    expect(statSync(compiled()).mode & 0o777).toBe(0o700);
    expect(readdirSync(compiled()).length).toBe(1);
  });

  test("for every command that was run, and written only when there is more", () => {
    const look = () => {
      const { ino, size } = statSync(file());
      return { ino, size };
    };
    start(["--version"]);
    const first = look();
    start(["--version"]);
    expect(look()).toEqual(first);
    start(["config", "check"]);
    const second = look();
    expect(second.size).toBeGreaterThan(first.size);
    start(["--version"]);
    start(["config", "check"]);
    expect(look()).toEqual(second);
  });

  test.each([0, 5, 20, 2_000, -1])("a file that was cut off at %i bytes is made anew", (length) => {
    start(["--version"]);
    const { ino, size } = statSync(file());
    truncateSync(file(), length < 0 ? size + length : length);
    expect(start(["--version"])).toMatch(/^\d/);
    expect(statSync(file()).ino).not.toBe(ino);
    expect(statSync(file()).size).toBeGreaterThan(size / 2);
  });

  test("a file that was damaged is made anew: V8 would crash on it", () => {
    start(["--version"]);
    const whole = readFileSync(file());
    const damaged = Buffer.from(whole);
    for (let at = whole.length / 4; at < whole.length; at += 500)
      damaged[Math.floor(at)] = ~(damaged[Math.floor(at)] ?? 0);
    writeFileSync(file(), damaged);
    const { ino } = statSync(file());
    expect(start(["--version"])).toMatch(/^\d/);
    expect(statSync(file()).ino).not.toBe(ino);
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
