/** `bash`: a command in the run's own shell. Its exit code, its timeout and what was left out are part of the answer. */

import { DEFAULT_CWD, SANDBOX_LIMITS } from "@sandlot/contract";
import { z } from "zod";
import { TOOL_LIMITS } from "./limits.ts";
import { missingOutput } from "./missing-output.ts";
import { descriptionInput } from "./paths.ts";
import type { ShellResult } from "./shell.ts";
import { defineTool, type ToolAnswer } from "./tool.ts";

export const bashTool = defineTool({
  name: "bash",
  title: "Run a command",
  description:
    `Runs a command in the sandbox's shell, beginning in ${DEFAULT_CWD}. The working directory stays as a command leaves it. ` +
    "Files for the user go to /mnt/user-data/outputs, files from the user are in /mnt/user-data/uploads. " +
    "The answer ends with the exit code. Start what should go on running with `&` and redirect its output to a file.",
  input: z.object({
    description: descriptionInput,
    command: z.string().describe("The command, as for a shell."),
    timeout_seconds: z
      .number()
      .positive()
      .max(TOOL_LIMITS.commandMaxSeconds)
      .optional()
      .describe(
        `The command and all it started are ended after this long. Default ${SANDBOX_LIMITS.execTimeoutMs / 1000}.`,
      ),
  }),
  readOnly: false,
  ownLimit: false,
  async run({ command, timeout_seconds }, { shell, environment, signal, redactEnd }): Promise<ToolAnswer> {
    const before = shell.cwd;
    const timeoutMs = timeout_seconds === undefined ? undefined : Math.ceil(timeout_seconds * 1000);
    const limits = { environment, signal, ...(timeoutMs === undefined ? {} : { timeoutMs }) };
    const whole = await shell.exec(command, limits);
    const missing = missingOutput(whole);
    const result = {
      ...whole,
      ...(missing.stdout > 0 ? { stdout: redactEnd(whole.stdout) } : {}),
      ...(missing.stderr > 0 ? { stderr: redactEnd(whole.stderr) } : {}),
    };
    const { status, exitCode, stdout, stderr, durationMs } = result;
    const code = status === "completed" ? (exitCode === 0 ? undefined : "command_failed") : `command_${status}`;
    return {
      text: [...outputOf(result), ...remarksOn(result, before)].join("\n"),
      facts: { status, exitCode, stdout, stderr, durationMs, cwd: result.cwd },
      ...(code === undefined ? {} : { code }),
    };
  },
});

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

function* remarksOn(result: ShellResult, cwdBefore: string): Generator<string> {
  if (result.fresh) yield "[this is a new shell: variables and functions of earlier commands are gone]";
  if (result.shellEnded) yield "[the shell has ended; the next command gets a new one]";
  if (result.cwd !== cwdBefore) yield `[working directory: ${result.cwd}]`;
  yield `[${endOf(result)}]`;
}

function endOf({ status, exitCode, signal, durationMs }: ShellResult): string {
  const seconds = (durationMs / 1000).toFixed(1);
  if (status === "timed_out") return `timed out after ${seconds} s: the command and all it started were ended`;
  if (status === "lost")
    return `lost after ${seconds} s: everything in the sandbox was ended, so it is not known how far it got`;
  if (status !== "completed")
    return `the command was ended${signal === null ? "" : ` by ${signal}`} after ${seconds} s`;
  return exitCode === null ? `ended by ${signal ?? "a signal"}` : `exit code: ${exitCode}`;
}

function trimEnd(text: string): string {
  return text.replace(/\n+$/, "");
}
