/**
 * Client behaviour beyond the description of the AIO API: calls that the Python client `agent-sandbox` makes, by its
 * requests and its declared responses.
 */

import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, expect, it } from "vitest";
import { z } from "zod";
import { AioClient, SCHEMAS } from "./aio-client.ts";
import { daemonFile, startDaemon } from "./start-daemon.ts";

beforeAll(daemonFile, 60_000);

async function open() {
  const daemon = await startDaemon();
  const client = new AioClient(daemon.socketPath, { "x-aio-api-key": daemon.config.token });
  const put = (name: string, text: string) => {
    mkdirSync(join(daemon.workspace, name, ".."), { recursive: true });
    writeFileSync(join(daemon.workspace, name), text);
  };
  return { client, root: daemon.workspace, put };
}

it("no body at all is what a client sends that names no field, where none is needed", async () => {
  const { client, root } = await open();
  const shell = await client.data(SCHEMAS.shellSession, "/v1/shell/sessions/create", undefined);
  expect(shell.working_dir).toBe(root);
  const bash = await client.data(SCHEMAS.bashSession, "/v1/bash/sessions/create", undefined);
  expect(bash).toMatchObject({ status: "ready", command_count: 0 });
  const watched = await client.ask("POST", "/v1/file/watch", { path: root });
  const { data } = z.object({ data: z.object({ watcher_id: z.string() }) }).parse(JSON.parse(watched.body.toString()));
  const polled = await client.ask("POST", `/v1/file/watch/${data.watcher_id}/poll`);
  expect(JSON.parse(polled.body.toString())).toEqual({ events: [], cursor: 0, overflow: false });
  expect((await client.invalid("/v1/shell/exec", undefined))[0]).toMatchObject({ type: "missing", loc: ["body"] });
});

it("a missing directory is the session's own, or a failure in strict mode", async () => {
  const { client, root } = await open();
  const exec = (more: object) => client.data(SCHEMAS.shellExec, "/v1/shell/exec", { command: "pwd", ...more });
  const nowhere = { exec_dir: "/no/where" };
  expect(await exec(nowhere)).toMatchObject({ exit_code: 0, output: `${root}\n` });
  expect(await exec({ id: "a", exec_dir: "/tmp" })).toMatchObject({ output: "/tmp\n" });
  expect(await exec({ id: "a", ...nowhere })).toMatchObject({ exit_code: 0, output: "/tmp\n" });
  for (const more of [{}, { id: "a" }]) {
    const strict = { command: "pwd", strict: true, ...nowhere, ...more };
    await client.failure(z.null(), "/v1/shell/exec", strict);
  }
  await client.failure(z.null(), "/v1/shell/sessions/create", nowhere);
  expect(await exec({ id: "a" })).toMatchObject({ output: "/tmp\n" });
});

it("a directory's links are followed, unless they are to be kept", async () => {
  const { client, root } = await open();
  mkdirSync(join(root, "real"));
  const link = join(root, "link");
  symlinkSync("real", link);
  const exec = async (more: object) =>
    (await client.data(SCHEMAS.shellExec, "/v1/shell/exec", { command: "pwd", exec_dir: link, ...more })).output;
  expect(await exec({})).toBe(`${join(root, "real")}\n`);
  expect(await exec({ preserve_symlinks: true })).toBe(`${link}\n`);
  expect(await exec({ id: "a" })).toBe(`${join(root, "real")}\n`);
  expect(await exec({ id: "a", preserve_symlinks: true })).toBe(`${link}\n`);
  // The listing shows the given command.
  const viewed = await client.data(SCHEMAS.shellView, "/v1/shell/view", { id: "a" });
  expect([viewed.command, viewed.console?.[0]?.command]).toEqual(["pwd", "pwd"]);
});

it("sessions count as active for five minutes, and there is no page for a terminal", async () => {
  const { client } = await open();
  await client.data(SCHEMAS.shellExec, "/v1/shell/exec", { command: "true" });
  const stats = await client.data(SCHEMAS.shellStats, "/v1/shell/sessions/stats", undefined, "GET");
  expect(stats).toMatchObject({ total_sessions: 1, active_sessions: 1, idle_sessions: 0 });
  await client.failure(z.null(), "/v1/shell/terminal-url", undefined, "GET");
});

it("a bash session remembers its directory, reads its snapshot, and has no output before its first command", async () => {
  const { client, root, put } = await open();
  put("snap.sh", 'greet() { echo "hello $1"; }\n');
  const session_id = "s";
  const made = { session_id, snapshot_path: join(root, "snap.sh") };
  await client.data(SCHEMAS.bashSession, "/v1/bash/sessions/create", made);
  const output = (more: object) => client.data(SCHEMAS.bashOutput, "/v1/bash/output", { session_id, ...more });
  expect(await output({ wait: true })).toMatchObject({ stdout: "", offset: 0, command: null });
  await client.failure(z.null(), "/v1/bash/output", { session_id, command_id: "none" });
  const exec = (more: object) => client.data(SCHEMAS.bashExec, "/v1/bash/exec", { session_id, ...more });
  expect(await exec({ command: "greet you; pwd", exec_dir: "/tmp" })).toMatchObject({ stdout: "hello you\n/tmp\n" });
  expect(await exec({ command: "pwd" })).toMatchObject({ stdout: "/tmp\n" });
  expect((await output({})).command).toMatchObject({ command: "pwd", status: "completed" });
  // A command belongs to its session.
  const other = await client.data(SCHEMAS.bashExec, "/v1/bash/exec", { command: "echo other" });
  await client.failure(z.null(), "/v1/bash/output", { session_id, command_id: other.command_id });
  await client.data(SCHEMAS.bashSession, "/v1/bash/sessions/s/close", undefined);
  const listed = await client.data(z.array(SCHEMAS.bashSession), "/v1/bash/sessions", undefined, "GET");
  expect(listed.map((session) => session.session_id)).toEqual([other.session_id]);
});

it("searches leave out whole directories, know ripgrep's types, and match across lines", async () => {
  const { client, root, put } = await open();
  put("a.py", "first\nneedle\nlast\nfirst\nneedle\n");
  put("node_modules/p/b.js", "needle\n");
  put("Cargo.toml", "needle = 1\n");
  const grep = async (more: object) => {
    const body = { path: root, pattern: "needle", ...more };
    const { matches } = await client.data(SCHEMAS.fileGrep, "/v1/file/grep", body);
    return matches.map((match) => ({ ...match, file: match.file.slice(root.length + 1) }));
  };
  const names = (found: readonly { file: string }[]) => [...new Set(found.map(({ file }) => file))];
  expect(names(await grep({ exclude: ["node_modules"] }))).toEqual(["Cargo.toml", "a.py"]);
  expect(names(await grep({ type: "toml" }))).toEqual(["Cargo.toml"]);
  expect(names(await grep({ type: "python" }))).toEqual(["a.py"]);
  const across = { pattern: "FIRST.need", multiline: true, case_insensitive: true, context_after: 1 };
  const both = { file: "a.py", line_content: "first\nneedle", context_before: null };
  expect(await grep(across)).toEqual([
    { ...both, line_number: 1, context_after: ["last"] },
    { ...both, line_number: 4, context_after: [] },
  ]);
  put("x.txt", `${"x".repeat(40)}\n`);
  const endless = { path: join(root, "x.txt"), pattern: "(x+x+)+y", multiline: true };
  await client.failure(SCHEMAS.fileError, "/v1/file/grep", endless);
  expect(await grep({ pattern: "t\nn", multiline: true, fixed_strings: true, max_results: 1 })).toMatchObject([
    { line_number: 1 },
  ]);
  const glob = { path: root, pattern: "**/*", exclude: ["node_modules"] };
  const { files } = await client.data(SCHEMAS.fileGlob, "/v1/file/glob", glob);
  expect(files.map(({ name }) => name)).toEqual(["Cargo.toml", "a.py", "x.txt"]);
  const list = { path: root, sort_by: "type" };
  const listed = await client.data(SCHEMAS.fileList, "/v1/file/list", list);
  expect(listed.files.map(({ name }) => name)).toEqual(["a.py", "Cargo.toml", "x.txt", "node_modules"]);
});

it("output since a number can be requested by the name that older clients use", async () => {
  const { client, root, put } = await open();
  const poll = async (id: string, body: object) =>
    z
      .object({ events: z.array(z.object({ seq: z.int(), relative_path: z.string() })), cursor: z.int() })
      .parse(JSON.parse((await client.ask("POST", `/v1/file/watch/${id}/poll`, body)).body.toString()));
  const made = await client.ask("POST", "/v1/file/watch", { path: root, debounce: 10 });
  const { watcher_id } = JSON.parse(made.body.toString()).data;
  put("one", "1");
  const first = await poll(watcher_id, { since: 0, timeout: 10 });
  expect(first.events.map(({ relative_path }) => relative_path)).toEqual(["one"]);
  expect((await poll(watcher_id, { since: first.cursor })).events).toEqual([]);
  expect((await poll(watcher_id, { cursor: 0 })).events.length).toBe(1);
});
