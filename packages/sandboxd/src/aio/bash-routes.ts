/** `/v1/bash/*`: a new process for each command, as in the AIO API. A session keeps only the start directory. */

import { EXEC_SIGNALS, isoTime } from "@sandlot/contract";
import { timer, wallMs } from "../clock.ts";
import { checkEnvironment } from "../exec/command.ts";
import type { Exec } from "../exec/exec.ts";
import type { ExecTable } from "../exec/exec-table.ts";
import { checkPath } from "../files/paths.ts";
import { quote } from "../sessions/shell-script.ts";
import { OperationProblem, sendData } from "./answers.ts";
import { Fields } from "./fields.ts";
import { cut } from "./output.ts";
import type { AioRoutes } from "./routes.ts";

interface BashSession {
  readonly id: string;
  /** The start directory of commands: the last one given. */
  directory: string;
  /** A script that every command sources first. */
  readonly snapshot: string | null;
  readonly createdAt: number;
  lastUsedAt: number;
  /** The remembered commands, by id, in order: their original text. */
  readonly commands: Map<string, string>;
  commandCount: number;
}

const OUTPUT_MAX_CHARS = 50_000;
const EVERYTHING = Number.MAX_SAFE_INTEGER;
const SESSIONS_MAX = 256;
const WAIT_DEFAULT_SECONDS = 30;

export function bashRoutes(execs: ExecTable): AioRoutes {
  const sessions = new Map<string, BashSession>();
  let serial = 0;

  const open = (id: string | null, directory: string | null, snapshot: string | null): BashSession => {
    const known = id === null ? undefined : sessions.get(id);
    if (known !== undefined) return known;
    forgetOldest();
    const session: BashSession = {
      id: id ?? `bash-${++serial}`,
      directory: directory ?? execs.around.defaultCwd,
      snapshot,
      createdAt: wallMs(),
      lastUsedAt: wallMs(),
      commands: new Map(),
      commandCount: 0,
    };
    sessions.set(session.id, session);
    return session;
  };

  const forgetOldest = (): void => {
    for (const [id, session] of sessions) {
      if (sessions.size < SESSIONS_MAX) return;
      if (running(session) === undefined) sessions.delete(id);
    }
  };

  const find = (id: string): BashSession => {
    const session = sessions.get(id);
    if (session === undefined) throw new OperationProblem(`Session not found: ${id}`);
    return session;
  };

  const running = ({ commands }: BashSession): Exec | undefined =>
    [...commands.keys()].map((id) => execs.peek(id)).find((exec) => exec !== undefined && !exec.hasEnded);

  /** The named command of this session; otherwise its last one. */
  const commandOf = ({ commands }: BashSession, commandId: string | null): Exec => {
    const id = commandId ?? [...commands.keys()].at(-1);
    const exec = id !== undefined && commands.has(id) ? execs.peek(id) : undefined;
    if (exec === undefined) throw new OperationProblem(`Command not found: ${commandId ?? "none was run"}`);
    return exec;
  };

  return {
    "POST /v1/bash/exec": async (request, response) => {
      const fields = await Fields.of(request);
      const [sessionId, command, directory] = [
        fields.optionalText("session_id"),
        fields.text("command"),
        fields.optionalText("exec_dir"),
      ];
      const given = fields.textMap("env");
      const asynchronous = fields.flagOr("async_mode", false);
      const [soft, hard] = [fields.number("timeout"), fields.number("hard_timeout")];
      const max = fields.integerOr("max_output_length", OUTPUT_MAX_CHARS);
      fields.check();
      const env = checkEnvironment(given);
      const wanted = directory === null ? null : checkPath(directory);
      const session = open(sessionId, wanted, null);
      session.lastUsedAt = wallMs();
      const execId = `aio-${session.id}-${++serial}`;
      const cwd = wanted ?? session.directory;
      const timeoutMs = hard === null ? 0 : hard * 1_000;
      const stdin = asynchronous || soft !== null ? { keepStdinOpen: true } : {};
      const program = session.snapshot === null ? command : `. ${quote(session.snapshot)}\n${command}`;
      const call = { execId, repeatable: true, command: program, cwd, env, timeoutMs, hasStdin: false, ...stdin };
      const exec = await execs.start(call, null, { remember: true });
      for (const id of session.commands.keys()) if (execs.peek(id) === undefined) session.commands.delete(id);
      session.commands.set(execId, command);
      session.commandCount++;
      session.directory = cwd;
      if (!asynchronous) await ended(exec, soft);
      sendData(response, {
        ...{ session_id: session.id, command_id: execId, command },
        ...stateOf(exec),
        stdout: cut(exec.stdout.text().text, max),
        stderr: cut(exec.stderr.text().text, max),
        ...{ offset: exec.stdout.endOffset, stderr_offset: exec.stderr.endOffset },
      });
    },

    "POST /v1/bash/output": async (request, response) => {
      const fields = await Fields.of(request);
      const [sessionId, commandId] = [fields.text("session_id"), fields.optionalText("command_id")];
      const [offset, errorOffset] = [fields.integerOr("offset", 0), fields.integerOr("stderr_offset", 0)];
      const wait = fields.flagOr("wait", false);
      const waitSeconds = fields.numberOr("wait_timeout", WAIT_DEFAULT_SECONDS);
      fields.check();
      const session = find(sessionId);
      if (commandId === null && session.commands.size === 0) return sendData(response, nothingYet(sessionId));
      const exec = commandOf(session, commandId);
      const isNews = () => exec.stdout.endOffset > offset || exec.stderr.endOffset > errorOffset || exec.hasEnded;
      if (wait && !isNews()) await news(exec, waitSeconds);
      const [stdout, stderr] = [exec.stdout.read(offset, EVERYTHING), exec.stderr.read(errorOffset, EVERYTHING)];
      sendData(response, {
        session_id: sessionId,
        stdout: stdout.bytes.toString("utf8"),
        stderr: stderr.bytes.toString("utf8"),
        offset: stdout.offset + stdout.bytes.length,
        stderr_offset: stderr.offset + stderr.bytes.length,
        command: { command_id: exec.id, command: session.commands.get(exec.id) ?? "", ...stateOf(exec) },
      });
    },

    "POST /v1/bash/write": async (request, response) => {
      const fields = await Fields.of(request);
      const [sessionId, commandId, input] = [
        fields.text("session_id"),
        fields.optionalText("command_id"),
        fields.text("input"),
      ];
      fields.check();
      const exec = commandOf(find(sessionId), commandId);
      if (exec.stdin === null || exec.hasEnded) throw new OperationProblem("The command takes no input");
      await exec.stdin.write(Buffer.from(input), false);
      sendData(response, null);
    },

    "POST /v1/bash/kill": async (request, response) => {
      const fields = await Fields.of(request);
      const [sessionId, signal] = [fields.text("session_id"), fields.textOr("signal", "SIGTERM")];
      fields.check();
      const exec = running(find(sessionId));
      if (exec === undefined) throw new OperationProblem("The session runs nothing");
      const known = EXEC_SIGNALS.find((name) => name === signal);
      if (known === undefined) throw new OperationProblem(`Unknown signal: ${signal}`);
      if (known === "SIGKILL") await exec.end("killed");
      else exec.signal(known);
      sendData(response, null);
    },

    "GET /v1/bash/sessions": (_request, response) => {
      sendData(
        response,
        [...sessions.values()].map((session) => infoOf(session, running(session))),
      );
    },

    "POST /v1/bash/sessions/create": async (request, response) => {
      const fields = await Fields.of(request, "no fields");
      const [id, directory] = [fields.optionalText("session_id"), fields.optionalText("exec_dir")];
      const snapshot = fields.optionalText("snapshot_path");
      fields.check();
      const [place, script] = [directory, snapshot].map((path) => (path === null ? null : checkPath(path)));
      const session = open(id, place ?? null, script ?? null);
      sendData(response, infoOf(session, running(session)));
    },

    "POST /v1/bash/sessions/{id}/close": async (request, response, { id = "" }) => {
      request.resume();
      const session = find(id);
      await running(session)?.end("killed");
      sessions.delete(id);
      sendData(response, { ...infoOf(session, undefined), status: "closed" });
    },
  };
}

function stateOf(exec: Exec): { status: string; exit_code: number | null } {
  const { outcome } = exec;
  if (outcome === null) return { status: "running", exit_code: null };
  const status = outcome.status === "timed_out" || outcome.status === "killed" ? outcome.status : "completed";
  return { status, exit_code: outcome.exitCode };
}

function infoOf(session: BashSession, current: Exec | undefined) {
  return {
    session_id: session.id,
    status: "ready",
    working_dir: session.directory,
    created_at: isoTime(session.createdAt),
    last_used_at: isoTime(session.lastUsedAt),
    current_command: current === undefined ? null : (session.commands.get(current.id) ?? null),
    command_count: session.commandCount,
  };
}

/** The output of a session that has run nothing. */
function nothingYet(session_id: string) {
  return { session_id, stdout: "", stderr: "", offset: 0, stderr_offset: 0, command: null };
}

async function ended(exec: Exec, seconds: number | null): Promise<void> {
  if (seconds === null) return exec.ended;
  await Promise.race([exec.ended, after(seconds)]);
}

function news(exec: Exec, seconds: number): Promise<void> {
  return new Promise((resolve) => {
    const stops = [exec.stdout, exec.stderr].map((ring) => ring.listen(() => finish()));
    const finish = () => {
      for (const stop of stops) stop();
      resolve();
    };
    void exec.ended.then(finish);
    void after(seconds).then(finish);
  });
}

function after(seconds: number): Promise<void> {
  return new Promise((resolve) => {
    timer(seconds * 1_000, resolve);
  });
}
