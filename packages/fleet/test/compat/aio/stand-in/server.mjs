/**
 * A stand-in for a sandbox whose image has its own server: the part of the AIO HTTP API that a client of commands and
 * files uses, written from the description of that API. It shares no code with the rest, so that both can be wrong only
 * independently.
 *
 *   node server.mjs [--port N] [--host A]        prints the port, then serves until it is killed
 *
 * Clients must send SANDBOX_API_KEY, where it is set. STAND_IN_WITHOUT=/v1/bash responds 404 for everything below such
 * a path; STAND_IN_STARTS_AFTER_MS responds 502 until then, as a proxy does while its server starts.
 */
import { spawn } from "node:child_process";
import { createReadStream } from "node:fs";
import { appendFile, readdir, readFile, stat, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { homedir, release, userInfo } from "node:os";
import { join } from "node:path";

const argument = (name, otherwise) => {
  const at = process.argv.indexOf(name);
  return at < 0 ? otherwise : process.argv[at + 1];
};
const KEY = process.env.SANDBOX_API_KEY ?? "";
const WITHOUT = process.env.STAND_IN_WITHOUT ?? "";
const BEGIN = Date.now() + Number(process.env.STAND_IN_STARTS_AFTER_MS ?? 0);
const REQUIRED = {
  "/v1/bash/exec": ["command"],
  "/v1/bash/output": ["session_id"],
  "/v1/bash/write": ["session_id", "input"],
  "/v1/bash/kill": ["session_id"],
  "/v1/file/read": ["file"],
  "/v1/file/write": ["file", "content"],
  "/v1/file/grep": ["path", "pattern"],
};

class Failure extends Error {
  constructor(message, data = null) {
    super(message);
    this.data = data;
  }
}

/* Sessions and commands. */

const sessions = new Map();
let serial = 0;

function sessionOf(id) {
  const session = sessions.get(id);
  if (session === undefined || session.status === "closed") throw new Failure(`Session ${id} not found`);
  return session;
}

function createSession({ session_id: id, exec_dir: directory }) {
  const now = new Date().toISOString();
  const session_id = id ?? `session-${++serial}`;
  if (sessions.has(session_id) && sessions.get(session_id).status !== "closed") return sessions.get(session_id);
  const session = {
    ...{ session_id, status: "ready", working_dir: directory ?? homedir(), created_at: now, last_used_at: now },
    ...{ current_command: null, command_count: 0, commands: [] },
  };
  sessions.set(session_id, session);
  return session;
}

const shown = ({ commands, ...session }) => session;

function start(session, { command, exec_dir: directory, env, hard_timeout: hard }) {
  const child = spawn("bash", ["-c", command], {
    cwd: directory ?? session.working_dir,
    env: { ...process.env, SANDBOX_API_KEY: undefined, ...env },
    detached: true,
    stdio: ["pipe", "pipe", "pipe"],
  });
  const run = {
    ...{ command_id: `command-${++serial}`, command, status: "running", exit_code: null },
    ...{ stdout: Buffer.alloc(0), stderr: Buffer.alloc(0), child, waiting: new Set() },
  };
  const news = () => {
    for (const tell of run.waiting) tell();
  };
  for (const stream of ["stdout", "stderr"])
    child[stream].on("data", (chunk) => {
      run[stream] = Buffer.concat([run[stream], chunk]);
      news();
    });
  child.stdin.on("error", () => {});
  const end = (status, code) => {
    if (run.status === "running") [run.status, run.exit_code] = [status, code];
    session.current_command = null;
    news();
  };
  child.on("error", () => end("completed", 127));
  // Background processes keep the pipes open; the command itself has ended.
  child.on("exit", (code, signal) =>
    setTimeout(
      () => end(run.kill === undefined ? "completed" : "killed", signal === null ? code : -numberOf(signal)),
      5,
    ),
  );
  if (hard != null)
    setTimeout(() => {
      if (run.status !== "running") return;
      end("timed_out", null);
      signalGroup(child, "SIGKILL");
    }, hard * 1000).unref();
  session.current_command = command;
  session.command_count++;
  session.last_used_at = new Date().toISOString();
  session.commands.push(run);
  return run;
}

function numberOf(signal) {
  return { SIGHUP: 1, SIGINT: 2, SIGQUIT: 3, SIGKILL: 9, SIGUSR1: 10, SIGUSR2: 12, SIGTERM: 15 }[signal] ?? 1;
}

function signalGroup(child, signal) {
  try {
    process.kill(-child.pid, signal);
  } catch {
    // It has ended.
  }
}

function until(run, seconds, isSo) {
  return new Promise((resolve) => {
    const look = () => {
      if (!isSo()) return;
      run.waiting.delete(look);
      clearTimeout(timer);
      resolve();
    };
    const timer = setTimeout(() => {
      run.waiting.delete(look);
      resolve();
    }, seconds * 1000);
    run.waiting.add(look);
    look();
  });
}

const FOREVER_S = 100_000;

function truncated(bytes, max) {
  const text = bytes.toString("utf8");
  return max > 0 && text.length > max ? `${text.slice(0, max / 2)}[truncated]${text.slice(-max / 2)}` : text;
}

const bash = {
  "POST /v1/bash/exec": async (body) => {
    const session = createSession({ session_id: body.session_id });
    const run = start(session, body);
    session.working_dir = body.exec_dir ?? session.working_dir;
    if (body.async_mode !== true) await until(run, body.timeout ?? FOREVER_S, () => run.status !== "running");
    const max = body.max_output_length ?? 50_000;
    return {
      ...{ session_id: session.session_id, command_id: run.command_id, command: body.command },
      ...{ status: run.status, exit_code: run.exit_code },
      ...{ stdout: truncated(run.stdout, max), stderr: truncated(run.stderr, max) },
      ...{ offset: run.stdout.length, stderr_offset: run.stderr.length },
    };
  },
  "POST /v1/bash/output": async ({
    session_id,
    command_id,
    offset = 0,
    stderr_offset = 0,
    wait,
    wait_timeout = 30,
  }) => {
    const { commands } = sessionOf(session_id);
    const run = command_id == null ? commands.at(-1) : commands.find((one) => one.command_id === command_id);
    if (run === undefined && command_id == null)
      return { session_id, stdout: "", stderr: "", offset: 0, stderr_offset: 0, command: null };
    if (run === undefined) throw new Failure("Command not found");
    const isNews = () => run.stdout.length > offset || run.stderr.length > stderr_offset || run.status !== "running";
    if (wait === true) await until(run, wait_timeout, isNews);
    return {
      session_id,
      stdout: run.stdout.subarray(offset).toString("utf8"),
      stderr: run.stderr.subarray(stderr_offset).toString("utf8"),
      offset: Math.max(offset, run.stdout.length),
      stderr_offset: Math.max(stderr_offset, run.stderr.length),
      command: { command_id: run.command_id, command: run.command, status: run.status, exit_code: run.exit_code },
    };
  },
  "POST /v1/bash/write": async ({ session_id, input }) => {
    const run = sessionOf(session_id).commands.at(-1);
    if (run?.status !== "running") throw new Failure("No running command");
    run.child.stdin.write(input);
    return null;
  },
  "POST /v1/bash/kill": async ({ session_id, signal = "SIGTERM" }) => {
    const run = sessionOf(session_id).commands.at(-1);
    if (run?.status !== "running") throw new Failure("No running command");
    run.kill = signal;
    signalGroup(run.child, signal);
    return null;
  },
  "GET /v1/bash/sessions": async () => [...sessions.values()].map(shown),
  "POST /v1/bash/sessions/create": async (body) => shown(createSession(body)),
};

async function closeSession(id) {
  const session = sessionOf(id);
  for (const { status, child } of session.commands) if (status === "running") signalGroup(child, "SIGKILL");
  session.status = "closed";
  session.commands = [];
  return shown(session);
}

/* Files. */

const KINDS = {
  ENOENT: ["not_found", "FileNotFoundError"],
  EACCES: ["permission_denied", "PermissionError"],
  EISDIR: ["invalid_target", "IsADirectoryError"],
  ENOTDIR: ["invalid_target", "NotADirectoryError"],
  EROFS: ["read_only_filesystem", "OSError"],
  ENOSPC: ["no_space_left", "OSError"],
};

async function aboutFile(operation, path, work) {
  try {
    return await work();
  } catch (error) {
    if (error instanceof Failure) throw error;
    const [error_type, exception_type] = KINDS[error.code] ?? ["io_error", "OSError"];
    const errno = Math.abs(error.errno ?? 0);
    const about = { path, operation, error_type, exception_type, retryable: false, errno, errno_name: error.code };
    throw new Failure(error.message, { ...about, message: error.message });
  }
}

async function* filesBelow(path) {
  if ((await stat(path)).isFile()) {
    yield path;
    return;
  }
  for (const entry of await readdir(path, { withFileTypes: true })) {
    if (entry.isDirectory()) yield* filesBelow(join(path, entry.name));
    else if (entry.isFile()) yield join(path, entry.name);
  }
}

function bytesIn(text) {
  const [, number, unit] = /^(\d+)([KMG]?)$/.exec(text) ?? [];
  return Number(number) * { "": 1, K: 1024, M: 1024 ** 2, G: 1024 ** 3 }[unit ?? ""];
}

async function grep(body) {
  const { path, pattern, case_insensitive, fixed_strings, max_results = 500, max_file_size = "1M" } = body;
  let expression;
  try {
    const source = fixed_strings ? pattern.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&") : pattern;
    expression = new RegExp(source, case_insensitive ? "i" : "");
  } catch (error) {
    throw new Failure(`Invalid regex: ${error.message}`);
  }
  const matches = [];
  let truncated = false;
  for await (const file of filesBelow(path)) {
    const bytes = await readFile(file);
    if (bytes.length > bytesIn(max_file_size) || bytes.subarray(0, 8192).includes(0)) continue;
    for (const [index, line_content] of bytes.toString("utf8").split("\n").entries()) {
      if (!expression.test(line_content)) continue;
      if (matches.length < max_results) matches.push({ file, line_number: index + 1, line_content });
      else truncated = true;
    }
  }
  return { path, pattern, matches, match_count: matches.length, truncated };
}

const files = {
  "POST /v1/file/read": ({ file }) =>
    aboutFile("read", file, async () => ({ file, content: await readFile(file, "utf8") })),
  "POST /v1/file/write": ({ file, content, encoding = "utf-8", append = false }) =>
    aboutFile("write", file, async () => {
      const bytes = Buffer.from(content, encoding === "base64" ? "base64" : "utf8");
      await (append ? appendFile : writeFile)(file, bytes);
      return { file, bytes_written: bytes.length };
    }),
  "POST /v1/file/grep": (body) => aboutFile("grep", body.path, () => grep(body)),
};

async function download(response, path) {
  try {
    const found = await stat(path);
    if (!found.isFile()) return send(response, 400, { detail: "Not a file" });
    response.writeHead(200, { "content-type": "application/octet-stream" });
    createReadStream(path)
      .on("error", () => response.destroy())
      .pipe(response);
  } catch (error) {
    send(response, error.code === "EACCES" ? 403 : 404, { detail: error.message });
  }
}

/* The rest. */

function about() {
  const system = {
    ...{ os: "linux", os_version: release(), arch: process.arch, user: String(userInfo({ encoding: "utf8" }).uid) },
    ...{ home_dir: homedir(), timezone: "UTC", occupied_ports: [] },
  };
  return {
    ...{ success: true, message: "Operation successful", data: null, hint: null },
    ...{ home_dir: homedir(), workspace: homedir(), version: "1.11.0" },
    detail: { system, runtime: { python: [], nodejs: [] }, utils: [] },
  };
}

const routes = {
  ...bash,
  ...files,
  "GET /v1/shell/sessions/stats": async () => ({
    ...{ total_sessions: 0, active_sessions: 0, idle_sessions: 0, max_sessions: 64 },
    ...{ session_timeout: 3600, usage_ratio: 0 },
  }),
};

function send(response, status, value) {
  response.writeHead(status, { "content-type": "application/json" });
  response.end(JSON.stringify(value));
}

async function bodyOf(request) {
  const parts = [];
  for await (const part of request) parts.push(part);
  return Buffer.concat(parts).toString("utf8");
}

function keyOf({ headers }, url) {
  return (
    headers["x-aio-api-key"] ??
    /^Bearer (.*)$/.exec(headers.authorization ?? "")?.[1] ??
    url.searchParams.get("api_key")
  );
}

async function answer(request, response) {
  const url = new URL(request.url, "http://stand-in");
  if (Date.now() < BEGIN) return send(response, 502, "bad gateway");
  if (KEY !== "" && keyOf(request, url) !== KEY) return send(response, 401, { detail: "Unauthorized" });
  if (WITHOUT !== "" && url.pathname.startsWith(WITHOUT)) return send(response, 404, { detail: "Not Found" });
  if (url.pathname === "/v1/sandbox") return send(response, 200, about());
  if (url.pathname === "/v1/file/download") return download(response, url.searchParams.get("path") ?? "");
  const closing = /^\/v1\/bash\/sessions\/([^/]+)\/close$/.exec(url.pathname);
  const handler = closing
    ? () => closeSession(decodeURIComponent(closing[1]))
    : routes[`${request.method} ${url.pathname}`];
  if (handler === undefined) return send(response, 404, { detail: "Not Found" });
  const text = await bodyOf(request);
  const body = text === "" ? {} : JSON.parse(text);
  const wrong = (REQUIRED[url.pathname] ?? []).filter((name) => typeof body[name] !== "string");
  if (wrong.length > 0) {
    const problem = (name) =>
      body[name] === undefined ? ["missing", "Field required"] : ["string_type", "Input should be a valid string"];
    const detail = wrong.map((name) => ({ type: problem(name)[0], loc: ["body", name], msg: problem(name)[1] }));
    return send(response, 422, { detail });
  }
  try {
    const data = await handler(body);
    send(response, 200, { success: true, message: "Operation successful", data, hint: null });
  } catch (error) {
    if (error instanceof Failure)
      send(response, 200, { success: false, message: error.message, data: error.data, hint: null });
    else send(response, 500, { success: false, message: String(error), data: null, hint: null });
  }
}

const server = createServer((request, response) => {
  answer(request, response).catch((error) => send(response, 500, { detail: String(error) }));
});
server.keepAliveTimeout = 5_000;
server.listen(Number(argument("--port", "0")), argument("--host", "127.0.0.1"), () =>
  process.stdout.write(`${server.address().port}\n`),
);
