/**
 * The persistent shells of a sandbox, through its daemon.
 */

import {
  foundSchema,
  type OutputOptions,
  type OutputSoFar,
  SANDBOX_LIMITS,
  type SandboxSessions,
  type SessionExecOptions,
  type SessionExecResult,
  type SessionInfo,
  type SessionOptions,
  sessionInfoSchema,
  sessionStateSchema,
} from "@sandlot/contract";
import { outputFrom, outputMaxBytes as partMaxBytes } from "../backend/output-so-far.ts";
import type { Calls } from "./held-daemon.ts";
import { lostResult, outputLimit, parseOutput, parseResult, resultMaxBytes, sessionsSchema } from "./replies.ts";
import { encodeCall } from "./wire.ts";

function omittedRemedy(sessionId: string): string {
  return (
    `Read it with sessions.output("${sessionId}"), over HTTP with GET …/sessions/${sessionId}/output, before the session's next ` +
    "command begins; or ask for more with outputMaxBytes."
  );
}

/** A command waits for earlier ones in its session, at most this long. */
const TURN_MS = 3_600_000;

export class DaemonSessions implements SandboxSessions {
  readonly #calls: Calls;

  constructor(calls: Calls) {
    this.#calls = calls;
  }

  open(options: SessionOptions = {}): Promise<SessionInfo> {
    const { sessionId, cwd, env } = options;
    return this.#calls.post(sessionInfoSchema, "/sandlot/sessions/open", { sessionId, cwd, env });
  }

  /** Aborting closes the connection, which ends the command inside. */
  async exec(sessionId: string, command: string, options: SessionExecOptions = {}): Promise<SessionExecResult> {
    const { stdin, timeoutMs, signal } = options;
    const startedAt = this.#calls.world.monotonicMs();
    const waitsMs = timeoutMs === 0 ? 0 : (timeoutMs ?? SANDBOX_LIMITS.execTimeoutMs) + TURN_MS;
    const outputMaxBytes = outputLimit(options);
    const limits = { maxBytes: resultMaxBytes(outputMaxBytes), waitsMs };
    const body = encodeCall({ sessionId, command, timeoutMs, outputMaxBytes, hasStdin: stdin !== undefined }, stdin);
    const call = {
      method: "POST",
      path: "/sandlot/sessions/exec",
      body,
      ...limits,
      ...(signal && { signal }),
    } as const;
    try {
      const answer = await this.#calls.raw((wire) => wire.bytes(call));
      return await parseResult(answer, sessionStateSchema, omittedRemedy(sessionId));
    } catch (error) {
      signal?.throwIfAborted();
      const { error: known, restarted } = await this.#calls.explain(error);
      if (!restarted) throw known;
      const lost = lostResult(sessionId, this.#calls.world.monotonicMs() - startedAt);
      // The session's directory is lost with it.
      return { ...lost, cwd: "/", shellEnded: true };
    }
  }

  async output(sessionId: string, options: OutputOptions = {}): Promise<OutputSoFar> {
    const [from, maxBytes] = [outputFrom(options), partMaxBytes(options)];
    const call = {
      method: "GET",
      path: "/sandlot/sessions/output",
      query: { sessionId, ...from, maxBytes },
      maxBytes: resultMaxBytes(maxBytes),
      ...(options.signal && { signal: options.signal }),
    } as const;
    return parseOutput(await this.#calls.attempt((wire) => wire.bytes(call), options.signal), from);
  }

  list(): Promise<readonly SessionInfo[]> {
    return this.#calls.get(sessionsSchema, "/sandlot/sessions");
  }

  async close(sessionId: string): Promise<void> {
    await this.#calls.post(foundSchema, "/sandlot/sessions/close", { sessionId });
  }
}
