/**
 * Findings with DeerFlow's client: empty commands, cut output, patterns in Python's syntax, and a sandbox's report of
 * its programs.
 */

import { chmodSync, existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, expect, it } from "vitest";
import { cut } from "../src/aio/output.ts";
import { writeFile } from "../src/files/write.ts";
import { AioClient, SCHEMAS } from "./aio-client.ts";
import { daemonFile, startDaemon, temporaryDirectory } from "./start-daemon.ts";

beforeAll(daemonFile);

async function open() {
  const daemon = await startDaemon();
  return { client: new AioClient(daemon.socketPath, { "x-aio-api-key": daemon.config.token }), daemon };
}

it.each(["", " \n\t", "# nothing but a comment", ":"])(
  "a command that does nothing is no error: %j",
  async (command) => {
    const { client } = await open();
    for (const more of [{}, { id: "kept", exec_dir: "/" }]) {
      const ran = await client.data(SCHEMAS.shellExec, "/v1/shell/exec", { command, ...more });
      expect(ran).toMatchObject({ status: "completed", exit_code: 0, output: "" });
    }
  },
);

it.each(["echo (", "}", "{", "if true", "'", "fi; echo x"])(
  "an error of the shell shows the command alone: %j",
  async (command) => {
    const { client, daemon } = await open();
    for (const more of [{}, { exec_dir: "/", id: "kept" }]) {
      const ran = await client.data(SCHEMAS.shellExec, "/v1/shell/exec", { command, ...more });
      expect([ran.status, ran.exit_code === 0]).toEqual(["completed", false]);
      expect(ran.output).not.toBe("");
      expect(ran.output).not.toMatch(/sandboxd-aio|__sandlot|\bcommand eval\b/);
      expect(ran.output).not.toContain(daemon.workspace);
      const next = await client.data(SCHEMAS.shellExec, "/v1/shell/exec", { command: "echo on", id: ran.session_id });
      expect(next).toMatchObject({ exit_code: 0, output: "on\n" });
    }
  },
);

it("a session keeps directory, variables and the last status", async () => {
  const { client } = await open();
  const run = async (command: string, more: object = {}) =>
    client.data(SCHEMAS.shellExec, "/v1/shell/exec", { command, id: "kept", ...more });
  await run("cd /tmp; x='it'\"'\"'s'; false");
  expect((await run('echo "$? $PWD $x"')).output).toBe("1 /tmp it's\n");
  expect((await run("pwd", { exec_dir: "/usr" })).output).toBe("/usr\n");
});

it("long output is cut between lines", () => {
  const lines = Array.from({ length: 1_000 }, (_, index) => `/a/file-${index}`);
  const shown = cut(`${lines.join("\n")}\n`, 3_000)
    .trimEnd()
    .split("\n");
  const missing = shown.findIndex((line) => /^\.\.\. \[\d+ characters left out\] \.\.\.$/.test(line));
  expect(missing).toBeGreaterThan(0);
  for (const line of shown.toSpliced(missing, 1)) expect(lines).toContain(line);
  expect(shown.join("\n").length).toBeLessThanOrEqual(3_000 + 60);
  // A line that is too long is cut where it has to be.
  expect(cut("x".repeat(100), 10)).toBe("xxxxx\n... [90 characters left out] ...\nxxxxx");
  expect(cut("short\n", 10)).toBe("short\n");
});

it("a search reads patterns as Python does", async () => {
  const { client, daemon } = await open();
  const path = join(daemon.workspace, "names");
  writeFileSync(path, "root\nAlpha Z\n");
  const found = async (pattern: string) =>
    (await client.data(SCHEMAS.fileGrep, "/v1/file/grep", { path, pattern })).matches.map(
      ({ line_content }) => line_content,
    );
  expect(await found("(?i)ROOT")).toEqual(["root"]);
  expect(await found("(?P<n>o)(?P=n)")).toEqual(["root"]);
  expect(await found("Z\\Z")).toEqual(["Alpha Z"]);
  expect(await found("\\AA")).toEqual(["Alpha Z"]);
  await client.failure(SCHEMAS.fileError, "/v1/file/grep", { path, pattern: "o++" });
});

it("reports the versions of Python, Node and other programs", async () => {
  const { client } = await open();
  const { body } = await client.ask("GET", "/v1/sandbox");
  const { runtime, utils } = SCHEMAS.sandbox.parse(JSON.parse(body.toString())).detail;
  expect(runtime.python).toEqual([
    { ver: expect.stringMatching(/^3\.\d+/), bin: expect.stringMatching(/\/python3$/), alias: ["python3"] },
  ]);
  expect(utils.flatMap(({ tools }) => tools.map(({ name }) => name))).toContain("git");
});

it("runs none of the programs that a sandbox has planted in its home to report them", async () => {
  const home = temporaryDirectory();
  const folder = join(home, ".local/bin");
  mkdirSync(folder, { recursive: true });
  for (const name of ["python3", "node", "mkfifo", "rg"])
    writeFileSync(join(folder, name), `#!/bin/sh\necho 99.9.9; echo ${name} >> ${home}/ran\n`, { mode: 0o755 });
  const environment = { HOME: home, PATH: `${folder}:/usr/local/bin:/usr/bin:/bin` };
  const daemon = await startDaemon({ config: { environment } });
  const client = new AioClient(daemon.socketPath, { "x-aio-api-key": daemon.config.token });
  const { body } = await client.ask("GET", "/v1/sandbox");
  const { runtime } = SCHEMAS.sandbox.parse(JSON.parse(body.toString())).detail;
  expect(runtime.python.map(({ ver }) => ver)).not.toContain("99.9.9");
  await client.data(SCHEMAS.shellExec, "/v1/shell/exec", { command: ":" });
  await client.data(SCHEMAS.fileGrep, "/v1/file/grep", { path: daemon.workspace, pattern: "x" });
  expect(existsSync(join(home, "ran"))).toBe(false);
  // A command of the sandbox does run them.
  await client.data(SCHEMAS.shellExec, "/v1/shell/exec", { command: "python3" });
  expect(readFileSync(join(home, "ran"), "utf8")).toBe("python3\n");
});

it("writes in place where a file cannot be replaced, and keeps its owner", async (context) => {
  if (process.getuid?.() !== 0) return context.skip("a test with accounts takes root");
  const around = temporaryDirectory();
  chmodSync(around, 0o755);
  const folder = join(around, "closed");
  mkdirSync(folder);
  const path = join(folder, "file");
  writeFileSync(path, "much longer than what comes");
  chmodSync(path, 0o666);
  const before = statSync(path);
  chmodSync(folder, 0o555);
  process.setegid?.(59_998);
  process.seteuid?.(59_998);
  try {
    await writeFile(
      path,
      (async function* () {
        yield Buffer.from("new");
      })(),
      {},
    );
  } finally {
    process.seteuid?.(0);
    process.setegid?.(0);
  }
  expect(readFileSync(path, "utf8")).toBe("new");
  expect(statSync(path)).toMatchObject({ ino: before.ino, uid: before.uid });
});
