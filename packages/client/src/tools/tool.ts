/**
 * What a tool is: a name, a schema and a function over the narrow sandbox. Tools are defined once, here, and
 * rendered into every framework by its adapter.
 *
 * A tool answers with text for a model, or throws: a `SandlotError`, or a `ToolRefusal` where the tool itself says no.
 * The edge (`tool-box.ts`) is the one place that turns either into words.
 */

import type { SandboxAbout } from "@sandlot/contract";
import type { z } from "zod";
import type { BackgroundCommands } from "./background-commands.ts";
import type { OutputListener } from "./live-output.ts";
import type { RedactingStream } from "./policy/redaction.ts";
import type { ReadMarks } from "./read-marks.ts";
import type { SandboxRun } from "./run.ts";
import type { RunShell } from "./shell.ts";

export interface SandboxTool<Input extends z.ZodObject = z.ZodObject> {
  readonly name: string;
  readonly title: string;
  /** For the model. */
  readonly description: string;
  readonly input: Input;
  /** It changes nothing inside the sandbox. */
  readonly readOnly: boolean;
  /** Its output has a limit of its own, and is never moved into a file. */
  readonly ownLimit: boolean;
  run(input: z.infer<Input>, context: ToolContext): Promise<ToolAnswer>;
}

export interface ToolContext {
  readonly run: SandboxRun;
  readonly shell: RunShell;
  readonly commands: BackgroundCommands;
  /** What relative paths are below. */
  readonly workingDirectory: string | undefined;
  readonly marks: ReadMarks;
  /** Variables of commands, secrets included. */
  readonly environment: Readonly<Record<string, string>>;
  readonly signal: AbortSignal | undefined;
  /** What is known of the sandbox. */
  readonly about: SandboxAbout | undefined;
  /** Of a command that names no limit of its own. */
  readonly commandTimeoutMs: number;
  /** How long a call waits for its command; without it until the end. */
  readonly replyWithinMs: number | undefined;
  /** How much `read_file` shows at a time, and how much `ls`. */
  readonly readMaxChars: number;
  readonly listMaxEntries: number;
  /** Whether there is anything to take out. */
  readonly hasSecrets: boolean;
  /** Gets what a command prints, while the call waits for it. */
  readonly onOutput: OutputListener | undefined;
  /** Takes secrets out of a text: needed before it is cut, since a part of one is not recognised. */
  redact(text: string): string;
  /** Takes secrets out of a text whose beginning was dropped, what is left of one at the cut included. */
  redactEnd(text: string): string;
  /** Takes secrets out of a text that comes in pieces. */
  redacting(): RedactingStream;
}

export interface ToolImage {
  readonly mimeType: string;
  readonly bytes: Uint8Array;
}

export interface ToolAnswer {
  readonly text: string;
  readonly images?: readonly ToolImage[];
  /** For programs: what the text says, in parts. */
  readonly facts?: Readonly<Record<string, unknown>>;
  /** Set when the tool did its work and the outcome is nevertheless bad. */
  readonly code?: string;
  /** `false`: the outcome is the answer, and no error to whoever called. Default `true` where there is a code. */
  readonly isFailure?: boolean;
}

/** What a caller gets, whatever happened. */
export interface ToolOutput {
  readonly text: string;
  readonly images: readonly ToolImage[];
  readonly facts: Readonly<Record<string, unknown>>;
  readonly isError: boolean;
  /** The error's code: of a `SandlotError`, of a `ToolRefusal`, or of a command that did not end well. */
  readonly code: string | null;
}

/** Why a tool itself says no. */
export type RefusalCode =
  | "ambiguous_match"
  | "binary_file"
  | "command_blocked"
  | "content_too_large"
  | "file_too_large"
  | "invalid_arguments"
  | "no_match"
  | "not_presentable"
  | "read_first"
  | "secrets_unavailable"
  | "shell_busy"
  | "unknown_command"
  | "unknown_tool";

export class ToolRefusal extends Error {
  override readonly name = "ToolRefusal";
  readonly code: RefusalCode;

  constructor(code: RefusalCode, message: string) {
    super(message);
    this.code = code;
  }
}

/** Keeps the type of the input schema; adds nothing. */
export function defineTool<Input extends z.ZodObject>(tool: SandboxTool<Input>): SandboxTool<Input> {
  return tool;
}
