/**
 * Sessions of `/v1/bash`: a command runs in one, and is ended through it. Each runs one command at a time, so as many
 * are kept as commands have run at once; we choose the names, so that a command can be ended before the response to its
 * start.
 */

import type { AioCalls } from "../calls.ts";
import { anythingSchema } from "../wire/schemas.ts";

/** More than usual concurrency; the rest is closed. */
const KEPT_MAX = 8;

export class BashSessions {
  readonly #calls: AioCalls;
  readonly #idle: string[] = [];

  constructor(calls: AioCalls) {
    this.#calls = calls;
  }

  async take(): Promise<string> {
    return this.#idle.pop() ?? (await this.open(`sandlot-${this.#calls.world.randomHex(8)}`));
  }

  async open(sessionId: string): Promise<string> {
    await this.#calls.post(anythingSchema, "/v1/bash/sessions/create", { session_id: sessionId });
    return sessionId;
  }

  /** For a session in which nothing runs any more. */
  giveBack(sessionId: string): void {
    if (this.#idle.length < KEPT_MAX) this.#idle.push(sessionId);
    else void this.close(sessionId);
  }

  /** A session that the server keeps anyway costs it a table entry. */
  async close(sessionId: string): Promise<void> {
    const path = `/v1/bash/sessions/${encodeURIComponent(sessionId)}/close`;
    await this.#calls.post(anythingSchema, path, {}).catch(() => {});
  }

  /** Returns whether anything ran. */
  async signal(sessionId: string, signal: string): Promise<boolean> {
    const refusal = new Error("nothing runs there");
    try {
      const fields = { session_id: sessionId, signal };
      await this.#calls.post(anythingSchema, "/v1/bash/kill", fields, { onRefusal: () => refusal });
      return true;
    } catch (error) {
      if (error === refusal) return false;
      throw error;
    }
  }

  /** Closes the idle sessions. */
  async letGo(): Promise<void> {
    await Promise.all(this.#idle.splice(0).map((sessionId) => this.close(sessionId)));
  }
}
