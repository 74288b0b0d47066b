/**
 * Commands by their id, over HTTP. A broken output stream resumes without repeating or losing a byte: the client keeps
 * the offsets.
 */

import {
  type ExecInfo,
  type ExecSignal,
  execGapSchema,
  execListSchema,
  type FollowEvent,
  type FollowOptions,
  foundSchema,
  isSandlotError,
  type OutputOptions,
  type OutputSoFar,
  outputSoFarSchema,
  type SandboxExecs,
  signalReplySchema,
  type WaitForOutputOptions,
  type WaitForOutputReply,
  waitForOutputReplySchema,
} from "@sandlot/contract";
import { decodeBase64, encodeBase64 } from "../wire/bytes.ts";
import { around, pause } from "../wire/clock.ts";
import { ConnectionBroken, errorOfEvent, isBreak, readResponse, unreachable } from "../wire/errors.ts";
import { serverEvents } from "../wire/events.ts";
import type { StreamedResponse } from "../wire/node-calls.ts";
import { execEndData, execOutputData } from "../wire/plain-replies.ts";
import { pathOf, type RemoteThread, segment } from "./thread-path.ts";

/** How often in a row a stream is resumed without an event: two minutes, for a gateway's host to restart. */
const RESUMES_MAX = 20;
/** How often, and after which delay, a missing abandoned command is searched again: three seconds in all. */
const ABANDON_RETRIES = 5;
const ABANDON_RETRY_MS = 100;

export class RemoteExecs implements SandboxExecs {
  readonly #remote: RemoteThread;

  constructor(remote: RemoteThread) {
    this.#remote = remote;
  }

  async list(): Promise<readonly ExecInfo[]> {
    this.#remote.check();
    const call = { method: "GET", path: pathOf(this.#remote, "execs"), repeatable: true } as const;
    return (await this.#remote.transport.json(execListSchema, call)).execs;
  }

  async *follow(execId: string, options: FollowOptions = {}): AsyncGenerator<FollowEvent> {
    const { from, until = "exit", hold = true, signal } = options;
    const next = { stdout: from?.stdout ?? 0, stderr: from?.stderr ?? 0 };
    let begun = false;
    for (let silent = 0; ; silent += 1) {
      signal?.throwIfAborted();
      try {
        const response = await this.#ask(execId, { ...next, until, hold }, signal);
        begun = true;
        for await (const event of eventsOf(response, this.#remote.transport.url)) {
          silent = 0;
          if (event.type === "output") next[event.stream] = event.offset + event.bytes.byteLength;
          if (event.type === "gap") next[event.stream] = event.toOffset;
          yield event;
          if (event.type === "end") return;
        }
      } catch (error) {
        signal?.throwIfAborted();
        if (!begun || !isBreak(error)) throw error;
        if (silent >= RESUMES_MAX)
          throw error instanceof ConnectionBroken ? unreachable(this.#remote.transport.url, error.cause) : error;
      }
      // The gateway or the connection ended the stream: the command goes on, so resume.
      await pause(around(50 * 2 ** Math.min(silent, 6)), signal);
    }
  }

  async output(execId: string, options: OutputOptions = {}): Promise<OutputSoFar> {
    return readOutput(this.#remote, `execs/${segment(execId)}`, options);
  }

  async signal(execId: string, signal: ExecSignal): Promise<boolean> {
    this.#remote.check();
    const call = { method: "POST", path: this.#path(execId, "signal"), json: { signal } } as const;
    try {
      return (await this.#remote.transport.json(signalReplySchema, call)).delivered;
    } catch (error) {
      if (isSandlotError(error, "exec_not_found")) return false;
      throw error;
    }
  }

  async kill(execId: string): Promise<boolean> {
    this.#remote.check();
    return this.#kill(execId);
  }

  /**
   * Ends a command whose caller gave up, also when its lease has ended meanwhile. The request that starts it may still
   * be in flight, so a missing command is searched again. Resolves when the gateway has responded once, or is
   * unreachable.
   */
  async abandon(execId: string): Promise<void> {
    const found = await this.#kill(execId).catch(() => false);
    if (!found) void this.#killLater(execId);
  }

  async #killLater(execId: string): Promise<void> {
    for (let attempt = 0; attempt < ABANDON_RETRIES; attempt += 1) {
      await pause(around(ABANDON_RETRY_MS * 2 ** attempt));
      if (await this.#kill(execId).catch(() => false)) return;
    }
  }

  async #kill(execId: string): Promise<boolean> {
    const call = { method: "POST", path: this.#path(execId, "kill"), repeatable: true } as const;
    return (await this.#remote.transport.json(foundSchema, call)).found;
  }

  async writeStdin(
    execId: string,
    content: string | Uint8Array,
    options: { readonly end?: boolean } = {},
  ): Promise<void> {
    this.#remote.check();
    const bytes = typeof content === "string" ? { data: content } : { base64: encodeBase64(content) };
    const json = { ...bytes, end: options.end ?? false };
    await this.#remote.transport.done({ method: "POST", path: this.#path(execId, "stdin"), json });
  }

  async waitForOutput(execId: string, pattern: string, options: WaitForOutputOptions): Promise<WaitForOutputReply> {
    this.#remote.check();
    const { timeoutMs, literal, signal } = options;
    const json = { pattern, timeoutMs, ...(literal === undefined ? {} : { literal }) };
    const call = { method: "POST", path: this.#path(execId, "wait"), json, signal, repeatable: true } as const;
    return this.#remote.transport.json(waitForOutputReplySchema, call);
  }

  #ask(
    execId: string,
    from: { readonly stdout: number; readonly stderr: number; readonly until: string; readonly hold: boolean },
    signal: AbortSignal | undefined,
  ): Promise<StreamedResponse> {
    this.#remote.check();
    return this.#remote.transport.stream({
      method: "GET",
      path: this.#path(execId, "output"),
      query: {
        stdoutOffset: from.stdout,
        stderrOffset: from.stderr,
        until: from.until,
        ...(from.hold ? {} : { hold: "false" }),
      },
      headers: { accept: "text/event-stream" },
      signal,
      repeatable: true,
    });
  }

  #path(execId: string, what: string): string {
    return pathOf(this.#remote, `execs/${segment(execId)}/${what}`);
  }
}

/** A command's output so far. */
export async function readOutput(
  remote: RemoteThread,
  path: string,
  { from, maxBytes, signal }: OutputOptions,
): Promise<OutputSoFar> {
  remote.check();
  const query = {
    ...(from?.stdout === undefined ? {} : { stdoutOffset: from.stdout }),
    ...(from?.stderr === undefined ? {} : { stderrOffset: from.stderr }),
    ...(maxBytes === undefined ? {} : { maxBytes }),
  };
  const call = { method: "GET", path: pathOf(remote, path), query, signal, repeatable: true } as const;
  return remote.transport.json(outputSoFarSchema, call);
}

/** Events that this version does not know are skipped, and so are gaps of streams that it does not know. */
async function* eventsOf(response: StreamedResponse, url: string): AsyncGenerator<FollowEvent> {
  for await (const { event, data } of serverEvents(response, url)) {
    if (event === "stdout" || event === "stderr") {
      const { offset, base64 } = readResponse(execOutputData, data, url);
      yield { type: "output", stream: event, offset, bytes: decodeBase64(base64) };
    } else if (event === "gap") {
      const { stream, fromOffset, toOffset } = readResponse(execGapSchema, data, url);
      const known = (["stdout", "stderr"] as const).find((one) => one === stream);
      if (known !== undefined) yield { type: "gap", stream: known, fromOffset, toOffset };
    } else if (event === "exit") yield { type: "end", end: readResponse(execEndData, data, url) };
    else if (event === "error") throw errorOfEvent(data, url);
  }
}
