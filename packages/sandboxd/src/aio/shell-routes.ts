/** `/v1/shell/*`: sessions with a state, as in the AIO API. */

import { realpathSync, statSync } from "node:fs";
import { isoTime } from "@sandlot/contract";
import { wallMs } from "../clock.ts";
import type { ExecTable } from "../exec/exec-table.ts";
import { checkPath } from "../files/paths.ts";
import type { SessionTable } from "../sessions/session-table.ts";
import { OperationProblem, sendData } from "./answers.ts";
import { Fields } from "./fields.ts";
import { cut } from "./output.ts";
import type { AioRoutes } from "./routes.ts";
import { ShellSession } from "./shell-session.ts";

/** Unnamed sessions. The one that is idle longest is closed first. */
const UNNAMED_MAX = 16;
const SESSIONS_MAX = 128;
const OUTPUT_MAX_CHARS = 30_000;
const PS1 = "sandbox$ ";
/** A session used within this time is active. */
const ACTIVE_MS = 5 * 60 * 1_000;

export function shellRoutes(execs: ExecTable, sessions: SessionTable): AioRoutes {
  const shells = new Map<string, ShellSession>();
  const unnamed = new Set<string>();

  const close = async (id: string): Promise<boolean> => {
    const shell = shells.get(id);
    if (shell === undefined) return false;
    shells.delete(id);
    unnamed.delete(id);
    await sessions.close(id);
    shell.dispose();
    return true;
  };

  const makeRoom = async (): Promise<void> => {
    if (unnamed.size < UNNAMED_MAX) return;
    const idle = [...unnamed].find((id) => shells.get(id)?.isRunning !== true);
    if (idle !== undefined) await close(idle);
  };

  const open = async (id: string | null, directory: string | null): Promise<ShellSession> => {
    const known = id === null ? undefined : shells.get(id);
    if (known !== undefined) return known;
    if (id === null) await makeRoom();
    if (shells.size >= SESSIONS_MAX) throw new OperationProblem("Too many shell sessions");
    const { sessionId } = sessions.open({ sessionId: id, cwd: directory, env: {} });
    const shell = new ShellSession(sessions.find(sessionId), execs);
    shells.set(sessionId, shell);
    if (id === null) unnamed.add(sessionId);
    return shell;
  };

  const find = (id: string): ShellSession => {
    const shell = shells.get(id);
    if (shell === undefined) throw new OperationProblem(`Session not found: ${id}`);
    return shell;
  };

  const view = (shell: ShellSession, truncate: boolean) => {
    const output = cut(shell.output(), truncate ? OUTPUT_MAX_CHARS : 0);
    const command = shell.command ?? "";
    return { output, console: [{ ps1: PS1, command, output }], exit_code: shell.exitCode };
  };

  return {
    "POST /v1/shell/exec": async (request, response) => {
      const fields = await Fields.of(request);
      const [id, directory, command] = [
        fields.optionalText("id"),
        fields.optionalText("exec_dir"),
        fields.text("command"),
      ];
      const seconds = (name: string) => milliseconds(fields.number(name));
      const params = {
        asynchronous: fields.flagOr("async_mode", false),
        timeoutMs: seconds("timeout"),
        noChangeTimeoutMs: milliseconds(fields.integer("no_change_timeout")),
        hardTimeoutMs: seconds("hard_timeout"),
      };
      const truncate = fields.flagOr("truncate", true);
      const [strict, links] = [fields.flagOrNull("strict", false), fields.flagOrNull("preserve_symlinks", false)];
      fields.check();
      const place = directory === null ? null : placeOf(directory, links);
      if (strict && directory !== null && place === null) throw missing(directory);
      const shell = await open(id, place);
      const status = await shell.run({ command, directory: id === null ? null : place, ...params });
      sendData(response, { session_id: shell.id, command, status, ...view(shell, truncate) }, SAID[status]);
    },

    "POST /v1/shell/view": async (request, response) => {
      const fields = await Fields.of(request);
      const id = fields.text("id");
      fields.check();
      const shell = find(id);
      sendData(response, { session_id: id, status: shell.status, command: shell.command, ...view(shell, true) });
    },

    "POST /v1/shell/wait": async (request, response) => {
      const fields = await Fields.of(request);
      const [id, wanted, max] = [fields.text("id"), fields.integer("seconds"), fields.integer("max_wait_seconds")];
      fields.check();
      sendData(response, { status: await find(id).wait(milliseconds(wanted ?? max), null) });
    },

    "POST /v1/shell/write": async (request, response) => {
      const fields = await Fields.of(request);
      const [id, input] = [fields.text("id"), fields.text("input")];
      const enter = fields.flag("press_enter");
      fields.check();
      const shell = find(id);
      shell.type(enter ? `${input}\n` : input);
      sendData(response, { status: shell.status });
    },

    "POST /v1/shell/kill": async (request, response) => {
      const fields = await Fields.of(request);
      const id = fields.text("id");
      fields.check();
      const shell = find(id);
      const status = await shell.kill();
      sendData(response, { status, exit_code: shell.exitCode, returncode: shell.exitCode });
    },

    "POST /v1/shell/sessions/create": async (request, response) => {
      const fields = await Fields.of(request, "no fields");
      const [id, directory, noChange] = [
        fields.optionalText("id"),
        fields.optionalText("exec_dir"),
        fields.integer("no_change_timeout"),
      ];
      const links = fields.flagOrNull("preserve_symlinks", false);
      fields.check();
      const place = directory === null ? null : placeOf(directory, links);
      if (directory !== null && place === null) throw missing(directory);
      const shell = await open(id, place);
      unnamed.delete(shell.id);
      if (noChange !== null) shell.noChangeTimeoutMs = noChange * 1_000;
      sendData(response, { session_id: shell.id, working_dir: shell.workingDirectory });
    },

    "POST /v1/shell/sessions/update": async (request, response) => {
      const fields = await Fields.of(request);
      const [id, noChange] = [fields.text("id"), fields.integer("no_change_timeout")];
      fields.check();
      const shell = find(id);
      if (noChange !== null) shell.noChangeTimeoutMs = noChange * 1_000;
      sendData(response, null);
    },

    "GET /v1/shell/sessions": (_request, response) => {
      const entries = [...shells.values()].map((shell) => [shell.id, infoOf(shell)]);
      sendData(response, { sessions: Object.fromEntries(entries) });
    },

    "DELETE /v1/shell/sessions": async (_request, response) => {
      for (const id of [...shells.keys()]) await close(id);
      sendData(response, null);
    },

    "DELETE /v1/shell/sessions/{id}": async (_request, response, { id = "" }) => {
      if (!(await close(id))) throw new OperationProblem(`Session not found: ${id}`);
      sendData(response, null);
    },

    "GET /v1/shell/sessions/stats": (_request, response) => {
      const isActive = ({ isRunning, lastUsedAt }: ShellSession) => isRunning || wallMs() - lastUsedAt < ACTIVE_MS;
      const active = [...shells.values()].filter(isActive).length;
      sendData(response, {
        ...{ total_sessions: shells.size, active_sessions: active, idle_sessions: shells.size - active },
        ...{ max_sessions: SESSIONS_MAX, session_timeout: 0, usage_ratio: shells.size / SESSIONS_MAX },
      });
    },

    "GET /v1/shell/terminal-url": () => {
      throw new OperationProblem("This sandbox has no page for a terminal");
    },
  };
}

const SAID: Readonly<Record<string, string>> = {
  completed: "Command executed",
  running: "Command is still running",
  no_change_timeout: "Command is still running; it has printed nothing for a while",
  hard_timeout: "Command was ended: it took too long",
  terminated: "Command was ended",
};

function infoOf(shell: ShellSession) {
  return {
    working_dir: shell.workingDirectory,
    created_at: isoTime(shell.createdAt),
    last_used_at: isoTime(shell.lastUsedAt),
    age_seconds: Math.floor((wallMs() - shell.createdAt) / 1_000),
    status: shell.status,
    current_command: shell.isRunning ? shell.command : null,
  };
}

function milliseconds(seconds: number | null): number | null {
  return seconds === null || seconds <= 0 ? null : seconds * 1_000;
}

/** `null`: there is no such directory. Unless links are kept, the directory they lead to. */
function placeOf(directory: string, keepLinks: boolean): string | null {
  const path = checkPath(directory);
  try {
    if (!statSync(path).isDirectory()) return null;
    return keepLinks ? path : realpathSync(path);
  } catch {
    return null;
  }
}

function missing(directory: string): OperationProblem {
  return new OperationProblem(`Working directory does not exist: ${directory}`);
}
