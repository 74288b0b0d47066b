/**
 * The commands of a sandbox in memory, for its holder.
 */

import {
  type ExecOptions,
  type ExecResult,
  type FollowEvent,
  type FollowOptions,
  type SandboxExecs,
  SandlotError,
  type SpawnedExec,
  type SpawnOptions,
  type WaitForOutputOptions,
  type WaitForOutputReply,
} from "@sandlot/contract";
import { compileRegex, guarded } from "@sandlot/sandboxd/patterns";
import { outputSoFar } from "../../backend/output-so-far.ts";
import { abortable } from "../../world/waiting.ts";
import type { Attached } from "./attachment.ts";
import type { ExecRequest } from "./engine-api.ts";

export async function memoryExec(
  attached: Attached,
  command: string | readonly string[],
  options: ExecOptions = {},
): Promise<ExecResult> {
  const { engine, target } = attached;
  const { signal } = options;
  attached.check();
  signal?.throwIfAborted();
  const request = requestOf(attached, command, options);
  const running = engine.exec(target, request);
  if (signal === undefined) return running;
  try {
    return await abortable(running, signal);
  } catch (error) {
    if (!signal.aborted) throw error;
    running.catch(() => {});
    // Waits until the tree has ended. A failed request to the engine must not hide why the caller gave up.
    await engine.killExec(target, request.execId).catch(() => {});
    throw signal.reason;
  }
}

export async function memorySpawn(
  attached: Attached,
  command: string | readonly string[],
  options: SpawnOptions = {},
): Promise<SpawnedExec> {
  attached.check();
  options.signal?.throwIfAborted();
  const keepStdinOpen = options.keepStdinOpen === true;
  const held = options.output === "hold";
  return attached.engine.spawn(attached.target, { ...requestOf(attached, command, options), keepStdinOpen, held });
}

export function memoryExecs(attached: Attached): SandboxExecs {
  const { engine, target } = attached;
  const list = async () => {
    attached.check();
    return engine.execs(target);
  };
  const followed = (execId: string, options?: FollowOptions) => follow(attached, execId, options);
  return {
    list,
    follow: followed,
    output: (execId, options) => outputSoFar({ list, follow: followed }, attached.world, execId, options),
    signal: async (execId, signal) => {
      attached.check();
      if (ENDING_SIGNALS.has(signal)) return engine.killExec(target, execId, signal);
      const neededBy = `the signal ${signal}`;
      throw new SandlotError("capability_missing", { backend: "memory", capability: "signals", neededBy });
    },
    kill: async (execId) => {
      attached.check();
      return engine.killExec(target, execId);
    },
    writeStdin: async (execId, content, { end = false } = {}) => {
      attached.check();
      await engine.writeStdin(target, execId, bytesOf(content), end);
    },
    waitForOutput: (execId, pattern, options) => waitForOutput(attached, execId, pattern, options),
  };
}

/** Commands here handle no signals, so these end them; other signals would have no effect. */
const ENDING_SIGNALS: ReadonlySet<string> = new Set(["SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGKILL"]);

async function* follow(attached: Attached, execId: string, options: FollowOptions = {}): AsyncGenerator<FollowEvent> {
  const { until = "exit", signal, hold = true } = options;
  const at = { stdout: options.from?.stdout ?? 0, stderr: options.from?.stderr ?? 0 };
  const follower = hold ? { follower: attached.world.randomHex(8) } : {};
  try {
    for (;;) {
      attached.check();
      signal?.throwIfAborted();
      const reading = attached.engine.follow(attached.target, execId, { ...at, ...follower }, until);
      const events = await (signal === undefined ? reading : abortable(reading, signal));
      for (const event of events) {
        if (event.type === "output") at[event.stream] = event.offset + event.bytes.length;
        else if (event.type === "gap") at[event.stream] = event.toOffset;
        yield event;
        if (event.type === "end") return;
      }
    }
  } finally {
    // An unreachable engine holds no output for followers.
    if (follower.follower !== undefined)
      await attached.engine.leave(attached.target, execId, follower.follower).catch(() => {});
  }
}

async function waitForOutput(
  attached: Attached,
  execId: string,
  pattern: string,
  { timeoutMs, literal = false, signal }: WaitForOutputOptions,
): Promise<WaitForOutputReply> {
  const matches = literal ? (line: string) => line.includes(pattern) : matcherOf(pattern);
  const late = new SandlotError("wait_timeout", { waitedFor: `output matching ${pattern}`, timeoutMs });
  const deadline = new AbortController();
  const timer = attached.world.timer(timeoutMs, () => deadline.abort(late));
  const either = signal === undefined ? deadline.signal : AbortSignal.any([signal, deadline.signal]);
  const rest = { stdout: new LineSplitter(), stderr: new LineSplitter() };
  try {
    for await (const event of follow(attached, execId, { until: "closed", signal: either })) {
      if (event.type === "output") {
        const line = rest[event.stream].take(event.bytes).find(matches);
        if (line !== undefined) return { matched: true, stream: event.stream, line };
      } else if (event.type === "end") {
        for (const stream of ["stdout", "stderr"] as const) {
          const line = rest[stream].last;
          if (line !== "" && matches(line)) return { matched: true, stream, line };
        }
      }
    }
    return { matched: false };
  } finally {
    timer.cancel();
  }
}

class LineSplitter {
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  /** The unfinished last line. */
  last = "";

  take(bytes: Uint8Array): readonly string[] {
    const lines = (this.last + this.#decoder.decode(bytes, { stream: true })).split("\n");
    this.last = lines.pop() ?? "";
    // A prompt has no newline, so the unfinished last line counts, too.
    return this.last === "" ? lines : [...lines, this.last];
  }
}

function matcherOf(pattern: string): (line: string) => boolean {
  const regex = compileRegex(pattern, "");
  return (line) => guarded(pattern, () => regex.test(line));
}

function requestOf(
  { world }: Attached,
  command: string | readonly string[],
  { execId, cwd, env, stdin, timeoutMs, outputMaxBytes }: ExecOptions,
): ExecRequest {
  return {
    execId: execId ?? world.randomHex(8),
    command,
    repeatable: execId !== undefined,
    ...(cwd === undefined ? {} : { cwd }),
    ...(env === undefined ? {} : { env }),
    ...(stdin === undefined ? {} : { stdin: bytesOf(stdin) }),
    ...(timeoutMs === undefined ? {} : { timeoutMs }),
    ...(outputMaxBytes === undefined ? {} : { outputMaxBytes }),
  };
}

function bytesOf(content: string | Uint8Array): Uint8Array {
  return typeof content === "string" ? new TextEncoder().encode(content) : content;
}
