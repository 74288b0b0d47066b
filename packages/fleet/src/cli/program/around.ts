/** What the commands of the program share: what is around each of them, and how their options are read. */

import { type Command, InvalidArgumentError } from "commander";
import { parseDuration } from "../../world/units.ts";
import type { Terminal } from "../terminal.ts";

/** What a command that has an exit code of its own leaves behind. */
export interface Ending {
  exitCode: number;
}

/** What every command has around it. */
export interface Around {
  readonly terminal: Terminal;
  readonly signal: AbortSignal;
  readonly json: boolean;
  readonly ending: Ending;
}

/** A command that asks a gateway, or a fleet of its own. */
export function targeted(command: Command): Command {
  return command
    .option("--url <address>", "the gateway to ask; default $SANDLOT_URL or `sandlot login`; local: a fleet of its own")
    .option("-c, --config <file>", "the configuration file");
}

/** One way to say which thread, the same for every command. */
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
