/**
 * Every command the shell has. A name that is not here and not in the tree is `not found`, status 127.
 */

import { FILE_COMMANDS } from "./file-commands.ts";
import { GREP_COMMANDS } from "./grep-command.ts";
import type { CommandTable } from "./invocation.ts";
import { LIST_COMMANDS } from "./list-commands.ts";
import { OTHER_COMMANDS } from "./other-commands.ts";
import { PRINT_COMMANDS } from "./print-commands.ts";
import { SED_COMMANDS } from "./sed-command.ts";
import { SHELL_BUILTINS } from "./shell-builtins.ts";
import { TEXT_COMMANDS } from "./text-commands.ts";

export const COMMANDS: CommandTable = {
  ...SHELL_BUILTINS,
  ...FILE_COMMANDS,
  ...LIST_COMMANDS,
  ...TEXT_COMMANDS,
  ...GREP_COMMANDS,
  ...SED_COMMANDS,
  ...PRINT_COMMANDS,
  ...OTHER_COMMANDS,
};
