/** What the commands of the program share: what is around each of them, and how their options are read. */

import { type Command, InvalidArgumentError } from "commander";
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
    .option("--url <address>", "the gateway to ask; default $SANDLOT_URL, without one a fleet of its own")
    .option("-c, --config <file>", "the configuration file");
}

export function examples(...lines: readonly string[]): string {
  return `\nExamples:\n${lines.map((line) => `  ${line}\n`).join("")}`;
}

export function wholeNumber(text: string): number {
  if (!/^\d+$/.test(text)) throw new InvalidArgumentError("It is not a whole number.");
  return Number(text);
}
