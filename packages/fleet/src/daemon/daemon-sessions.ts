/**
 * The persistent shells of a sandbox, through its daemon.
 */

import {
  SANDBOX_LIMITS,
  type SandboxSessions,
  type SessionExecOptions,
  type SessionExecResult,
  type SessionInfo,
  type SessionOptions,
} from "@sandlot/contract";
import type { Calls } from "./calls.ts";
import { encodeCall } from "./encoding.ts";
import { lostResult } from "./lost.ts";
import * as replies from "./replies.ts";
import { outputLimit, parseResult, resultMaxBytes } from "./results.ts";

/** A session keeps no output. */
const OMITTED_REMEDY = "Run it again with its output redirected to a file, or with a larger outputMaxBytes.";

/** A command waits for those before it in its session. Longer than this nobody does. */
const TURN_MS = 3_600_000;

export class DaemonSessions implements SandboxSessions {
  readonly #calls: Calls;

  constructor(calls: Calls) {
    this.#calls = calls;
  }

  open(options: SessionOptions = {}): Promise<SessionInfo> {
    const { sessionId, cwd, env } = options;
    return this.#calls.post(replies.sessionInfoSchema, "/sandlot/sessions/open", { sessionId, cwd, env });
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
      return await parseResult(answer, replies.sessionStateSchema, OMITTED_REMEDY);
    } catch (error) {
      signal?.throwIfAborted();
      const { error: known, restarted } = await this.#calls.explain(error);
      if (!restarted) throw known;
      const lost = lostResult(sessionId, this.#calls.world.monotonicMs() - startedAt);
      // Where the session was went with it.
      return { ...lost, cwd: "/", shellEnded: true };
    }
  }

  list(): Promise<readonly SessionInfo[]> {
    return this.#calls.get(replies.sessionsSchema, "/sandlot/sessions");
  }

  async close(sessionId: string): Promise<void> {
    await this.#calls.post(replies.foundSchema, "/sandlot/sessions/close", { sessionId });
  }
}
