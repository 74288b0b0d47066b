/** The AIO API's defaults for missing fields, and its rarely read responses. */

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { AioClient, SCHEMAS } from "./aio-client.ts";
import { daemonFile, startDaemon } from "./start-daemon.ts";

beforeAll(daemonFile, 60_000);

async function open() {
  const daemon = await startDaemon();
  const client = new AioClient(daemon.socketPath, { "x-aio-api-key": daemon.config.token });
  const root = daemon.workspace;
  const put = (name: string, text: string) => {
    mkdirSync(join(root, name, ".."), { recursive: true });
    writeFileSync(join(root, name), text);
  };
  return { client, root, put, path: (name: string) => join(root, name) };
}

describe("/v1/bash", () => {
  it("keeps sessions, with their state and number of commands, until they are closed", async () => {
    const { client, root } = await open();
    const made = await client.data(SCHEMAS.bashSession, "/v1/bash/sessions/create", { session_id: "s" });
    expect(made).toMatchObject({ session_id: "s", status: "ready", command_count: 0, working_dir: root });
    await client.data(SCHEMAS.bashExec, "/v1/bash/exec", { session_id: "s", command: "sleep 60", async_mode: true });
    const listed = await client.data(z.array(SCHEMAS.bashSession), "/v1/bash/sessions", undefined, "GET");
    expect(listed[0]).toMatchObject({ session_id: "s", current_command: "sleep 60", command_count: 1 });
    const closed = await client.data(SCHEMAS.bashSession, "/v1/bash/sessions/s/close", undefined);
    expect(closed.status).toBe("closed");
    await client.failure(z.null(), "/v1/bash/sessions/s/close", undefined);
  });

  it("cuts output at 50,000 characters, counts all of its bytes, and 0 cuts nothing", async () => {
    const { client } = await open();
    const command = "head -c 60000 /dev/zero | tr '\\0' a";
    const run = (more: object) => client.data(SCHEMAS.bashExec, "/v1/bash/exec", { command, ...more });
    const cut = await run({});
    expect((cut.stdout ?? "").length).toBeLessThan(51_000);
    expect(cut.offset).toBe(60_000);
    expect((await run({ max_output_length: 0 })).stdout?.length).toBe(60_000);
    const { stdout } = await client.data(SCHEMAS.bashOutput, "/v1/bash/output", { session_id: cut.session_id });
    expect(stdout.length).toBe(60_000);
  });

  it("ends a killed process with TERM, and reports what it cannot end", async () => {
    const { client } = await open();
    const start = (session_id: string, command: string) =>
      client.data(SCHEMAS.bashExec, "/v1/bash/exec", { session_id, command, async_mode: true });
    await start("t", "trap 'echo termed; exit 5' TERM; echo up; while :; do sleep 0.05; done");
    const output = (more: object) => client.data(SCHEMAS.bashOutput, "/v1/bash/output", { session_id: "t", ...more });
    await output({ wait: true });
    await client.data(z.null(), "/v1/bash/kill", { session_id: "t" });
    await expect.poll(async () => (await output({})).command?.exit_code).toBe(5);
    expect((await output({})).stdout).toBe("up\ntermed\n");
    await client.failure(z.null(), "/v1/bash/kill", { session_id: "t" });
    await client.failure(z.null(), "/v1/bash/write", { session_id: "t", input: "x" });
    await start("u", "sleep 60");
    await client.failure(z.null(), "/v1/bash/kill", { session_id: "u", signal: "SIGNONE" });
    await client.failure(z.null(), "/v1/bash/exec", { command: "true", exec_dir: "/nowhere" });
    await client.failure(z.null(), "/v1/bash/exec", { command: "true", env: { "NOT A NAME": "x" } });
    const unset = await client.data(SCHEMAS.bashExec, "/v1/bash/exec", {
      command: 'echo "[$A$B]"',
      env: { A: null, B: "b" },
    });
    expect(unset.stdout).toBe("[b]\n");
  });
});

describe("/v1/shell", () => {
  it("counts sessions, changes them, and ends them all", async () => {
    const { client } = await open();
    await client.data(SCHEMAS.shellSession, "/v1/shell/sessions/create", { id: "a", exec_dir: "/tmp" });
    const again = await client.data(SCHEMAS.shellSession, "/v1/shell/sessions/create", { id: "a", exec_dir: "/" });
    expect(again).toEqual({ session_id: "a", working_dir: "/tmp" });
    await client.data(SCHEMAS.shellExec, "/v1/shell/exec", { id: "a", command: "sleep 60", async_mode: true });
    const stats = () => client.data(SCHEMAS.shellStats, "/v1/shell/sessions/stats", undefined, "GET");
    expect(await stats()).toMatchObject({ total_sessions: 1, active_sessions: 1, idle_sessions: 0 });
    await client.data(z.unknown(), "/v1/shell/sessions/update", { id: "a", no_change_timeout: 1 });
    await client.failure(z.null(), "/v1/shell/sessions/update", { id: "nobody" });
    await client.failure(z.null(), "/v1/shell/exec", { id: "a", command: "true" });
    await client.data(z.unknown(), "/v1/shell/sessions", undefined, "DELETE");
    expect(await stats()).toMatchObject({ total_sessions: 0, usage_ratio: 0 });
    await client.data(SCHEMAS.shellSession, "/v1/shell/sessions/create", { id: "b", no_change_timeout: 1 });
    const quiet = await client.data(SCHEMAS.shellExec, "/v1/shell/exec", { id: "b", command: "sleep 60" });
    expect(quiet.status).toBe("no_change_timeout");
    const soft = { id: "c", command: "echo x; sleep 60", timeout: 0.5 };
    expect(await client.data(SCHEMAS.shellExec, "/v1/shell/exec", soft)).toMatchObject({
      status: "running",
      exit_code: null,
    });
  });
});

describe("/v1/file", () => {
  it("finds with case, in all directories, among all names, 500 at most", async () => {
    const { client, root, put } = await open();
    put("a.py", "Hit\nhit\nlast\n");
    put("deep/.hidden", "hit\n");
    put("deep/b.md", `hit${"x".repeat(400)}\n`);
    put("many.txt", "many\n".repeat(501));
    const grep = (more: object) =>
      client.data(SCHEMAS.fileGrep, "/v1/file/grep", { path: root, pattern: "hit", ...more });
    const found = (answer: { matches: { file: string; line_number: number }[] }) =>
      answer.matches.map(({ file, line_number }) => `${file.slice(root.length + 1)}:${line_number}`);
    const all = await grep({});
    expect(found(all)).toEqual(["a.py:2", "deep/.hidden:1", "deep/b.md:1"]);
    expect(all).toMatchObject({ match_count: 3, files_matched: 3, truncated: false });
    // A line is reported whole.
    expect(all.matches[2]?.line_content.length).toBe(403);
    expect(found(await grep({ recursive: false }))).toEqual(["a.py:2"]);
    expect(found(await grep({ type: "py", case_insensitive: true }))).toEqual(["a.py:1", "a.py:2"]);
    expect(found(await grep({ exclude: ["*.md"], offset: 1, max_results: 1 }))).toEqual(["deep/.hidden:1"]);
    expect(found(await grep({ max_file_size: "100" }))).toEqual(["a.py:2", "deep/.hidden:1"]);
    const [first] = (await grep({ context_before: 1, context_after: 1 })).matches;
    expect([first?.context_before, first?.context_after]).toEqual([["Hit"], ["last"]]);
    const many = await grep({ pattern: "many" });
    expect([many.match_count, many.truncated]).toEqual([500, true]);
    for (const bad of [
      { pattern: "(" },
      { pattern: "(", multiline: true },
      { type: "klingon" },
      { max_file_size: "much" },
    ])
      await client.failure(SCHEMAS.fileError, "/v1/file/grep", { path: root, pattern: "x", ...bad });
  });

  it("globs files that are not hidden, with what is known of them, by path", async () => {
    const { client, root, put } = await open();
    put("b.txt", "22");
    put("a/c.txt", "1");
    put(".d.txt", "");
    const glob = async (more: object) => {
      const answer = await client.data(SCHEMAS.fileGlob, "/v1/file/glob", { path: root, pattern: "**/*", ...more });
      return { ...answer, names: answer.files.map(({ path }) => path.slice(root.length + 1)) };
    };
    const plain = await glob({});
    expect([plain.names, plain.total_count, plain.truncated]).toEqual([["a/c.txt", "b.txt"], 2, false]);
    expect(plain.files[1]).toMatchObject({ name: "b.txt", is_directory: false, size: 2 });
    expect((await glob({ include_hidden: true })).names).toEqual([".d.txt", "a/c.txt", "b.txt"]);
    expect((await glob({ files_only: false })).names).toEqual(["a", "a/c.txt", "b.txt"]);
    expect((await glob({ include_metadata: false })).files[0]).toMatchObject({ size: null, modified_time: null });
    expect((await glob({ sort_by: "size", sort_desc: true, max_results: 1 })).names).toEqual(["b.txt"]);
  });

  it("lists one level with hidden names and sizes, by name", async () => {
    const { client, root, put } = await open();
    put("b.txt", "22");
    put("a/c.txt", "1");
    put(".d", "");
    const list = (more: object) => client.data(SCHEMAS.fileList, "/v1/file/list", { path: root, ...more });
    const plain = await list({});
    expect(plain.files.map(({ name }) => name)).toEqual([".d", "a", "b.txt"]);
    expect(plain.files[2]).toMatchObject({ size: 2, extension: ".txt", is_directory: false });
    expect(plain.files[2]?.permissions).toBeNull();
    expect((await list({ include_permissions: true, include_size: false })).files[2]).toMatchObject({
      permissions: "644",
      size: null,
    });
    expect((await list({ recursive: true, max_depth: 1 })).total_count).toBe(3);
    expect((await list({ recursive: true, file_types: [".txt"] })).file_count).toBe(2);
  });

  it("reads, writes and edits as the fields that are left out say", async () => {
    const { client, path } = await open();
    const file = path("f");
    const write = (more: object) => client.data(SCHEMAS.fileWrite, "/v1/file/write", { file, ...more });
    await write({ content: "one" });
    await write({ content: "two" });
    await write({ content: "three", append: true, leading_newline: true });
    const read = (more: object) => client.data(SCHEMAS.fileRead, "/v1/file/read", { file, ...more });
    expect((await read({})).content).toBe("two\nthree");
    expect((await read({ start_line: 1 })).content.trimEnd()).toBe("three");
    expect((await read({ end_line: 1 })).content.trimEnd()).toBe("two");
    await write({ content: "\u00e9", encoding: "raw" });
    expect((await client.failure(SCHEMAS.fileError, "/v1/file/read", { file })).error_type).toBe("decode_error");
    await write({ content: "text again" });
    const edit = (more: object) => client.data(SCHEMAS.editor, "/v1/file/str_replace_editor", { path: file, ...more });
    expect(await edit({ command: "create", file_text: "a\nb\na\n" })).toMatchObject({ prev_exist: true });
    expect((await edit({ command: "view", view_range: [2, 2] })).output).toBe("     2\tb");
    await edit({ command: "str_replace", old_str: "a", new_str: "c", replace_mode: "LAST" });
    await edit({ command: "insert", insert_line: 1, new_str: "i" });
    expect((await read({})).content).toBe("a\ni\nb\nc\n");
    for (const bad of [
      { command: "str_replace", old_str: "zz", new_str: "" },
      { command: "insert", insert_line: 99 },
    ]) {
      const failed = await client.failure(SCHEMAS.fileError, "/v1/file/str_replace_editor", { path: file, ...bad });
      expect(failed).toMatchObject({ path: file, operation: "str_replace_editor" });
    }
  });

  it("takes a relative path as below the workspace, wherever a path is asked for, and names the absolute one", async () => {
    const { client, root, path } = await open();
    const any = z.looseObject({});
    const ask = (operation: string, fields: object) => client.data(any, `/v1/file/${operation}`, fields);
    expect(await ask("write", { file: "d/f.txt", content: "one two" })).toMatchObject({ file: path("d/f.txt") });
    expect(await ask("read", { file: "./d/f.txt" })).toMatchObject({ content: "one two" });
    expect(await ask("replace", { file: "d/f.txt", old_str: "two", new_str: "2" })).toMatchObject({
      replaced_count: 1,
    });
    expect(await ask("search", { file: "d/f.txt", regex: "one" })).toMatchObject({ matches: ["one 2"] });
    expect(await ask("find", { path: "d", glob: "*.txt" })).toMatchObject({ files: [path("d/f.txt")] });
    expect(JSON.stringify(await ask("grep", { path: "d", pattern: "one" }))).toContain(path("d/f.txt"));
    expect(JSON.stringify(await ask("glob", { path: "d", pattern: "*" }))).toContain(path("d/f.txt"));
    expect(JSON.stringify(await ask("list", { path: "." }))).toContain(path("d"));
    expect(await ask("str_replace_editor", { command: "view", path: "d/f.txt" })).toMatchObject({ prev_exist: true });
    expect((await client.ask("GET", "/v1/file/download?path=d/f.txt")).status).toBe(200);
    const { status } = await client.ask("POST", "/v1/file/watch", { path: "d" });
    expect([status, root.startsWith("/")]).toEqual([200, true]);
    await client.failure(any, "/v1/file/write", { file: "", content: "x" });
  });

  it("downloads with statuses of its own", async () => {
    const { client, root, put, path } = await open();
    put("f", "content");
    const status = async (query: string) => (await client.ask("GET", `/v1/file/download?${query}`)).status;
    expect(await status(`path=${path("f")}`)).toBe(200);
    expect(await status(`path=${path("f")}&change_policy=abort`)).toBe(200);
    expect(await status(`path=${path("f")}&change_policy=perhaps`)).toBe(422);
    expect(await status(`path=${path("none")}&change_policy=abort`)).toBe(404);
    expect(await status(`path=${root}`)).toBe(400);
    expect(await status("path=relative")).toBe(404);
    expect(await status("path=")).toBe(400);
  });
});
