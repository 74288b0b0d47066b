import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { fleetConfigJsonSchema } from "../../src/config/schema.ts";
import { runCli } from "./run-cli.ts";
import { runHere } from "./run-here.ts";

const folder = mkdtempSync(join(tmpdir(), "sandlot-cli-"));
afterAll(() => rmSync(folder, { recursive: true }));

function file(name: string, content: string): string {
  const path = join(folder, name);
  writeFileSync(path, content);
  return path;
}

describe("help", () => {
  it("shows commands, examples and exit codes", async () => {
    const { code, stdout, stderr } = await runCli(["--help"]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    for (const part of ["Usage: sandlot", "demo", "config", "--json", "Examples:", "Exit codes:", "SANDLOT_HOME"]) {
      expect(stdout).toContain(part);
    }
  });

  it("is what a command line without a command gets, as an error", async () => {
    const { code, stdout, stderr } = await runCli([]);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr).toContain("Usage: sandlot");
  });

  it("has the version of the package", async () => {
    const manifest = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")) as {
      version: string;
    };
    expect(await runCli(["--version"])).toMatchObject({ code: 0, stdout: `${manifest.version}\n`, stderr: "" });
  });
});

describe("a wrong command line", () => {
  it.each([
    [["dmo"], "Did you mean demo?"],
    [["--jsno", "demo"], "Did you mean --json?"],
    [["config", "chek"], "Did you mean check?"],
    [["config", "check", "a", "b"], "too many arguments"],
    [["exec", "--thrad", "t1", "--", "true"], "unknown option '--thrad'"],
  ])("%j ends with 2 and one message", async (args, message) => {
    const { code, stdout, stderr } = await runCli(args);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr.split(message)).toHaveLength(2);
    expect(stderr).toMatch(/Run `sandlot[ a-z]* --help`/);
  });

  it.each([
    [["dmo"], "unknown command 'dmo' (Did you mean demo?)"],
    [[], "no command was given"],
  ])("%j is JSON when asked for", async (args, problem) => {
    const { code, stdout } = await runHere([...args, "--json"], {});
    expect(code).toBe(2);
    expect(JSON.parse(stdout)).toMatchObject({
      error: { code: "invalid_request", details: { field: "command line", problem } },
    });
  });
});

describe("config schema", () => {
  it("prints the JSON Schema and nothing else", async () => {
    const { code, stdout, stderr } = await runHere(["config", "schema"], {});
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(JSON.parse(stdout)).toEqual(fleetConfigJsonSchema());
  });
});

describe("config check", () => {
  it("shows what the defaults come to", async () => {
    const { code, stdout } = await runHere(["config", "check"], { SANDLOT_HOME: "/data/sandlot" });
    expect(code).toBe(0);
    expect(stdout).toContain("/data/sandlot/fleet.db");
    expect(stdout).toContain("50 sandboxes (hard)");
    expect(stdout).toContain("1 of default by `sandlot serve`");
  });

  it("prints each registry with its origin, also those of a setup", async () => {
    const home = join(folder, "of-pip");
    mkdirSync(join(home, ".config", "pip"), { recursive: true });
    const index = "https://a:b@packages.invalid/simple";
    writeFileSync(join(home, ".config", "pip", "pip.conf"), `[global]\nindex-url = ${index}\n`);
    const network = { mode: "allowlist", registries: ["pip"] };
    const path = file(
      "registries.json",
      JSON.stringify({ pool: {}, blueprints: { b: { setup: { script: "true", network } } } }),
    );
    const environment = { HOME: home, XDG_CONFIG_DIRS: "/nowhere" };
    const { stdout } = await runHere(["config", "check", path], environment);
    expect(stdout).toMatch(
      /pip of b's setup +https:\/\/packages\.invalid\/simple, from .*of-pip\/\.config\/pip\/pip\.conf/,
    );
    expect(stdout).toMatch(/kept ready +none/);
    expect(stdout).not.toContain("a:b@");
    expect(JSON.parse((await runHere(["config", "check", path, "--json"], environment)).stdout)).toMatchObject({
      registries: [{ blueprint: "b's setup", registries: [{ tool: "pip", url: "https://packages.invalid/simple" }] }],
    });
  });

  it("accepts a right file, with a $schema for editors, and shows no values of variables", async () => {
    const path = file(
      "right.json",
      JSON.stringify({
        $schema: "./s.json",
        limits: { max: 7 },
        blueprints: { a: { environment: { KEY: "$SECRET" } } },
      }),
    );
    const text = await runHere(["config", "check", path], { SECRET: "hunter2" });
    expect(text).toMatchObject({ code: 0, stderr: "", stdout: expect.stringContaining("7 sandboxes") });
    const json = await runHere(["config", "check", path, "--json"], { SECRET: "hunter2" });
    expect(JSON.parse(json.stdout)).toMatchObject({
      file: path,
      settings: { limits: { max: 7 }, blueprints: { a: { environment: ["KEY"] } } },
    });
    expect(text.stdout + json.stdout).not.toContain("hunter2");
  });

  it("names what is experimental, and only where it is used", async () => {
    const aio = file("aio.json", JSON.stringify({ backend: "docker", docker: { runtime: "aio" } }));
    expect((await runCli(["config", "check", aio])).stdout).toMatch(/^ {2}experimental: docker\.runtime: aio .*$/m);
    const unused = file("unused.json", JSON.stringify({ backend: "local", docker: { runtime: "aio" } }));
    expect((await runCli(["config", "check", unused])).stdout).not.toContain("experimental");
  });

  it("takes the file from SANDLOT_CONFIG where none is named", async () => {
    const path = file("wrong.json", '{ "idleTimeout": 5 }');
    const { code, stderr } = await runHere(["config", "check"], { SANDLOT_CONFIG: path });
    expect(code).toBe(1);
    expect(stderr).toBe(
      `error config_invalid: Configuration at idleTimeout: this key does not exist (${path}, line 1, column 3). Did you mean idleTimeoutMs?\n` +
        "  What to do: Correct the named key. `sandlot config schema` prints every key with its meaning.\n",
    );
  });

  it("names every problem of a file with its line and column, also those of the gateway", async () => {
    const path = file(
      "five.yaml",
      "backend: dockr\nlimits: { maxx: 3 }\nidleTimeoutMs: soon\npool: { default: -1 }\ngateway: { prt: 1 }\n",
    );
    const { code, stderr } = await runHere(["config", "check", path], {});
    expect(code).toBe(1);
    const told = stderr.split("\n").filter((line) => line.startsWith("  - "));
    expect(told).toEqual([
      "  - line 2, column 11: limits.maxx this key does not exist; did you mean max?",
      expect.stringMatching(/^ {2}- line 1, column 10: backend must be one of .*; did you mean docker\?$/),
      expect.stringMatching(/^ {2}- line 4, column 18: pool.default must not be negative/),
      expect.stringMatching(/^ {2}- line 3, column 16: idleTimeoutMs must be a duration/),
      "  - line 5, column 12: gateway.prt this key does not exist; did you mean port?",
    ]);
    const { stdout } = await runHere(["config", "check", path, "--json"], {});
    const { error } = JSON.parse(stdout) as { error: { details: { problems: { line: number }[] } } };
    expect(error.details.problems.map(({ line }) => line)).toEqual([2, 1, 4, 3, 5]);
  });

  it("reads durations and sizes as people write them", async () => {
    const path = file(
      "units.yaml",
      "idleTimeoutMs: 10m\nmaxLifetimeMs: 1.5h\nlocal: { tmpBytes: 2GiB, homeBytes: 500MB }\ngateway: { drainMs: 5s }\n",
    );
    const { stdout } = await runHere(["config", "check", path, "--json"], {});
    expect(JSON.parse(stdout)).toMatchObject({
      settings: {
        idleTimeoutMs: 600_000,
        maxLifetimeMs: 5_400_000,
        local: { tmpBytes: 2_147_483_648, homeBytes: 500_000_000 },
      },
    });
  });

  it("init writes a file that is right, and never over another", async () => {
    const path = join(folder, "begun.yaml");
    expect((await runHere(["config", "init", path], {})).code).toBe(0);
    expect((await runHere(["config", "check", path], {})).stdout).toContain("is right");
    const again = await runHere(["config", "init", path], {});
    expect(again).toMatchObject({ code: 1, stderr: expect.stringContaining("exists already and is left alone") });
    // The comments are right too.
    const lines = readFileSync(path, "utf8").split("\n").slice(3);
    const uncommented = lines.map((line) => line.replace(/^# /, "")).join("\n");
    expect((await runHere(["config", "check", file("uncommented.yaml", uncommented)], {})).stderr).toBe("");
  });

  it("gives an error as JSON on stdout", async () => {
    const path = file("wrong2.json", '{ "limits": { "max": 0 } }');
    const { code, stdout, stderr } = await runHere(["--json", "config", "check", path], {});
    expect({ code, stderr }).toEqual({ code: 1, stderr: "" });
    expect(JSON.parse(stdout)).toEqual({
      error: {
        code: "config_invalid",
        message: expect.stringContaining("limits.max"),
        retryable: false,
        details: {
          path: "limits.max",
          problem: expect.any(String),
          problems: [{ path: "limits.max", problem: expect.any(String), line: 1, column: 22 }],
        },
        remedy: expect.any(String),
      },
    });
  });

  it.each([
    ["is missing", () => join(folder, "none.json"), "it does not exist"],
    ["is a directory", () => folder, "cannot be read"],
    ["is neither YAML nor JSON", () => file("broken.json", "{ a: [1 }"), "line 1, column"],
    ["has a key twice", () => file("twice.yaml", "home: /a\nhome: /b\n"), "line 2, column 1"],
    ["is a list", () => file("list.json", "[]"), "must be an object, but is a list"],
  ])("says so when the file %s", async (_, path, message) => {
    const { code, stdout, stderr } = await runHere(["config", "check", path()], {});
    expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
    expect(stderr).toContain(message);
    expect(stderr).not.toContain("    at ");
  });
});
