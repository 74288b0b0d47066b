/**
 * Commands that the model may leave running. A call waits for a while; a command that has not ended by then gets a
 * number, with which later calls read and write.
 *
 * Invariants
 * - Every byte of output is returned once, in the order of arrival.
 * - A running command belongs to its sandbox. When that is replaced, its number reports that the command is gone.
 */

import type { ExecCommandArgs, SandboxExecResult, WriteStdinArgs } from "@openai/agents/sandbox";
import { type FollowEnd, type Recovery, type Sandbox, SandlotError } from "@sandlot/contract";
import { noticeInWords } from "../tools/notice.ts";
import type { SandboxRun } from "../tools/run.ts";
import { headOf, tailOf } from "../tools/text.ts";
import { later } from "../wire/clock.ts";

const YIELD_MS = 10_000;
const WRITE_YIELD_MS = 250;
const CHARS_PER_TOKEN = 4;
const RUNNING_MAX = 64;

interface Running {
  readonly execId: string;
  readonly from: { stdout: number; stderr: number };
}

export class RunningCommands {
  readonly #run: SandboxRun;
  readonly #running = new Map<number, Running>();
  #lastNumber = 0;

  constructor(run: SandboxRun) {
    this.#run = run;
  }

  start(
    args: ExecCommandArgs & { workdir: string },
    env: Readonly<Record<string, string>>,
  ): Promise<SandboxExecResult> {
    const { shell, login = false, cmd } = args;
    const command = shell === undefined && !login ? cmd : [shell ?? "/bin/sh", login ? "-lc" : "-c", cmd];
    return this.#run.use(async (sandbox) => {
      this.#checkRoom();
      const options = { cwd: args.workdir, env, timeoutMs: 0, keepStdinOpen: true, signal: this.#run.ending };
      const { execId } = await sandbox.spawn(command, options);
      const running = { execId, from: { stdout: 0, stderr: 0 } };
      return this.#collect(sandbox, running, this.#number(running), args.yieldTimeMs ?? YIELD_MS, args.maxOutputTokens);
    });
  }

  write({ sessionId, chars = "", yieldTimeMs, maxOutputTokens }: WriteStdinArgs): Promise<SandboxExecResult> {
    const running = this.#running.get(sessionId);
    if (running === undefined) throw new SandlotError("exec_not_found", { execId: String(sessionId) });
    return this.#run.use(async (sandbox) => {
      // A terminal would turn the interrupt character into a signal.
      if (chars === "\u0003") await sandbox.execs.signal(running.execId, "SIGINT");
      else if (chars !== "") await sandbox.execs.writeStdin(running.execId, chars);
      return this.#collect(sandbox, running, sessionId, yieldTimeMs ?? WRITE_YIELD_MS, maxOutputTokens);
    });
  }

  /** Checked before a command is started, so that no unreachable command runs. */
  #checkRoom(): void {
    if (this.#running.size >= RUNNING_MAX)
      throw new SandlotError("exec_limit", { running: this.#running.size, max: RUNNING_MAX, retryAfterMs: 1_000 });
  }

  #number(running: Running): number {
    this.#lastNumber += 1;
    this.#running.set(this.#lastNumber, running);
    return this.#lastNumber;
  }

  async #collect(sandbox: Sandbox, running: Running, number: number, yieldMs: number, maxTokens: number | undefined) {
    const collected = new Collected();
    const patience = new AbortController();
    const stop = later(yieldMs, () => patience.abort());
    let end: FollowEnd | null = null;
    try {
      const signal = AbortSignal.any([patience.signal, this.#run.ending]);
      for await (const event of sandbox.execs.follow(running.execId, { from: { ...running.from }, signal })) {
        if (event.type === "end") end = event.end;
        else if (event.type === "output") {
          collected.add(event.stream, event.bytes);
          running.from[event.stream] = event.offset + event.bytes.length;
        } else {
          collected.gap(event.toOffset - event.fromOffset);
          running.from[event.stream] = event.toOffset;
        }
      }
    } catch (error) {
      if (!patience.signal.aborted || this.#run.isEnded()) throw error;
    } finally {
      stop();
    }
    if (end !== null) this.#running.delete(number);
    return collected.result(end, number, yieldMs, maxTokens);
  }
}

class Collected {
  readonly #decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
  readonly #texts = { stdout: "", stderr: "" };
  #output = "";

  add(stream: "stdout" | "stderr", bytes: Uint8Array): void {
    const text = this.#decoders[stream].decode(bytes, { stream: true });
    this.#texts[stream] += text;
    this.#output += text;
  }

  gap(byteCount: number): void {
    this.#output += `[${byteCount} bytes were dropped]`;
  }

  result(end: FollowEnd | null, number: number, waitedMs: number, maxTokens: number | undefined): SandboxExecResult {
    const maxChars = maxTokens === undefined ? Number.POSITIVE_INFINITY : maxTokens * CHARS_PER_TOKEN;
    const cut = this.#output.length > maxChars;
    return {
      output: cut ? middleCut(this.#output, maxChars) : this.#output,
      stdout: this.#texts.stdout,
      stderr: this.#texts.stderr,
      wallTimeSeconds: (end?.durationMs ?? waitedMs) / 1000,
      ...(end === null
        ? { sessionId: number }
        : { exitCode: end.exitCode ?? (end.status === "timed_out" ? 124 : 137) }),
      ...(cut ? { originalTokenCount: Math.ceil(this.#output.length / CHARS_PER_TOKEN) } : {}),
    };
  }
}

function middleCut(text: string, maxChars: number): string {
  const head = headOf(text, Math.floor(maxChars / 2));
  const tail = tailOf(text, Math.floor(maxChars / 2));
  return `${head}\n[${text.length - head.length - tail.length} of ${text.length} characters left out]\n${tail}`;
}

/** With the texts of the SDK's own sessions, which models know. */
export function inWords(result: SandboxExecResult, notice: Recovery | null): string {
  const lines = [`${noticeInWords(notice)}Wall time: ${result.wallTimeSeconds.toFixed(4)} seconds`];
  if (result.sessionId !== undefined) lines.push(`Process running with session ID ${result.sessionId}`);
  else lines.push(`Process exited with code ${result.exitCode}`);
  if (result.originalTokenCount !== undefined) lines.push(`Original token count: ${result.originalTokenCount}`);
  return [...lines, "Output:", result.output].join("\n");
}
