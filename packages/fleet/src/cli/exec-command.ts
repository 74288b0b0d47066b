/**
 * `sandlot exec`: one command in a thread's sandbox, as if it ran here. Output is live, input is passed on, and the
 * exit code is the command's.
 */

import { constants } from "node:os";
import {
  type ExecResult,
  type FollowEnd,
  type RecoveredCheckpoint,
  type Recovery,
  SANDBOX_LIMITS,
  type Sandbox,
} from "@sandlot/contract";
import { showDuration } from "../world/units.ts";
import { Interruption } from "./interruption.ts";
import { withPullProgress } from "./progress.ts";
import { parseSeedSource } from "./seed-source.ts";
import { type TargetOptions, withTarget } from "./target.ts";
import { EXIT_CODES, ID_SHOWN, printable, printFailure, printJson, type Terminal } from "./terminal.ts";

export interface ExecCommandOptions extends TargetOptions {
  /** Absent: a temporary sandbox, removed with its files after the command. */
  readonly thread?: string;
  readonly user?: string;
  readonly blueprint?: string;
  readonly from?: string;
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly timeout?: number;
  readonly json: boolean;
}

/** Resolves with the exit code: the command's own, or one that says why there is none. */
export async function execCommand(
  terminal: Terminal,
  words: readonly string[],
  options: ExecCommandOptions,
  signal: AbortSignal,
): Promise<number> {
  const { thread, user, blueprint } = options;
  const label = thread === undefined ? "Waiting for a sandbox" : `Waiting for the sandbox of thread ${thread}`;
  try {
    return await withTarget(terminal, options, async (target) => {
      const from = options.from === undefined ? undefined : parseSeedSource(options.from);
      const acquire = () => target.acquire({ thread, user, blueprint, from }, "sandlot exec", signal);
      await using lease = await withPullProgress(terminal, target, label, acquire);
      if (!options.json) terminal.error(recoveryInWords(lease.recovery));
      return await (options.json ? runToResult : runLive)(terminal, lease.sandbox, words, options, signal);
    });
  } catch (failure) {
    if (failure instanceof Interruption || signal.aborted) return EXIT_CODES.interrupted;
    printFailure(terminal, failure, options.json);
    return EXIT_CODES.sandlotFailed;
  }
}

/** Empty where nothing was lost. */
function recoveryInWords({ kind, lost, checkpoint }: Recovery): string {
  if (kind === "same" || lost.length === 0) return "";
  const anew = `The sandbox was made anew; lost: ${lost.join(", ")}.\n`;
  return checkpoint === undefined ? anew : `${anew}${checkpointInWords(checkpoint)}\n`;
}

function checkpointInWords({ id, label, differs }: RecoveredCheckpoint): string {
  const name = `${id.slice(0, ID_SHOWN)}${label === null ? "" : ` (${printable(label)})`}`;
  if (differs === null) return `The newest checkpoint is ${name}.`;
  return differs ? `Files have changed since checkpoint ${name}.` : `The files are those of checkpoint ${name}.`;
}

/** One word is a shell command, several are a program and its arguments. */
function commandOf(words: readonly string[]): string | readonly string[] {
  const [only] = words;
  return words.length === 1 && only !== undefined ? only : words;
}

function execOptions({ cwd, env, timeout }: ExecCommandOptions) {
  return {
    ...(cwd !== undefined && { cwd }),
    ...(env !== undefined && { env }),
    ...(timeout !== undefined && { timeoutMs: timeout }),
  };
}

async function runToResult(
  terminal: Terminal,
  sandbox: Sandbox,
  words: readonly string[],
  options: ExecCommandOptions,
  signal: AbortSignal,
): Promise<number> {
  const stdin = terminal.stdin.isTTY ? undefined : await readAll(terminal.stdin);
  const outputMaxBytes = SANDBOX_LIMITS.execOutputMaxBytes;
  const given = { ...execOptions(options), ...(stdin !== undefined && { stdin }), outputMaxBytes, signal };
  const result = await sandbox.exec(commandOf(words), given);
  printJson(terminal, result);
  const isWhole = result.stdoutDroppedBytes + result.stderrDroppedBytes === 0 && result.omitted === undefined;
  return isWhole ? exitCodeOf(result) : exitCodeOf(result) || EXIT_CODES.sandlotFailed;
}

async function runLive(
  terminal: Terminal,
  sandbox: Sandbox,
  words: readonly string[],
  options: ExecCommandOptions,
  signal: AbortSignal,
): Promise<number> {
  const keepStdinOpen = !terminal.stdin.isTTY;
  const how = { ...execOptions(options), keepStdinOpen, output: "hold" as const };
  const { execId } = await sandbox.spawn(commandOf(words), how);
  // Ctrl-C ends the command with everything it started; its remaining output is shown.
  const onAbort = () => void sandbox.execs.kill(execId).catch(() => {});
  signal.addEventListener("abort", onAbort, { once: true });
  const input = keepStdinOpen ? passInput(terminal, sandbox, execId) : null;
  let lostBytes = 0;
  try {
    if (signal.aborted) onAbort();
    for await (const event of sandbox.execs.follow(execId)) {
      if (event.type === "output") {
        const isRead = await terminal.write(event.stream, event.bytes);
        if (!isRead && event.stream === "stdout") return await endUnread(sandbox, execId);
      } else if (event.type === "gap") {
        const count = event.toOffset - event.fromOffset;
        lostBytes += count;
        terminal.error(`[${count} bytes of ${event.stream} are lost here]\n`);
      } else if (signal.aborted) return EXIT_CODES.interrupted;
      else {
        if (event.end.status === "timed_out") sayTimedOut(terminal, options);
        return lostBytes > 0 ? withLoss(terminal, event.end, lostBytes) : exitCodeOf(event.end);
      }
    }
    return EXIT_CODES.sandlotFailed;
  } finally {
    signal.removeEventListener("abort", onAbort);
    input?.stop();
  }
}

/** The exit code alone could be the command's own. */
function sayTimedOut(terminal: Terminal, { timeout }: ExecCommandOptions): void {
  const after = timeout === undefined ? "" : ` after ${showDuration(timeout)}`;
  terminal.error(`The command ran out of time${after} and was ended; --timeout gives it more.\n`);
}

/** Incomplete output is a failure, even if the command succeeded. */
function withLoss(terminal: Terminal, end: ExecResult | FollowEnd, lostBytes: number): number {
  terminal.error(
    `Error: ${lostBytes} bytes of output were lost, because the connection to the sandbox was away for too long. Run it again.\n`,
  );
  return exitCodeOf(end) || EXIT_CODES.sandlotFailed;
}

/** As in a pipe: a command whose output has no reader ends. */
async function endUnread(sandbox: Sandbox, execId: string): Promise<number> {
  await sandbox.execs.kill(execId);
  return EXIT_CODES.outputGone;
}

/** Forwards stdin until it or the command ends. */
function passInput(terminal: Terminal, sandbox: Sandbox, execId: string): { stop(): void } {
  const { stdin } = terminal;
  const pass = async () => {
    for await (const chunk of stdin) await sandbox.execs.writeStdin(execId, chunk as Uint8Array);
    await sandbox.execs.writeStdin(execId, "", { end: true });
  };
  // A command that does not read its input, or has ended, is no failure.
  pass().catch(() => {});
  return { stop: () => stdin.destroy() };
}

function exitCodeOf({ status, exitCode, signal }: ExecResult | FollowEnd): number {
  if (status === "timed_out") return EXIT_CODES.timedOut;
  if (exitCode !== null) return exitCode;
  const number = signal === null ? undefined : constants.signals[signal as NodeJS.Signals];
  return number === undefined ? EXIT_CODES.sandlotFailed : 128 + number;
}

async function readAll(stream: NodeJS.ReadableStream): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  for await (const part of stream) parts.push(part as Uint8Array);
  return Buffer.concat(parts);
}
