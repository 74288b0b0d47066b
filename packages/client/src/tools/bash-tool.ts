/**
 * `bash`: a command in the run's own shell. Exit code, timeout and omitted output are part of the result.
 * `bash_output`: the result of a command that took longer than the caller waits. It exists only where there is such a
 * limit. While a command runs, it returns the output since the last call.
 */

import { DEFAULT_CWD, isSandlotError, SANDBOX_LIMITS, type SandboxAbout } from "@sandlot/contract";
import { z } from "zod";
import type { CommandOutcome } from "./background-commands.ts";
import { abilities, FAILED_LOOKUP, lookupRemark } from "./instructions.ts";
import { TOOL_LIMITS } from "./limits.ts";
import { LiveOutput } from "./live-output.ts";
import { missingOutput } from "./missing-output.ts";
import { descriptionInput } from "./paths.ts";
import type { ShellResult } from "./shell.ts";
import { defineTool, type ToolAnswer, type ToolContext, ToolRefusal } from "./tool.ts";
import { anySignal } from "./waiting.ts";

/** The tool's description; its abilities depend on the sandbox (`abilities`). */
function describe(outputBudgetChars: number, about?: SandboxAbout, replyWithinMs?: number): string {
  return (
    `Runs a command in the sandbox's shell, beginning in ${DEFAULT_CWD}. The working directory, variables and functions stay as a ` +
    "command leaves them. Files for the user go to /mnt/user-data/outputs, files from the user are in /mnt/user-data/uploads. " +
    `The answer ends with the exit code. Of output over ${outputBudgetChars} characters the beginning and the end are shown, and all ` +
    "of it is in a file that the answer names. Start what should go on running with `&` and redirect its output to a file. " +
    (replyWithinMs === undefined
      ? ""
      : `A command that takes over ${replyWithinMs / 1000} s goes on in the background; the answer shows its output so far and names the call that reads on. `) +
    abilities(about)
  );
}

function inputFor(timeoutMs: number) {
  return z.object({
    description: descriptionInput,
    command: z.string().describe("The command, as for a shell."),
    timeout_seconds: z
      .number()
      .positive()
      .max(TOOL_LIMITS.commandMaxSeconds)
      .optional()
      .describe(`The command and all it started are ended after this long. Default ${timeoutMs / 1000}.`),
  });
}

/** The tool for a sandbox with known facts, or with another time limit. */
export function bashToolFor(options: {
  readonly about?: SandboxAbout | undefined;
  readonly timeoutMs: number;
  readonly outputBudgetChars: number;
  readonly replyWithinMs: number | undefined;
}): typeof bashTool {
  const description = describe(options.outputBudgetChars, options.about, options.replyWithinMs);
  return { ...bashTool, description, input: inputFor(options.timeoutMs) };
}

export const bashTool = defineTool({
  name: "bash",
  title: "Run a command",
  description: describe(TOOL_LIMITS.outputBudgetChars),
  input: inputFor(SANDBOX_LIMITS.execTimeoutMs),
  readOnly: false,
  ownLimit: false,
  async run({ command, timeout_seconds }, context): Promise<ToolAnswer> {
    const { shell, commands, environment, signal, commandTimeoutMs, replyWithinMs, onOutput } = context;
    const busy = commands.running();
    if (busy !== undefined)
      throw new ToolRefusal(
        "shell_busy",
        `The shell still runs ${busy.id}. Wait for it with bash_output, or stop it there; the file tools work meanwhile.`,
      );
    const timeoutMs = timeout_seconds === undefined ? commandTimeoutMs : Math.ceil(timeout_seconds * 1000);
    const live = liveOutputFor(context);
    const listening = live?.listen(onOutput);
    try {
      const outcome = await commands.run({
        ...{ cwdBefore: shell.cwd, signal: anySignal(signal, listening?.failed), replyWithinMs, live },
        start: (stopSignal) => shell.exec(command, { environment, signal: stopSignal, timeoutMs, live }),
      });
      return await answerTo(outcome, context);
    } finally {
      listening?.stop();
    }
  },
});

/** For output before the end: for a listener, or for a call that does not wait for the end. */
function liveOutputFor({ onOutput, replyWithinMs, redacting }: ToolContext): LiveOutput | undefined {
  if (onOutput === undefined && replyWithinMs === undefined) return undefined;
  return new LiveOutput({ maxChars: TOOL_LIMITS.runningOutputChars, redacting });
}

/** How long `bash_output` waits where the run has no limit. */
const OUTPUT_WAIT_MS = 50_000;

export const bashOutputTool = defineTool({
  name: "bash_output",
  title: "Wait for a command",
  description:
    "Waits for a command of bash that went on in the background. While it runs, the answer shows what it has printed since the " +
    "last one; call it again. When it has ended, the answer shows all of its output, once.",
  input: z.object({
    description: descriptionInput,
    command_id: z.string().describe("As the answer of bash named it."),
    stop: z
      .boolean()
      .optional()
      .describe("Shows what it has printed since the last answer, and ends it and all it started. Default false."),
  }),
  readOnly: false,
  ownLimit: false,
  async run({ command_id: id, stop }, context): Promise<ToolAnswer> {
    const { commands, signal, replyWithinMs = OUTPUT_WAIT_MS, onOutput } = context;
    if (stop === true) {
      const output = await printedSince(commands.liveOf(id));
      if (await commands.stop(id, signal))
        return {
          text: above(output, `[${id} and all it started were ended; the next command gets a new shell]`),
          facts: { status: "killed", output },
        };
    }
    const listening = commands.liveOf(id)?.listen(onOutput);
    try {
      const outcome = await commands.wait(id, replyWithinMs, anySignal(signal, listening?.failed));
      if (outcome !== null) return await answerTo(outcome, context);
    } finally {
      listening?.stop();
    }
    throw new ToolRefusal(
      "unknown_command",
      `There is no command ${id} in the background, or its output was shown before.`,
    );
  },
});

async function answerTo(outcome: CommandOutcome, { redactEnd, about }: ToolContext): Promise<ToolAnswer> {
  if (outcome.type === "running") {
    const { id, forMs, live } = outcome;
    const output = await printedSince(live);
    return {
      text:
        above(
          output,
          `[still running after ${(forMs / 1000).toFixed(1)} s. It goes on in the background as ${id}: bash_output with `,
        ) +
        `command_id="${id}" waits for its end and shows its output, and with stop=true ends it. Until then bash runs nothing else]`,
      facts: { status: "running", commandId: id, durationMs: forMs, output },
    };
  }
  const { result: whole, cwdBefore } = outcome;
  const missing = missingOutput(whole);
  const result = {
    ...whole,
    ...(missing.stdout > 0 ? { stdout: redactEnd(whole.stdout) } : {}),
    ...(missing.stderr > 0 ? { stderr: redactEnd(whole.stderr) } : {}),
  };
  const { status, exitCode, stdout, stderr, durationMs } = result;
  const code = status === "completed" ? (exitCode === 0 ? undefined : "command_failed") : `command_${status}`;
  return {
    text: [...outputOf(result), ...remarksOn(result, cwdBefore, about)].join("\n"),
    facts: { status, exitCode, stdout, stderr, durationMs, cwd: result.cwd },
    // Many programs use their exit code as a result, as grep does; that is no failure of the tool.
    ...(code === undefined ? {} : { code, isFailure: code !== "command_failed" }),
  };
}

/** An unreadable output does not affect the command; its end shows the result. */
async function printedSince(live: LiveOutput | undefined): Promise<string> {
  try {
    await live?.refresh();
  } catch (error) {
    if (!isSandlotError(error)) throw error;
    return above(live?.take() ?? "", `[its output could not be read now (${error.code})]`);
  }
  return live?.take() ?? "";
}

function above(output: string, remark: string): string {
  return output === "" ? remark : `${output}\n${remark}`;
}

/** The shell's message for a missing program. */
export const NO_SUDO = /\b(?:sudo|su|doas): (?:command )?not found/;
/** A program's last lines say why it gave up. */
const TAIL_CHARS = 4_096;

function* outputOf(result: ShellResult): Generator<string> {
  const { stdout, stderr } = result;
  const missing = missingOutput(result);
  const instead = "to see them, run it again with its output redirected to a file";
  if (missing.stdout > 0) yield `[the first ${missing.stdout} bytes of output were dropped; ${instead}]`;
  if (stdout !== "") yield trimEnd(stdout);
  if (stderr !== "") yield "[stderr]";
  if (missing.stderr > 0) yield `[its first ${missing.stderr} bytes were dropped; ${instead}]`;
  if (stderr !== "") yield trimEnd(stderr);
  if (stdout === "" && stderr === "") yield "(no output)";
}

function* remarksOn(result: ShellResult, cwdBefore: string, about?: SandboxAbout): Generator<string> {
  if (result.exitCode !== 0 && FAILED_LOOKUP.test(result.stderr + result.stdout.slice(-TAIL_CHARS)))
    yield lookupRemark(about);
  if (NO_SUDO.test(result.stderr)) yield "[there is no root and no sudo in this sandbox]";
  if (result.fresh) yield "[this is a new shell: variables and functions of earlier commands are gone]";
  if (result.shellEnded) yield "[the shell has ended; the next command gets a new one]";
  if (result.cwd !== cwdBefore) yield `[working directory: ${result.cwd}]`;
  yield `[${endOf(result)}]`;
}

function endOf({ status, exitCode, signal, durationMs }: ShellResult): string {
  const seconds = (durationMs / 1000).toFixed(1);
  if (status === "timed_out")
    return (
      `timed out after ${seconds} s: the command and all it started were ended. What takes longer runs in the background: ` +
      "`command > log 2>&1 &`, and a later call reads the log"
    );
  if (status === "lost")
    return `lost after ${seconds} s: everything in the sandbox was ended, so it is not known how far it got`;
  if (status !== "completed")
    return `the command was ended${signal === null ? "" : ` by ${signal}`} after ${seconds} s`;
  return exitCode === null ? `ended by ${signal ?? "a signal"}` : `exit code: ${exitCode}`;
}

function trimEnd(text: string): string {
  return text.replace(/\n+$/, "");
}
