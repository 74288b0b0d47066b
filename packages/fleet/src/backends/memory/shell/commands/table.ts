/**
 * Every command the shell has: those that the tests, the examples and the demonstration of this repository use.
 */

import { FILE_COMMANDS } from "./file-commands.ts";
import type { CommandTable } from "./invocation.ts";
import { SHELL_COMMANDS } from "./shell-commands.ts";
import { TEXT_COMMANDS } from "./text-commands.ts";

export const COMMANDS: CommandTable = { ...SHELL_COMMANDS, ...FILE_COMMANDS, ...TEXT_COMMANDS };

/** They change how the rest of a script runs, so a script that has one ends there. */
export const LEFT_OUT: ReadonlySet<string> = new Set([
  ...[
    ".",
    "alias",
    "eval",
    "exec",
    "getopts",
    "local",
    "readonly",
    "return",
    "set",
    "shift",
    "source",
    "unset",
    "wait",
  ],
]);
