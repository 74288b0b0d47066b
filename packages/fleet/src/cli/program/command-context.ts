/** What the commands of the program share: their context, and the parsing of their options. */

import { type Command, InvalidArgumentError } from "commander";
import { parseDuration } from "../../world/units.ts";
import type { Terminal } from "../terminal.ts";

/** The exit code of a command that sets its own. */
export interface CommandResult {
  exitCode: number;
}

/** The context of every command. */
export interface CommandContext {
  readonly terminal: Terminal;
  readonly signal: AbortSignal;
  readonly json: boolean;
  readonly ending: CommandResult;
}

/** A command that uses a gateway, or a private fleet. */
export function targeted(command: Command): Command {
  return command
    .option("--url <address>", "the gateway to ask; default $SANDLOT_URL or `sandlot login`; local: a fleet of its own")
    .option("-c, --config <file>", "the configuration file");
}

/** One way to name a thread, the same for every command. */
export function threaded(command: Command, what = "the conversation whose sandbox it is"): Command {
  return command.option("-t, --thread <id>", what).option("-u, --user <id>", "whose conversation");
}

export function examples(...lines: readonly string[]): string {
  return `\nExamples:\n${lines.map((line) => `  ${line}\n`).join("")}`;
}

export function wholeNumber(text: string): number {
  if (!/^\d+$/.test(text)) throw new InvalidArgumentError("It is not a whole number.");
  return Number(text);
}

/** Milliseconds; `500`, `500ms`, `5s`, `10m`, `1h`. */
export function duration(text: string): number {
  const ms = parseDuration(text);
  if (ms === null) throw new InvalidArgumentError("It is not a duration, such as 500ms, 5s, 10m or 1h.");
  return ms;
}

export function portNumber(text: string): number {
  const port = wholeNumber(text);
  if (port > 65_535) throw new InvalidArgumentError("It is not a port, 1 to 65535.");
  return port;
}
