/**
 * A thread's sandbox as Mastra's `WorkspaceSandbox`. One object is one run: one lease, taken when something needs it, given
 * back by `stop`, `destroy` or disposal, or when its signal fires. `stop` can be followed by another use; `destroy` cannot.
 * Neither ends the sandbox itself, which the fleet keeps for the thread.
 */

import type { CommandResult, ExecuteCommandOptions, ProviderStatus, WorkspaceSandbox } from "@mastra/core/workspace";
import { DEFAULT_CWD, type ExecResult, type FollowEnd, type Sandbox, SandlotError } from "@sandlot/contract";
import { SANDBOX_INSTRUCTIONS } from "../tools/instructions.ts";
import { noticeInWords } from "../tools/notice.ts";
import { absolutePath } from "../tools/paths.ts";
import { type RunOptions, SandboxRun } from "../tools/run.ts";
import type { SandboxSource } from "../tools/source.ts";
import { anySignal } from "../tools/waiting.ts";
import { SandlotWorkspaceFilesystem } from "./filesystem.ts";

export class SandlotWorkspaceSandbox implements WorkspaceSandbox, AsyncDisposable {
  readonly id: string;
  readonly name = "Sandlot";
  readonly provider = "sandlot";
  /** The same files that commands see, in the same run. */
  readonly filesystem: SandlotWorkspaceFilesystem;
  readonly #run: SandboxRun;

  constructor(source: SandboxSource, options: RunOptions) {
    this.#run = new SandboxRun(source, { purpose: "mastra", ...options });
    this.id = `sandlot-${options.thread}`;
    this.filesystem = new SandlotWorkspaceFilesystem(this.#run, this.id);
  }

  get status(): ProviderStatus {
    if (this.#run.isEnded()) return "destroyed";
    return this.#run.isLeased() ? "running" : "ready";
  }

  /** Nothing is taken before it is needed. */
  async start(): Promise<void> {}

  stop(): Promise<void> {
    return this.#run.release();
  }

  destroy(): Promise<void> {
    return this.#run.end();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#run.end();
  }

  isReady(): boolean {
    return !this.#run.isEnded();
  }

  getInstructions(): string {
    return SANDBOX_INSTRUCTIONS;
  }

  async snapshot(): Promise<void> {
    const neededBy = "a Mastra snapshot";
    throw new SandlotError("capability_missing", { backend: "sandlot", capability: "snapshots", neededBy });
  }

  async executeCommand(
    command: string,
    args: string[] = [],
    options: ExecuteCommandOptions = {},
  ): Promise<CommandResult> {
    const line = args.length === 0 ? command : [command, ...args];
    const signal = anySignal(options.abortSignal, this.#run.ending);
    const result = await this.#run.use((sandbox) => execute(sandbox, line, options, signal), { signal });
    const stderr = noticeInWords(this.#run.takeNotice()) + result.stderr;
    return { ...commandResult(result), stderr, command, args };
  }
}

type Line = string | readonly string[];

async function execute(sandbox: Sandbox, line: Line, options: ExecuteCommandOptions, signal: AbortSignal | undefined) {
  const execOptions = {
    cwd: absolutePath(options.cwd ?? DEFAULT_CWD),
    env: presentValues(options.env ?? {}),
    ...(options.timeout === undefined ? {} : { timeoutMs: options.timeout }),
    ...(signal === undefined ? {} : { signal }),
  };
  if (options.onStdout === undefined && options.onStderr === undefined) return sandbox.exec(line, execOptions);
  const { execId } = await sandbox.spawn(line, execOptions);
  return followed(sandbox, execId, options, signal);
}

/** Gives output out as it comes, and the whole at the end. */
async function followed(
  sandbox: Sandbox,
  execId: string,
  options: ExecuteCommandOptions,
  signal: AbortSignal | undefined,
) {
  const tell = { stdout: options.onStdout, stderr: options.onStderr };
  const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
  const texts = { stdout: "", stderr: "" };
  const dropped = { stdout: 0, stderr: 0 };
  let end: FollowEnd | null = null;
  for await (const event of sandbox.execs.follow(execId, signal === undefined ? {} : { signal })) {
    if (event.type === "end") end = event.end;
    else if (event.type === "gap") dropped[event.stream] += event.toOffset - event.fromOffset;
    else {
      const text = decoders[event.stream].decode(event.bytes, { stream: true });
      texts[event.stream] += text;
      tell[event.stream]?.(text);
    }
  }
  signal?.throwIfAborted();
  if (end === null) throw new SandlotError("internal", { problem: "a followed command ended without saying so" });
  return { ...end, ...texts, stdoutDroppedBytes: dropped.stdout, stderrDroppedBytes: dropped.stderr };
}

function commandResult(result: ExecResult): CommandResult {
  const { status, exitCode, stdout, stderr, stdoutDroppedBytes, stderrDroppedBytes, durationMs } = result;
  return {
    success: status === "completed" && exitCode === 0,
    exitCode: exitCode ?? (status === "timed_out" ? 124 : 137),
    stdout,
    stderr,
    executionTimeMs: durationMs,
    timedOut: status === "timed_out",
    killed: status === "killed" || status === "lost",
    stdoutTruncated: stdoutDroppedBytes > 0,
    stderrTruncated: stderrDroppedBytes > 0,
    stdoutDroppedBytes,
    stderrDroppedBytes,
  };
}

function presentValues(environment: Readonly<Record<string, string | undefined>>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(environment).filter((entry): entry is [string, string] => entry[1] !== undefined),
  );
}
