/**
 * The command line as a value: what applies to every command, and the text of `--help`. The commands themselves are in
 * `program/`. Importing this runs nothing and installs nothing; `main.ts` does both.
 *
 * A command's modules are imported when it runs, so that `--help` does not load a fleet.
 */

import { Command, Option } from "commander";
import { packageVersion } from "../package-files.ts";
import { addCheckpointCommands } from "./program/checkpoint-commands.ts";
import type { CommandContext, CommandResult } from "./program/command-context.ts";
import { addOperatorCommands } from "./program/operator-commands.ts";
import { addOtherCommands } from "./program/other-commands.ts";
import { addFileCommands, addInsideCommands, addSandboxCommands } from "./program/sandbox-commands.ts";
import { addServiceCommands } from "./program/service-commands.ts";
import { addStoreCommands } from "./program/store-commands.ts";
import { EXIT_CODES, printFailure, type Terminal, withoutControl } from "./terminal.ts";

const EPILOGUE = `
Examples:
  sandlot exec --thread t1 -- 'echo hello > note.txt; ls -l'
  sandlot exec --thread t1 -- python3 -c 'print(6 * 7)'
  sandlot shell --thread t1           a terminal in the same sandbox
  sandlot ps                          what there is
  sandlot exec -- uname -a            in a sandbox of its own, gone afterwards
  sandlot rm --thread t1              end it; the files stay for the next time
  sandlot explain --thread t1         why it is alive, or why it ended
  sandlot undo --thread t1            take back what the last turn did to its files
  sandlot cp report.pdf t1:uploads/   copy files in and out
  sandlot serve                       the same over HTTP, for several people
  sandlot doctor                      is this machine ready, and what does it lack?
  sandlot bench                       how fast is it here?
  sandlot demo                        see in a few seconds what Sandlot does
  sandlot config init                 write a configuration to begin with
  sandlot config schema > sandlot.schema.json
  sandlot config check sandlot.yaml   is this configuration right, and what does it come to?
  sandlot config check --json         the same for the defaults, for programs
  sandlot config import deerflow config.yaml -o sandlot.yaml
  source <(sandlot completion bash)   complete commands and options with Tab

Exit codes:
  ${EXIT_CODES.ok}    done
  ${EXIT_CODES.failed}    failed; the error names its code and what to do about it
  ${EXIT_CODES.usage}    the command line was wrong; nothing was tried
  128+n interrupted by signal n, after everything was closed
  exec: the command's own; 124 when it ran out of time, 125 when Sandlot failed, 130 after Ctrl-C,
        141 when its output has no reader any more

Environment:
  SANDLOT_HOME    where all state is kept
  SANDLOT_CONFIG  the configuration file, where none is named
  SANDLOT_URL     the gateway that commands ask (or sandlot login); without it, or with local, a fleet of their own
  SANDLOT_API_KEY the key for it; default the one of sandlot login; for a gateway of SANDLOT_HOME its operator's key
  SANDLOT_BACKEND, SANDLOT_HOST, SANDLOT_PORT, SANDLOT_BEHIND_PROXY, SANDLOT_ADVERTISE, SANDLOT_TLS_CERT, SANDLOT_TLS_KEY,
  SANDLOT_ALLOWED_HOSTS, SANDLOT_ALLOWED_ORIGINS, SANDLOT_PREVIEW_PORT, SANDLOT_PREVIEW_DOMAIN
                  stand for keys of the file and win over it; flags win over both`;

/** Runs one command line (`argv` as in Node) and resolves with its exit code. Never rejects. */
export async function run(argv: readonly string[], unsafe: Terminal, signal: AbortSignal): Promise<number> {
  const terminal = withoutControl(unsafe);
  // Detected before parsing, so that a parsing error is printed in the right form too.
  const json = wantsJson(argv);
  const ending = { exitCode: EXIT_CODES.ok as number };
  try {
    await buildProgram(terminal, signal, json, ending).parseAsync(argv);
    return ending.exitCode;
  } catch (failure) {
    return printFailure(terminal, failure, json);
  }
}

/** Arguments after `--` belong to the executed command. */
function wantsJson(argv: readonly string[]): boolean {
  const end = argv.indexOf("--");
  return argv.slice(0, end < 0 ? argv.length : end).includes("--json");
}

function buildProgram(terminal: Terminal, signal: AbortSignal, json: boolean, ending: CommandResult): Command {
  const program = new Command("sandlot")
    .description("A sandbox of its own for every conversation of an AI agent.")
    .version(packageVersion(), "-V, --version", "print the version")
    .helpOption("-h, --help", "show this help")
    .option("--json", "print one JSON document, also for errors")
    .enablePositionalOptions()
    .configureOutput({
      writeOut: (text) => terminal.out(text),
      writeErr: (text) => terminal.error(text),
      ...(json && { outputError: () => {} }),
    })
    .addHelpText("after", EPILOGUE)
    .exitOverride();

  const around: CommandContext = { terminal, signal, json, ending };
  addSandboxCommands(program, around);
  addFileCommands(program, around);
  addCheckpointCommands(program, around);
  addInsideCommands(program, around);
  addOperatorCommands(program, around);
  addServiceCommands(program, around);
  addStoreCommands(program, around);
  addOtherCommands(program, around);
  takeJsonEverywhere(program);
  if (!json) pointToHelp(program, "sandlot");
  return program;
}

/** `--json` may be before or after the name of a command. */
function takeJsonEverywhere(command: Command): void {
  for (const below of command.commands) {
    below.addOption(new Option("--json", "print one JSON document, also for errors"));
    takeJsonEverywhere(below);
  }
}

/** A command's error refers to the help of that command. */
function pointToHelp(command: Command, name: string): void {
  command.showHelpAfterError(
    `Run \`${name} --help\` to see ${command.commands.length > 0 ? "every command" : "its options"}.`,
  );
  for (const below of command.commands) pointToHelp(below, `${name} ${below.name()}`);
}
