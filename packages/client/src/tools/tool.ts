/**
 * The contract of a tool: a name, a schema and a function over the narrow sandbox. Tools are defined once, here, and
 * each framework's adapter renders them.
 *
 * A tool returns text for a model, or throws: a `SandlotError`, or a `ToolRefusal` where the tool itself refuses. Only
 * `tool-box.ts` turns either into text.
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
  /** Its output has its own limit, and is never moved into a file. */
  readonly ownLimit: boolean;
  run(input: z.infer<Input>, context: ToolContext): Promise<ToolAnswer>;
}

export interface ToolContext {
  readonly run: SandboxRun;
  readonly shell: RunShell;
  readonly commands: BackgroundCommands;
  /** The base of relative paths. */
  readonly workingDirectory: string | undefined;
  readonly marks: ReadMarks;
  /** Variables of commands, including secrets. */
  readonly environment: Readonly<Record<string, string>>;
  readonly signal: AbortSignal | undefined;
  /** Known facts about the sandbox. */
  readonly about: SandboxAbout | undefined;
  /** For a command without its own limit. */
  readonly commandTimeoutMs: number;
  /** How long a call waits for its command; absent: until the end. */
  readonly replyWithinMs: number | undefined;
  /** How much `read_file` shows at a time, and how much `ls`. */
  readonly readMaxChars: number;
  readonly listMaxEntries: number;
  /** Whether there is anything to redact. */
  readonly hasSecrets: boolean;
  /** Receives a command's output while the call waits. */
  readonly onOutput: OutputListener | undefined;
  /** Redacts secrets from a text: needed before it is cut, since a part of one is not recognised. */
  redact(text: string): string;
  /** Redacts secrets from a text whose beginning was dropped, including the rest of one at the cut. */
  redactEnd(text: string): string;
  /** Redacts secrets from a text in pieces. */
  redacting(): RedactingStream;
}

export interface ToolImage {
  readonly mimeType: string;
  readonly bytes: Uint8Array;
}

export interface ToolAnswer {
  readonly text: string;
  readonly images?: readonly ToolImage[];
  /** For programs: the content of the text, in parts. */
  readonly facts?: Readonly<Record<string, unknown>>;
  /** Set when the tool did its work and the outcome is bad nevertheless. */
  readonly code?: string;
  /** `false`: the outcome is the result, and no error for the caller. Default `true` where there is a code. */
  readonly isFailure?: boolean;
}

/** The result of every call. */
export interface ToolOutput {
  readonly text: string;
  readonly images: readonly ToolImage[];
  readonly facts: Readonly<Record<string, unknown>>;
  readonly isError: boolean;
  /** The error's code: of a `SandlotError`, of a `ToolRefusal`, or of a failed command. */
  readonly code: string | null;
}

/** Why a tool itself refuses. */
export type RefusalCode =
  | "ambiguous_match"
  | "binary_file"
  | "command_blocked"
  | "content_too_large"
  | "file_too_large"
  | "invalid_arguments"
  | "no_checkpoints"
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
