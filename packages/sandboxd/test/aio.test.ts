/**
 * A client made for an AIO sandbox works against the daemon.
 */

import { statSync, writeFileSync } from "node:fs";
import { Agent, request } from "node:http";
import { join } from "node:path";
import type { Duplex } from "node:stream";
import { beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { AioClient, SCHEMAS } from "./aio-client.ts";
import { daemonFile, type StartedDaemon, startDaemon, temporaryDirectory } from "./start-daemon.ts";

beforeAll(daemonFile, 60_000);

async function open(): Promise<{ client: AioClient; daemon: StartedDaemon; path: (name: string) => string }> {
  const daemon = await startDaemon();
  const client = new AioClient(daemon.socketPath, { "x-aio-api-key": daemon.config.token });
  return { client, daemon, path: (name) => join(daemon.workspace, name) };
}

describe("authentication", () => {
  it("shows the key in one of three places", async () => {
    const { daemon } = await open();
    const { token } = daemon.config;
    const nobody = new AioClient(daemon.socketPath, {});
    const answers = await Promise.all([
      nobody.ask("GET", "/v1/sandbox"),
      nobody.ask("GET", "/v1/sandbox", undefined, { "x-aio-api-key": "wrong" }),
      nobody.ask("GET", "/v1/sandbox", undefined, { "x-aio-api-key": token }),
      nobody.ask("GET", "/v1/sandbox", undefined, { authorization: `Bearer ${token}` }),
      nobody.ask("GET", `/v1/sandbox?api_key=${token}`),
      nobody.ask("POST", "/v1/shell/exec", { command: "true" }),
    ]);
    expect(answers.map(({ status }) => status)).toEqual([401, 401, 200, 200, 200, 401]);
  });

  it("hears what there is not", async () => {
    const { client } = await open();
    expect((await client.ask("GET", "/v1/browser/info")).status).toBe(404);
    expect((await client.ask("GET", "/v1/shell/exec")).status).toBe(405);
    expect((await client.ask("POST", "/v1/sandbox", {})).status).toBe(405);
  });

  it("is served however the base address and the path were put together", async () => {
    const directory = temporaryDirectory();
    await startDaemon({ config: { aioListen: { path: join(directory, "aio") } } });
    const client = new AioClient(join(directory, "aio"), {});
    for (const path of ["//v1/sandbox", "/v1/sandbox/", "/v1//sandbox?unknown=1"])
      expect([path, (await client.ask("GET", path)).status]).toEqual([path, 200]);
    const fern = { "x-fern-language": "Python", accept: "*/*", "accept-encoding": "gzip, deflate" };
    const body = { command: "echo in", no_change_timeout: 600, invented: { deep: [1] } };
    expect((await client.ask("POST", "//v1/shell/exec", body, fern)).status).toBe(200);
  });
});

describe("a client that has no key", () => {
  it("has a socket or a port of its own, where the AIO API is and nothing else", async () => {
    const directory = temporaryDirectory();
    const onSocket = await startDaemon({ config: { aioListen: { path: join(directory, "aio") } } });
    const bySocket = new AioClient(join(directory, "aio"), {});
    expect((await bySocket.ask("GET", "/v1/sandbox")).status).toBe(200);
    expect(statSync(join(directory, "aio")).mode & 0o777).toBe(0o600);
    const { token, sandboxId, generation } = onSocket.config;
    const credentials = {
      "x-sandlot-sandbox": sandboxId,
      "x-sandlot-generation": String(generation),
      "x-sandlot-token": token,
    };
    expect((await bySocket.ask("GET", "/sandlot/activity", undefined, credentials)).status).toBe(404);
    // The daemon's own socket still requires the key.
    expect((await new AioClient(onSocket.socketPath, {}).ask("GET", "/v1/sandbox")).status).toBe(401);
    const onPort = await startDaemon({ config: { aioListen: { host: "127.0.0.1", port: 0 } } });
    const byPort = new AioClient(onPort.ready.aioPort ?? 0, {});
    const done = await byPort.data(SCHEMAS.shellExec, "/v1/shell/exec", { command: "echo in", no_change_timeout: 600 });
    expect(done.output).toBe("in\n");
  });

  it("has a tunnel that another process has opened for it, until the sandbox has another generation", async () => {
    const { daemon } = await open();
    const { token, sandboxId, generation } = daemon.config;
    const headers = (shown: string) => ({
      ...{ "x-sandlot-sandbox": sandboxId, "x-sandlot-generation": String(generation), "x-sandlot-token": shown },
    });
    await expect(tunnel(daemon.socketPath, headers("wrong"))).rejects.toThrow("409");
    const socket = await tunnel(daemon.socketPath, headers(token));
    const agent = new OneConnection(socket);
    const client = new AioClient(agent, {});
    expect((await client.ask("GET", "/v1/sandbox")).status).toBe(200);
    const done = await client.data(SCHEMAS.bashExec, "/v1/bash/exec", { command: "echo through" });
    expect(done.stdout).toBe("through\n");
    const rebind = new AioClient(daemon.socketPath, headers(token));
    expect((await rebind.ask("POST", "/sandlot/rebind", { generation: generation + 1, token: "next" })).status).toBe(
      200,
    );
    expect((await client.ask("GET", "/v1/sandbox")).status).toBe(401);
    expect((await client.ask("POST", "/v1/bash/exec", { command: "true" })).status).toBe(401);
    socket.destroy();
  });
});

describe("/v1/sandbox", () => {
  it("has every field that clients insist on", async () => {
    const { client } = await open();
    const { status, body } = await client.ask("GET", "/v1/sandbox");
    expect(status).toBe(200);
    expect(SCHEMAS.sandbox.parse(JSON.parse(body.toString())).success).toBe(true);
  });
});

describe("/v1/shell", () => {
  it("runs a command and returns output, status and exit code", async () => {
    const { client } = await open();
    const done = await client.data(SCHEMAS.shellExec, "/v1/shell/exec", {
      command: "echo out; echo err >&2; (exit 3)",
      no_change_timeout: 600,
    });
    expect(done).toMatchObject({ status: "completed", output: "out\nerr\n", exit_code: 3 });
    expect(done.console).toMatchObject([{ output: "out\nerr\n" }]);
  });

  it("keeps directory and variables in a session, and nothing between sessions without a name", async () => {
    const { client } = await open();
    const { session_id: id } = await client.data(SCHEMAS.shellSession, "/v1/shell/sessions/create", { id: "mine" });
    expect(id).toBe("mine");
    await client.data(SCHEMAS.shellExec, "/v1/shell/exec", { id, command: "cd /tmp; COLOUR=blue" });
    const next = await client.data(SCHEMAS.shellExec, "/v1/shell/exec", { id, command: 'echo "$COLOUR"; pwd' });
    expect(next.output).toBe("blue\n/tmp\n");
    const other = await client.data(SCHEMAS.shellExec, "/v1/shell/exec", { command: 'echo "[$COLOUR]"' });
    expect(other.output).toBe("[]\n");
    const { sessions } = await client.data(SCHEMAS.shellSessions, "/v1/shell/sessions", undefined, "GET");
    expect(Object.keys(sessions)).toContain("mine");
    await client.data(z.null(), "/v1/shell/sessions/mine", undefined, "DELETE");
    await client.failure(z.null(), "/v1/shell/sessions/mine", undefined, "DELETE");
  });

  it("leaves a long command running, shows it, takes input, and ends it", async () => {
    const { client } = await open();
    const started = await client.data(SCHEMAS.shellExec, "/v1/shell/exec", {
      id: "long",
      command: "echo ready; read line; echo got $line; sleep 60",
      async_mode: true,
    });
    expect(started.status).toBe("running");
    await client.data(z.unknown(), "/v1/shell/write", { id: "long", input: "hello", press_enter: true });
    await expect
      .poll(async () => (await client.data(SCHEMAS.shellView, "/v1/shell/view", { id: "long" })).output)
      .toBe("ready\ngot hello\n");
    const waited = await client.data(SCHEMAS.shellStatus, "/v1/shell/wait", { id: "long", seconds: 1 });
    expect(waited.status).toBe("running");
    const killed = await client.data(SCHEMAS.shellStatus, "/v1/shell/kill", { id: "long" });
    expect(killed.status).toBe("terminated");
    await client.failure(z.null(), "/v1/shell/kill", { id: "long" });
  });

  it("gives up waiting when nothing changes, and ends what takes too long", async () => {
    const { client } = await open();
    const quiet = await client.data(SCHEMAS.shellExec, "/v1/shell/exec", {
      id: "quiet",
      command: "echo begun; sleep 60",
      no_change_timeout: 1,
    });
    expect(quiet).toMatchObject({ status: "no_change_timeout", output: "begun\n" });
    await client.data(SCHEMAS.shellStatus, "/v1/shell/kill", { id: "quiet" });
    const ended = await client.data(SCHEMAS.shellExec, "/v1/shell/exec", { command: "sleep 60", hard_timeout: 0.5 });
    expect(ended.status).toBe("hard_timeout");
  });

  it("cuts long output by default", async () => {
    const { client } = await open();
    const command = "i=0; while [ $i -lt 5000 ]; do i=$((i + 1)); echo 0123456789; done";
    const cut = await client.data(SCHEMAS.shellExec, "/v1/shell/exec", { command });
    expect((cut.output ?? "").length).toBeLessThan(31_000);
    const whole = await client.data(SCHEMAS.shellExec, "/v1/shell/exec", { command, truncate: false });
    expect((whole.output ?? "").length).toBe(55_000);
  });

  it("says what is wrong with a body", async () => {
    const { client } = await open();
    expect((await client.invalid("/v1/shell/exec", {})).map(({ loc, type }) => [loc, type])).toEqual([
      [["body", "command"], "missing"],
    ]);
    expect((await client.invalid("/v1/shell/exec", { command: 7, async_mode: "x" })).length).toBe(2);
    expect((await client.invalid("/v1/shell/exec", "no json"))[0]?.type).toBe("json_invalid");
    await client.failure(z.null(), "/v1/shell/view", { id: "nobody" });
  });
});

describe("/v1/bash", () => {
  it("runs a new process with its own environment and both streams apart", async () => {
    const { client } = await open();
    const done = await client.data(SCHEMAS.bashExec, "/v1/bash/exec", {
      command: 'echo "$SECRET"; echo err >&2; exit 4',
      env: { SECRET: "shh" },
      hard_timeout: 600.0,
    });
    expect(done).toMatchObject({ status: "completed", stdout: "shh\n", stderr: "err\n", exit_code: 4 });
    const again = await client.data(SCHEMAS.bashExec, "/v1/bash/exec", {
      session_id: done.session_id,
      command: 'echo "[$SECRET]"',
    });
    expect(again.stdout).toBe("[]\n");
  });

  it("returns while it runs, and ends what takes too long", async () => {
    const { client } = await open();
    const soft = await client.data(SCHEMAS.bashExec, "/v1/bash/exec", {
      session_id: "s",
      command: "echo first; read line; echo $line",
      timeout: 0.5,
    });
    expect(soft).toMatchObject({ status: "running", stdout: "first\n", exit_code: null });
    await client.data(z.unknown(), "/v1/bash/write", { session_id: "s", input: "second\n" });
    const next = await client.data(SCHEMAS.bashOutput, "/v1/bash/output", {
      session_id: "s",
      offset: soft.offset,
      wait: true,
      wait_timeout: 10,
    });
    expect(next.stdout).toBe("second\n");
    const late = await client.data(SCHEMAS.bashExec, "/v1/bash/exec", { command: "sleep 60", hard_timeout: 0.5 });
    expect(late.status).toBe("timed_out");
    await client.data(SCHEMAS.bashExec, "/v1/bash/exec", { session_id: "k", command: "sleep 60", async_mode: true });
    await client.data(z.unknown(), "/v1/bash/kill", { session_id: "k", signal: "SIGKILL" });
    const killed = await client.data(SCHEMAS.bashOutput, "/v1/bash/output", { session_id: "k" });
    expect(killed.command?.status).toBe("killed");
    await client.failure(z.null(), "/v1/bash/output", { session_id: "nobody" });
  });
});

describe("/v1/file", () => {
  it("writes and reads: text, base64, appended, and lines from 0", async () => {
    const { client, path } = await open();
    const file = path("deep/notes.txt");
    const written = await client.data(SCHEMAS.fileWrite, "/v1/file/write", { file, content: "a\nb\nc\n" });
    expect(written).toEqual({ file, bytes_written: 6 });
    await client.data(SCHEMAS.fileWrite, "/v1/file/write", {
      file,
      content: "d",
      append: true,
      trailing_newline: true,
    });
    const read = (more: object) => client.data(SCHEMAS.fileRead, "/v1/file/read", { file, ...more });
    expect((await read({})).content).toBe("a\nb\nc\nd\n");
    expect((await read({ start_line: 1, end_line: 3 })).content.trimEnd()).toBe("b\nc");
    const content = Buffer.from([0, 255, 1]).toString("base64");
    await client.data(SCHEMAS.fileWrite, "/v1/file/write", { file: path("binary"), content, encoding: "base64" });
    const downloaded = await client.ask("GET", `/v1/file/download?path=${encodeURIComponent(path("binary"))}`);
    expect([...downloaded.body]).toEqual([0, 255, 1]);
    const undecodable = await client.failure(SCHEMAS.fileError, "/v1/file/read", { file: path("binary") });
    expect(undecodable.error_type).toBe("decode_error");
  });

  it("reports failures with success false, their kind, and where", async () => {
    const { client, path } = await open();
    const missing = await client.failure(SCHEMAS.fileError, "/v1/file/read", { file: path("missing") });
    expect(missing).toMatchObject({ path: path("missing"), operation: "read", error_type: "not_found" });
    const directory = await client.failure(SCHEMAS.fileError, "/v1/file/read", { file: path(".") });
    expect(directory.error_type).toBe("invalid_target");
    expect((await client.failure(SCHEMAS.fileError, "/v1/file/read", { file: "" })).error_type).toBe("invalid_path");
    expect((await client.ask("GET", `/v1/file/download?path=${path("missing")}`)).status).toBe(404);
    expect((await client.ask("GET", "/v1/file/download")).status).toBe(422);
    await client.invalid("/v1/file/write", { file: path("x") });
    await client.invalid("/v1/file/write", { file: path("x"), content: "x", encoding: "klingon" });
  });

  it("finds, greps, globs and lists", async () => {
    const { client, daemon, path } = await open();
    const root = daemon.workspace;
    for (const [name, text] of Object.entries({
      "a.py": "import os\nTODO one\n",
      "src/b.py": "TODO two\n",
      "src/.c": "TODO\n",
    }))
      await client.data(SCHEMAS.fileWrite, "/v1/file/write", { file: path(name), content: text });
    const found = await client.data(SCHEMAS.fileFind, "/v1/file/find", { path: root, glob: "*.py" });
    expect(found.files.sort()).toEqual([path("a.py"), path("src/b.py")]);
    const grepped = await client.data(SCHEMAS.fileGrep, "/v1/file/grep", {
      ...{ path: root, pattern: "todo", case_insensitive: true, fixed_strings: true },
      ...{ max_results: 2, max_file_size: "1M", recursive: true, include: ["*.py"] },
    });
    expect(grepped.matches.map(({ file, line_number }) => [file, line_number])).toEqual([
      [path("a.py"), 2],
      [path("src/b.py"), 1],
    ]);
    const globbed = await client.data(SCHEMAS.fileGlob, "/v1/file/glob", { path: root, pattern: "**/*.py" });
    expect(globbed.total_count).toBe(2);
    const listed = await client.data(SCHEMAS.fileList, "/v1/file/list", {
      path: root,
      recursive: true,
      show_hidden: false,
    });
    expect(listed.files.map((file) => file.path).sort()).toEqual([path("a.py"), path("src"), path("src/b.py")]);
    expect([listed.directory_count, listed.file_count]).toEqual([1, 2]);
    expect((await client.failure(SCHEMAS.fileError, "/v1/file/list", { path: path("none") })).error_type).toBe(
      "not_found",
    );
  });

  it("replaces, searches, edits and takes back", async () => {
    const { client, path } = await open();
    const file = path("text");
    writeFileSync(file, "one two one\n");
    expect(
      (await client.data(SCHEMAS.fileReplace, "/v1/file/replace", { file, old_str: "one", new_str: "1" }))
        .replaced_count,
    ).toBe(2);
    expect(await client.data(SCHEMAS.fileSearch, "/v1/file/search", { file, regex: "t.o" })).toMatchObject({
      line_numbers: [1],
    });
    const editor = (body: object) =>
      client.data(SCHEMAS.editor, "/v1/file/str_replace_editor", { path: file, ...body });
    await editor({ command: "str_replace", old_str: "two", new_str: "2" });
    expect((await client.data(SCHEMAS.fileRead, "/v1/file/read", { file })).content).toBe("1 2 1\n");
    await editor({ command: "undo_edit" });
    expect((await editor({ command: "view" })).output).toContain("1 two 1");
    await client.failure(SCHEMAS.fileError, "/v1/file/str_replace_editor", {
      path: file,
      command: "str_replace",
      old_str: "1",
      new_str: "x",
    });
  });

  it("takes a file of 50 MiB as clients send it, and says by status that more is too much", {
    timeout: 60_000,
  }, async () => {
    const { client, path } = await open();
    const content = Buffer.alloc(50 * 1024 * 1024, 7).toString("base64");
    const file = path("large.bin");
    const written = await client.data(SCHEMAS.fileWrite, "/v1/file/write", { file, content, encoding: "base64" });
    expect(written.bytes_written).toBe(50 * 1024 * 1024);
    expect(statSync(file).size).toBe(50 * 1024 * 1024);
    const much = Buffer.alloc(141 * 1024 * 1024, 32);
    const refused = await client.ask("POST", "/v1/file/write", much);
    expect([refused.status, JSON.parse(refused.body.toString()).detail]).toEqual([
      413,
      expect.stringContaining("bytes"),
    ]);
    // The connection, and the daemon, go on.
    expect((await client.ask("GET", "/v1/sandbox")).status).toBe(200);
  });

  it("takes an upload", async () => {
    const { client, path } = await open();
    const boundary = "----sandlot";
    const body = Buffer.from(
      `--${boundary}\r\nContent-Disposition: form-data; name="path"\r\n\r\n${path("up.bin")}\r\n--${boundary}\r\nContent-Disposition: form-data; name="file"; filename="x.bin"\r\nContent-Type: application/octet-stream\r\n\r\nab\r\ncd\r\n--${boundary}--\r\n`,
    );
    const { status } = await client.ask("POST", "/v1/file/upload", body, {
      "content-type": `multipart/form-data; boundary=${boundary}`,
    });
    expect(status).toBe(200);
    expect((await client.data(SCHEMAS.fileRead, "/v1/file/read", { file: path("up.bin") })).content).toBe("ab\r\ncd");
  });
});

/** A connection to the AIO API, opened with permission. */
function tunnel(socketPath: string, headers: Readonly<Record<string, string>>): Promise<Duplex> {
  return new Promise((resolve, reject) => {
    const upgrade = { connection: "Upgrade", upgrade: "sandlot-tunnel" };
    const outgoing = request({ socketPath, path: "/sandlot/connect?port=7412", headers: { ...headers, ...upgrade } });
    outgoing.once("upgrade", (_response, socket) => resolve(socket));
    outgoing.once("response", ({ statusCode }) => reject(new Error(String(statusCode))));
    outgoing.once("error", reject);
    outgoing.end();
  });
}

/** Every request over one connection. */
class OneConnection extends Agent {
  readonly #socket: Duplex;

  constructor(socket: Duplex) {
    super({ keepAlive: true, maxSockets: 1 });
    this.#socket = socket;
  }

  override createConnection(): Duplex {
    return this.#socket;
  }
}
