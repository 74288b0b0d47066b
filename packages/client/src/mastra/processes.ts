/**
 * Background processes, as in Mastra's process manager. Each is followed from its beginning, so its output is available
 * later.
 *
 * Invariants
 * - A process keeps the run's lease in use. Processes that still run at the release are ended.
 * - A process whose sandbox was lost has ended, killed; it is not started again.
 */

import type { CommandResult, MastraSandbox, ProcessInfo, SpawnProcessOptions } from "@mastra/core/workspace";
import { ProcessHandle, SandboxProcessManager } from "@mastra/core/workspace";
import { DEFAULT_CWD, type FollowEnd, isSandlotError, SandlotError } from "@sandlot/contract";
import { absolutePath } from "../tools/paths.ts";
import type { SandboxRun } from "../tools/run.ts";
import { commandResult, presentValues } from "./commands.ts";

export class SandlotProcesses extends SandboxProcessManager {
  readonly #run: SandboxRun;

  constructor(run: SandboxRun, getEnv: () => Record<string, string | undefined>) {
    super();
    this.#run = run;
    // All that the base class needs of its sandbox: there is nothing to start, the first use takes a lease.
    this.sandbox = { ensureRunning: async () => {}, getEnv } as unknown as MastraSandbox;
    run.beforeRelease(async ({ execs }) => {
      const running = [...this._tracked.values()].filter(({ exitCode }) => exitCode === undefined);
      await Promise.all(running.map(({ pid }) => execs.kill(pid)));
    });
  }

  override async spawn(command: string, options: SpawnProcessOptions = {}): Promise<ProcessHandle> {
    const { execId } = await this.#run.use(
      (sandbox) =>
        sandbox.spawn(command, {
          cwd: absolutePath(options.cwd ?? DEFAULT_CWD),
          env: presentValues(options.env ?? {}),
          timeoutMs: options.timeout ?? 0,
          keepStdinOpen: options.stdinMode !== "ignore",
        }),
      { signal: options.abortSignal },
    );
    const handle = new SandlotProcess(this.#run, execId, options);
    this._tracked.set(execId, handle);
    return handle;
  }

  override async list(): Promise<ProcessInfo[]> {
    return [...this._tracked.values()].map(({ pid, command, exitCode }) => ({
      pid,
      running: exitCode === undefined,
      ...(command === undefined ? {} : { command }),
      ...(exitCode === undefined ? {} : { exitCode }),
    }));
  }
}

class SandlotProcess extends ProcessHandle {
  readonly pid: string;
  exitCode: number | undefined;
  readonly #run: SandboxRun;
  readonly #hasStdin: boolean;
  readonly #ended: Promise<CommandResult>;

  constructor(run: SandboxRun, execId: string, options: SpawnProcessOptions) {
    super(options);
    this.pid = execId;
    this.#run = run;
    this.#hasStdin = options.stdinMode !== "ignore";
    this.#ended = this.#follow();
    // `wait` reports it; calling it is optional.
    this.#ended.catch(() => undefined);
  }

  override wait(_options?: Parameters<ProcessHandle["wait"]>[0]): Promise<CommandResult> {
    return this.#ended;
  }

  /** Ends the whole process tree. */
  async kill(): Promise<boolean> {
    if (this.exitCode !== undefined) return false;
    return this.#run.use(({ execs }) => execs.kill(this.pid));
  }

  sendStdin(data: string): Promise<void> {
    return this.#write(data, false);
  }

  override closeStdin(): Promise<void> {
    return this.#write("", true);
  }

  async #write(data: string, end: boolean): Promise<void> {
    if (!this.#hasStdin)
      throw new SandlotError("invalid_request", { field: "stdinMode", problem: "the process has no stdin" });
    await this.#run.use(({ execs }) => execs.writeStdin(this.pid, data, { end }));
  }

  async #follow(): Promise<CommandResult> {
    const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
    const emit = { stdout: (text: string) => this.emitStdout(text), stderr: (text: string) => this.emitStderr(text) };
    let end: Pick<FollowEnd, "status" | "exitCode" | "durationMs"> = { status: "lost", exitCode: null, durationMs: 0 };
    try {
      for await (const event of this.#run.stream(({ execs }) => execs.follow(this.pid))) {
        if (event.type === "end") end = event.end;
        else if (event.type === "gap")
          emit[event.stream](`[${event.toOffset - event.fromOffset} bytes were dropped]\n`);
        else emit[event.stream](decoders[event.stream].decode(event.bytes, { stream: true }));
      }
    } catch (error) {
      if (!isSandlotError(error)) throw error;
      this.emitStderr(`${error.message}\n`);
    }
    const { stdout, stderr, stdoutDroppedBytes, stderrDroppedBytes } = this;
    const told = { execId: this.pid, signal: null, stdout, stderr, stdoutDroppedBytes, stderrDroppedBytes };
    const result = commandResult({ ...end, ...told });
    this.exitCode = result.exitCode;
    return result;
  }
}
