/**
 * The commands of a sandbox by their id, through its daemon.
 */

import {
  type ExecInfo,
  type ExecSignal,
  type FollowEvent,
  type FollowOptions,
  foundSchema,
  type OutputOptions,
  type OutputSoFar,
  type SandboxExecs,
  type WaitForOutputOptions,
  type WaitForOutputReply,
  waitForOutputReplySchema,
} from "@sandlot/contract";
import { outputSoFar } from "../backend/output-so-far.ts";
import { UnitGuard } from "../untrusted/units.ts";
import { ConnectionLost } from "./connection-pool.ts";
import { type Offsets, readFrames } from "./frames.ts";
import type { Calls } from "./held-daemon.ts";
import * as replies from "./replies.ts";
import { encode } from "./wire.ts";

/** How often in a row a follower connects again without receiving anything. */
const FOLLOW_RETRIES_MAX = 3;

export class DaemonExecs implements SandboxExecs {
  readonly #calls: Calls;

  constructor(calls: Calls) {
    this.#calls = calls;
  }

  list(): Promise<readonly ExecInfo[]> {
    return this.#calls.get(replies.execsSchema, "/sandlot/execs");
  }

  output(execId: string, options?: OutputOptions): Promise<OutputSoFar> {
    return outputSoFar(this, this.#calls.world, execId, options);
  }

  async signal(execId: string, signal: ExecSignal): Promise<boolean> {
    const { found } = await this.#calls.post(foundSchema, "/sandlot/exec/signal", { execId, signal });
    return found;
  }

  async kill(execId: string): Promise<boolean> {
    const { found } = await this.#calls.post(foundSchema, "/sandlot/exec/kill", { execId });
    return found;
  }

  async writeStdin(
    execId: string,
    content: string | Uint8Array,
    options: { readonly end?: boolean } = {},
  ): Promise<void> {
    const query = { execId, end: options.end === true ? 1 : undefined };
    const call = { method: "POST", path: "/sandlot/exec/stdin", query, body: encode(content) } as const;
    await this.#calls.attempt((wire) => wire.ask(replies.nothingSchema, call));
  }

  waitForOutput(execId: string, pattern: string, options: WaitForOutputOptions): Promise<WaitForOutputReply> {
    const { timeoutMs, literal, signal } = options;
    const fields = { execId, pattern, literal, timeoutMs };
    return this.#calls.post(waitForOutputReplySchema, "/sandlot/wait/output", fields, signal, timeoutMs);
  }

  /** Connects again where a connection breaks, and repeats no output. */
  async *follow(execId: string, options: FollowOptions = {}): AsyncGenerator<FollowEvent> {
    const startedAt = this.#calls.world.monotonicMs();
    const offsets: Offsets = { stdout: options.from?.stdout ?? 0, stderr: options.from?.stderr ?? 0 };
    for (let failures = 0; ; ) {
      try {
        for await (const event of this.#followOnce(execId, offsets, options)) {
          failures = 0;
          yield event;
          if (event.type === "end") return;
        }
        throw new ConnectionLost("the output was cut off");
      } catch (error) {
        options.signal?.throwIfAborted();
        const { error: known, restarted } = await this.#calls.explain(error);
        if (restarted) {
          yield { type: "end", end: replies.lostEnd(execId, offsets, this.#calls.world.monotonicMs() - startedAt) };
          return;
        }
        if (known.code !== "sandbox_unreachable" || ++failures > FOLLOW_RETRIES_MAX) throw known;
      }
    }
  }

  async *#followOnce(execId: string, offsets: Offsets, options: FollowOptions): AsyncGenerator<FollowEvent> {
    const { until = "exit", signal, hold = true } = options;
    const query = { execId, stdout: offsets.stdout, stderr: offsets.stderr, until, hold: hold ? undefined : 0 };
    const call = { method: "GET", path: "/sandlot/exec/follow", query, ...(signal && { signal }) } as const;
    const response = await this.#calls.raw((wire) => wire.open(call));
    try {
      const { timer } = this.#calls.world;
      yield* readFrames(response, offsets, new UnitGuard(response, timer));
    } finally {
      response.destroy();
    }
  }
}
