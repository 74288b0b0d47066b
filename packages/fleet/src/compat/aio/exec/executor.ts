/**
 * Starts commands: a caller's request becomes a script in a session.
 *
 * Invariants
 * - A session is reused only when its command is known to have ended.
 * - An abort ends the command inside, and the caller's promise rejects at once.
 */

import {
  DEFAULT_CWD,
  type ExecOptions,
  type ExecResult,
  SANDBOX_LIMITS,
  type SpawnedExec,
  type SpawnOptions,
} from "@sandlot/contract";
import type { AioCalls } from "../calls.ts";
import { checkCommand, checkDuration, checkEnvironment, checkPath, invalid } from "../checks.ts";
import type { Staging } from "../files/staging.ts";
import { anythingSchema } from "../wire/schemas.ts";
import { startCommand } from "./command.ts";
import { inputOf, sessionOf } from "./execs.ts";
import type { ExecMemory, Remembered } from "./memory.ts";
import { runCommand } from "./run.ts";
import { type Script, scriptOf } from "./script.ts";
import type { BashSessions } from "./sessions.ts";

type Command = string | readonly string[];

/** AIO's server does not keep the output of a command that was waited for. */
const OMITTED_REMEDY = "Run it again with its output redirected to a file, or with a larger outputMaxBytes.";

export interface ExecutorParts {
  readonly calls: AioCalls;
  readonly sessions: BashSessions;
  readonly memory: ExecMemory;
  readonly staging: Staging;
  /** For every command. */
  readonly environment: Readonly<Record<string, string>>;
}

export class Executor {
  readonly #calls: AioCalls;
  readonly #sessions: BashSessions;
  readonly #memory: ExecMemory;
  readonly #staging: Staging;
  readonly #environment: Readonly<Record<string, string>>;

  constructor({ calls, sessions, memory, staging, environment }: ExecutorParts) {
    this.#calls = calls;
    this.#sessions = sessions;
    this.#memory = memory;
    this.#staging = staging;
    this.#environment = environment;
  }

  async exec(command: Command, options: ExecOptions = {}): Promise<ExecResult> {
    options.signal?.throwIfAborted();
    check(command, options, SANDBOX_LIMITS.execTimeoutMs);
    const execId = options.execId ?? this.#calls.world.randomHex(12);
    return this.#memory.once(execId, command, () => this.#run(execId, command, options));
  }

  async spawn(command: Command, options: SpawnOptions = {}): Promise<SpawnedExec> {
    options.signal?.throwIfAborted();
    check(command, options, 0);
    const execId = options.execId ?? this.#calls.world.randomHex(12);
    await this.#memory.once(execId, command, () => this.#start(execId, command, options));
    return { execId, pid: null };
  }

  async #run(execId: string, command: Command, options: ExecOptions): Promise<ExecResult> {
    const { env = {}, timeoutMs = SANDBOX_LIMITS.execTimeoutMs, signal } = options;
    const startedAt = this.#calls.world.monotonicMs();
    const script = await this.#script(command, options);
    const sessionId = await this.#sessions.take();
    const onAbort = () => void this.#abandon(sessionId);
    signal?.addEventListener("abort", onAbort, { once: true });
    try {
      signal?.throwIfAborted();
      const start = { sessionId, text: script.text, env: { ...this.#environment, ...env }, timeoutMs };
      const { outcome, stdout, stderr } = await runCommand(this.#calls, start, { signal });
      this.#sessions.giveBack(sessionId);
      const { outputMaxBytes = SANDBOX_LIMITS.execResultMaxBytes } = options;
      const [out, err] = [stdout.tail(outputMaxBytes), stderr.tail(outputMaxBytes)];
      const omitted = { stdoutBytes: out.omittedBytes, stderrBytes: err.omittedBytes, remedy: OMITTED_REMEDY };
      script.check(err.text);
      return {
        execId,
        ...outcome,
        ...{ stdout: out.text, stderr: err.text },
        ...{ stdoutDroppedBytes: out.droppedBytes, stderrDroppedBytes: err.droppedBytes },
        durationMs: this.#calls.world.monotonicMs() - startedAt,
        ...(out.omittedBytes + err.omittedBytes > 0 ? { omitted } : {}),
      };
    } finally {
      signal?.removeEventListener("abort", onAbort);
    }
  }

  async #start(execId: string, command: Command, options: SpawnOptions): Promise<Remembered> {
    const { env = {}, timeoutMs = 0, signal, stdin, keepStdinOpen = false } = options;
    const script = await this.#script(command, options, keepStdinOpen);
    const sessionId = await this.#sessions.open(sessionOf(execId));
    const all = { ...this.#environment, ...env };
    const start = { sessionId, text: script.text, env: all, timeoutMs, background: true };
    const first = await startCommand(this.#calls, start, { signal });
    const remembered: Remembered = {
      ...{ execId, command, sessionId, keepsStdinOpen: keepStdinOpen, startedAt: this.#calls.world.wallMs() },
      ...{ commandId: first.commandId, outcome: null, stdoutBytes: 0, stderrBytes: 0 },
    };
    for (const forgotten of this.#memory.note(remembered)) void this.#sessions.close(forgotten.sessionId);
    if (keepStdinOpen && stdin !== undefined) {
      const fields = { session_id: sessionId, command_id: first.commandId, input: inputOf(stdin) };
      await this.#calls.post(anythingSchema, "/v1/bash/write", fields);
    }
    return remembered;
  }

  async #script(command: Command, { cwd, stdin }: ExecOptions, keepStdinOpen = false): Promise<Script> {
    const staged = stdin === undefined || keepStdinOpen ? null : await this.#staging.stage(stdin);
    return scriptOf(command, {
      cwd: cwd === undefined ? DEFAULT_CWD : checkPath(cwd),
      stdin: keepStdinOpen ? "open" : staged === null ? "none" : { path: staged },
      nonce: `sandlot-${this.#calls.world.randomHex(8)}:`,
    });
  }

  /** The caller already has its error; a command that could not be ended shows in the list. */
  async #abandon(sessionId: string): Promise<void> {
    await this.#sessions.signal(sessionId, "SIGKILL").catch(() => {});
    await this.#sessions.close(sessionId);
  }
}

function check(command: Command, options: SpawnOptions, timeoutMs: number): void {
  checkCommand(command);
  checkEnvironment(options.env ?? {});
  checkDuration(options.timeoutMs ?? timeoutMs);
  if (options.cwd !== undefined) checkPath(options.cwd);
  // Checked before anything is started.
  if (options.keepStdinOpen === true && options.stdin !== undefined) inputOf(options.stdin);
  if (options.execId === "") throw invalid("execId", "it is empty");
}
