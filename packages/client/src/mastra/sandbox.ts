/**
 * A thread's sandbox as Mastra's `WorkspaceSandbox`. One object is one run: one lease, taken at the first use, released
 * by `stop`, `destroy` or disposal, or when its signal fires. `stop` can be followed by another use; `destroy` cannot.
 * Neither ends the sandbox itself, which the fleet keeps for the thread.
 */

import type {
  CommandResult,
  ExecuteCommandOptions,
  ProviderStatus,
  SandboxCloneOptions,
  SandboxFileInput,
  SandboxInfo,
  WorkspaceSandbox,
  WriteFilesOptions,
} from "@mastra/core/workspace";
import { SandboxAbortError, validateSandboxFileMode } from "@mastra/core/workspace";
import { SANDBOX_INSTRUCTIONS } from "../tools/instructions.ts";
import { noticeInWords } from "../tools/notice.ts";
import { absolutePath } from "../tools/paths.ts";
import { type RunOptions, SandboxRun } from "../tools/run.ts";
import type { SandboxSource } from "../tools/source.ts";
import { anySignal } from "../tools/waiting.ts";
import { now } from "../wire/clock.ts";
import { commandResult, execute } from "./commands.ts";
import { SandlotWorkspaceFilesystem } from "./filesystem.ts";
import { SandlotProcesses } from "./processes.ts";

type Environment = Record<string, string | undefined>;

export class SandlotWorkspaceSandbox implements WorkspaceSandbox, AsyncDisposable {
  readonly id: string;
  readonly name = "Sandlot";
  readonly provider = "sandlot";
  /** A thread's files are kept anyway; there is nothing to capture. */
  readonly supportsCheckpoints = false;
  /** The same files that commands see, in the same run. */
  readonly filesystem: SandlotWorkspaceFilesystem;
  readonly processes: SandlotProcesses;
  readonly #source: SandboxSource;
  readonly #options: RunOptions;
  readonly #run: SandboxRun;
  readonly #createdAt = now();
  #lastUsedAt: Date | null = null;
  #environment: Environment = {};

  constructor(source: SandboxSource, options: RunOptions) {
    this.#source = source;
    this.#options = options;
    this.#run = new SandboxRun(source, { purpose: "mastra", ...options });
    this.id = `sandlot-${options.thread}`;
    this.filesystem = new SandlotWorkspaceFilesystem(this.#run, this.id);
    this.processes = new SandlotProcesses(this.#run, () => this.#environment);
  }

  get status(): ProviderStatus {
    if (this.#run.isEnded()) return "destroyed";
    return this.#run.isLeased() ? "running" : "ready";
  }

  /** Nothing is acquired before it is needed. */
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

  getInfo(): SandboxInfo {
    const { id, name, provider, status } = this;
    const { generation } = this.#run;
    const { thread, user = null } = this.#options;
    const used = this.#lastUsedAt === null ? {} : { lastUsedAt: this.#lastUsedAt };
    return { id, name, provider, status, createdAt: this.#createdAt, ...used, metadata: { thread, user, generation } };
  }

  getInstructions(): string {
    return SANDBOX_INSTRUCTIONS;
  }

  /** Nothing to do: Mastra's way to declare snapshots unsupported. */
  async snapshot(): Promise<void> {}

  /** A sandbox of another thread, named by `sandboxId` or `id`, with the same settings. */
  clone({ id, sandboxId, env }: SandboxCloneOptions = {}): SandlotWorkspaceSandbox {
    const thread = (sandboxId ?? id ?? crypto.randomUUID()).replace(/^sandlot-/, "");
    const clone = new SandlotWorkspaceSandbox(this.#source, { ...this.#options, thread });
    clone.setEnv(() => ({ ...this.#environment, ...env }));
    return clone;
  }

  /** Variables of all further commands and processes. */
  setEnv(update: (environment: Environment) => Environment): void {
    this.#environment = { ...update({ ...this.#environment }) };
  }

  async writeFiles(files: SandboxFileInput[], { abortSignal }: WriteFilesOptions = {}): Promise<void> {
    for (const { mode } of files) if (mode !== undefined) validateSandboxFileMode(mode);
    const signal = anySignal(abortSignal, this.#run.ending);
    for (const { path, content, mode } of files) {
      if (abortSignal?.aborted) throw new SandboxAbortError("writeFiles", abortSignal.reason);
      const options = mode === undefined ? {} : { mode };
      await this.#run.use((sandbox) => sandbox.files.write(absolutePath(path), content, options), { signal });
    }
  }

  async executeCommand(
    command: string,
    args: string[] = [],
    options: ExecuteCommandOptions = {},
  ): Promise<CommandResult> {
    const line = args.length === 0 ? command : [command, ...args];
    const signal = anySignal(options.abortSignal, this.#run.ending);
    const settings = { ...options, env: { ...this.#environment, ...options.env } };
    this.#lastUsedAt = now();
    const result = await this.#run.use((sandbox) => execute(sandbox, line, settings, signal), { signal });
    const notice = noticeInWords(this.#run.takeNotice());
    const told = commandResult(result, options.maxRetainedBytes);
    return { ...told, stderr: notice + told.stderr, command, args };
  }
}
