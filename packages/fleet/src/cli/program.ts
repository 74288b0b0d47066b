/**
 * The command line as a value: what commands there are and what each one calls. Importing this runs nothing and
 * installs nothing; `main.ts` does both.
 *
 * What a command needs is imported when it runs, so that `--help` does not load a fleet.
 */

import { readFileSync } from "node:fs";
import { Command, InvalidArgumentError, Option } from "commander";
import { z } from "zod";
import type { FleetOptions } from "./embedded-fleet.ts";
import type { ExecCommandOptions } from "./exec-command.ts";
import type { RemoveCommandOptions } from "./fleet-commands.ts";
import type { ShellCommandOptions } from "./shell-command.ts";
import { EXIT_CODES, printFailure, type Terminal } from "./terminal.ts";

const EPILOGUE = `
Examples:
  sandlot exec --thread t1 -- 'echo hello > note.txt; ls -l'
  sandlot exec --thread t1 -- python3 -c 'print(6 * 7)'
  sandlot shell --thread t1           a terminal in the same sandbox
  sandlot ps                          what there is
  sandlot rm --thread t1              end it; the files stay for the next time
  sandlot doctor                      is this machine ready, and what does it lack?
  sandlot demo                        see in a few seconds what Sandlot does
  sandlot config schema > sandlot.schema.json
  sandlot config check sandlot.yaml   is this configuration right, and what does it come to?
  sandlot config check --json         the same for the defaults, for programs

Exit codes:
  ${EXIT_CODES.ok}    done
  ${EXIT_CODES.failed}    failed; the error names its code and what to do about it
  ${EXIT_CODES.usage}    the command line was wrong; nothing was tried
  128+n interrupted by signal n, after everything was closed
  exec: the command's own; 124 when it ran out of time, 125 when Sandlot failed, 130 after Ctrl-C

Environment:
  SANDLOT_HOME    where all state is kept
  SANDLOT_CONFIG  the configuration file, where none is named`;

/** Runs one command line (`argv` as Node has it) and resolves with its exit code. Never rejects. */
export async function run(argv: readonly string[], terminal: Terminal, signal: AbortSignal): Promise<number> {
  // Looked for before parsing, so that an error in parsing is printed in the right form too.
  const json = wantsJson(argv);
  const ending = { exitCode: EXIT_CODES.ok as number };
  try {
    await buildProgram(terminal, signal, json, ending).parseAsync(argv);
    return ending.exitCode;
  } catch (failure) {
    return printFailure(terminal, failure, json);
  }
}

/** What stands after `--` belongs to the command that is run. */
function wantsJson(argv: readonly string[]): boolean {
  const end = argv.indexOf("--");
  return argv.slice(0, end < 0 ? argv.length : end).includes("--json");
}

/** What a command that has an exit code of its own leaves behind. */
interface Ending {
  exitCode: number;
}

function buildProgram(terminal: Terminal, signal: AbortSignal, json: boolean, ending: Ending): Command {
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
    .showHelpAfterError(json ? false : "Run `sandlot --help` to see every command.")
    .addHelpText("after", EPILOGUE)
    .exitOverride();

  addSandboxCommands(program, terminal, signal, json, ending);

  program
    .command("demo")
    .description("show what Sandlot does, on the built-in memory backend; leaves nothing behind")
    .action(async () => {
      const { runDemo } = await import("./demo.ts");
      await runDemo(terminal, { json, signal });
    });

  const config = program.command("config").description("look at configuration");
  config
    .command("schema")
    .description("print every configuration key with its meaning and default, as JSON Schema")
    .action(async () => {
      const { printSchema } = await import("./config-commands.ts");
      printSchema(terminal);
    });
  config
    .command("check")
    .description("check a configuration and show what it comes to; without a file, $SANDLOT_CONFIG or the defaults")
    .argument("[file]", "a YAML or JSON file")
    .action(async (file: string | undefined) => {
      const { checkConfig } = await import("./config-commands.ts");
      await checkConfig(terminal, { file, json });
    });
  takeJsonEverywhere(program);
  return program;
}

/** `--json` may stand before or after the name of a command. */
function takeJsonEverywhere(command: Command): void {
  for (const below of command.commands) {
    below.addOption(new Option("--json", "print one JSON document, also for errors"));
    takeJsonEverywhere(below);
  }
}

function addSandboxCommands(
  program: Command,
  terminal: Terminal,
  signal: AbortSignal,
  json: boolean,
  ending: Ending,
): void {
  program
    .command("exec")
    .description(
      "run a command in a thread's sandbox: one word is a line for the shell, several are program and arguments",
    )
    .requiredOption("-t, --thread <id>", "the conversation whose sandbox it is")
    .option("-u, --user <id>", "whose conversation")
    .option("-b, --blueprint <name>", "what a new sandbox is made from")
    .option("-C, --cwd <path>", "where to run; default /mnt/user-data/workspace")
    .option("-e, --env <name=value>", "an environment variable; may be repeated", collectVariable)
    .option("--timeout <ms>", "end the command after this long", wholeNumber)
    .option("-c, --config <file>", "the configuration file")
    .argument("<command...>", "what to run; put -- before it")
    .passThroughOptions()
    .action(async (words: string[], options: Omit<ExecCommandOptions, "json">) => {
      const { execCommand } = await import("./exec-command.ts");
      ending.exitCode = await execCommand(terminal, words, { ...options, json }, signal);
    });
  program
    .command("shell")
    .description("a terminal in a thread's sandbox")
    .requiredOption("-t, --thread <id>", "the conversation whose sandbox it is")
    .option("-u, --user <id>", "whose conversation")
    .option("-c, --config <file>", "the configuration file")
    .action(async (options: ShellCommandOptions) => {
      const { shellCommand } = await import("./shell-command.ts");
      ending.exitCode = await shellCommand(terminal, options, signal);
    });
  program
    .command("ps")
    .description("list the sandboxes of the fleet")
    .option("-c, --config <file>", "the configuration file")
    .action(async (options: FleetOptions) => {
      const { listCommand } = await import("./fleet-commands.ts");
      await listCommand(terminal, { ...options, json });
    });
  program
    .command("rm")
    .description("end a thread's sandbox; its workspace is kept unless --purge")
    .requiredOption("-t, --thread <id>", "the conversation whose sandbox it is")
    .option("-u, --user <id>", "whose conversation")
    .option("-f, --force", "also when somebody uses it")
    .option("--purge", "remove its files too")
    .option("-c, --config <file>", "the configuration file")
    .action(async (options: Omit<RemoveCommandOptions, "json">) => {
      const { removeCommand } = await import("./fleet-commands.ts");
      await removeCommand(terminal, { ...options, json }, signal);
    });
  program
    .command("doctor")
    .description("what this machine has and lacks for sandboxes, and how to mend it")
    .option("-c, --config <file>", "the configuration file")
    .action(async (options: FleetOptions) => {
      const { doctorCommand } = await import("./doctor/doctor-command.ts");
      ending.exitCode = await doctorCommand(terminal, { ...options, json });
    });
}

function collectVariable(
  text: string,
  before: Readonly<Record<string, string>> = {},
): Readonly<Record<string, string>> {
  const at = text.indexOf("=");
  if (at < 1) throw new InvalidArgumentError("It is not of the form NAME=value.");
  return { ...before, [text.slice(0, at)]: text.slice(at + 1) };
}

function wholeNumber(text: string): number {
  if (!/^\d+$/.test(text)) throw new InvalidArgumentError("It is not a whole number.");
  return Number(text);
}

/** The package's own version; the path is the same from `src/cli` and from `dist/cli`. */
function packageVersion(): string {
  const manifest: unknown = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8"));
  return z.object({ version: z.string() }).parse(manifest).version;
}
