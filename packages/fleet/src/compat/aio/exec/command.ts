/**
 * One command in one session: started, followed by its byte offsets, to its end.
 */

import type { AioCalls, Ask } from "../calls.ts";
import { bashExecSchema, bashOutputSchema } from "../wire/schemas.ts";
import { type Outcome, outcomeOf } from "./script.ts";

export interface Start {
  readonly sessionId: string;
  readonly text: string;
  readonly env: Readonly<Record<string, string>>;
  /** 0 is no limit. */
  readonly timeoutMs: number;
  /** Returns at once. Otherwise when it has ended, or after a while. */
  readonly background: boolean;
}

/** The progress of a command. */
export interface Progress {
  readonly commandId: string | null;
  readonly stdout: string;
  readonly stderr: string;
  readonly stdoutEnd: number;
  readonly stderrEnd: number;
  /** `null` while it runs. */
  readonly outcome: Outcome | null;
}

export interface Position {
  readonly sessionId: string;
  readonly commandId: string | null;
  readonly stdout: number;
  readonly stderr: number;
}

/** How long to wait for one response. The next request continues where it ended. */
const ROUND_MS = 20_000;
/** The limit of the response to a start. More is read by offset, where the beginning is not kept anyway. */
const FIRST_MAX_CHARS = 1024 * 1024;

export async function startCommand(calls: AioCalls, start: Start, ask: Ask = {}): Promise<Progress> {
  const { sessionId, text, env, timeoutMs, background } = start;
  const fields = {
    session_id: sessionId,
    command: text,
    env,
    async_mode: background,
    max_output_length: FIRST_MAX_CHARS,
    ...(!background && { timeout: ROUND_MS / 1_000 }),
    ...(timeoutMs > 0 && { hard_timeout: timeoutMs / 1_000 }),
  };
  const reply = await calls.post(bashExecSchema, "/v1/bash/exec", fields, { patienceMs: ROUND_MS, ...ask });
  return {
    commandId: reply.command_id,
    stdout: reply.stdout ?? "",
    stderr: reply.stderr ?? "",
    stdoutEnd: reply.offset,
    stderrEnd: reply.stderr_offset,
    outcome: outcomeOf(reply.status, reply.exit_code),
  };
}

/** The output from this position on; with `wait`, waits a while for news. */
export async function readOn(calls: AioCalls, at: Position, wait: boolean, ask: Ask = {}): Promise<Progress> {
  const fields = {
    session_id: at.sessionId,
    ...(at.commandId !== null && { command_id: at.commandId }),
    offset: at.stdout,
    stderr_offset: at.stderr,
    wait,
    wait_timeout: ROUND_MS / 1_000,
  };
  const more = { patienceMs: wait ? ROUND_MS : 0, ...ask };
  const reply = await calls.post(bashOutputSchema, "/v1/bash/output", fields, more);
  const { command } = reply;
  return {
    commandId: at.commandId,
    stdout: reply.stdout,
    stderr: reply.stderr,
    stdoutEnd: reply.offset,
    stderrEnd: reply.stderr_offset,
    outcome: outcomeOf(command.status, command.exit_code),
  };
}
