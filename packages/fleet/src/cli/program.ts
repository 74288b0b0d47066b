/**
 * The command line as a value: what commands there are and what each one calls. Importing this runs nothing and
 * installs nothing; `main.ts` does both.
 *
 * What a command needs is imported when it runs, so that `--help` does not load a fleet.
 */

import { readFileSync } from "node:fs";
import { Argument, Command, InvalidArgumentError, Option } from "commander";
import { z } from "zod";
import type { BenchCommandOptions } from "./bench-command.ts";
import type { Shell } from "./completion.ts";
import type { ExecCommandOptions } from "./exec-command.ts";
import type { RemoveCommandOptions } from "./fleet-commands.ts";
import type { McpCommandOptions } from "./mcp-command.ts";
import type { ServeCommandOptions } from "./serve-command.ts";
import type { ShellCommandOptions } from "./shell-command.ts";
import type { TargetOptions } from "./target.ts";
import { EXIT_CODES, printFailure, type Terminal } from "./terminal.ts";

const EPILOGUE = `
Examples:
  sandlot exec --thread t1 -- 'echo hello > note.txt; ls -l'
  sandlot exec --thread t1 -- python3 -c 'print(6 * 7)'
  sandlot shell --thread t1           a terminal in the same sandbox
  sandlot ps                          what there is
  sandlot rm --thread t1              end it; the files stay for the next time
  sandlot cp report.pdf t1:uploads/   copy files in and out
  sandlot serve                       the same over HTTP, for several people
  sandlot doctor                      is this machine ready, and what does it lack?
  sandlot bench                       how fast is it here?
  sandlot demo                        see in a few seconds what Sandlot does
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
        141 when nobody reads its output any more

Environment:
  SANDLOT_HOME    where all state is kept
  SANDLOT_CONFIG  the configuration file, where none is named
  SANDLOT_URL     the gateway that commands ask; without it they use a fleet of their own
  SANDLOT_API_KEY the key for it; default the operator's key in SANDLOT_HOME
  SANDLOT_BACKEND, SANDLOT_HOST, SANDLOT_PORT, SANDLOT_BEHIND_PROXY, SANDLOT_TLS_CERT, SANDLOT_TLS_KEY,
  SANDLOT_ALLOWED_HOSTS, SANDLOT_ALLOWED_ORIGINS, SANDLOT_PREVIEW_PORT, SANDLOT_PREVIEW_DOMAIN
                  stand for keys of the file and win over it; flags win over both`;

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

  const around: Around = { terminal, signal, json, ending };
  addSandboxCommands(program, around);
  addFileCommands(program, around);
  addOperatorCommands(program, around);
  addServiceCommands(program, around);

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
  config
    .command("import")
    .description("make a configuration out of another product's, and list what has no counterpart")
    .argument("<product>", "deerflow")
    .argument("<file>", "its configuration file, such as config.yaml")
    .option("-o, --output <file>", "where to write it; an existing file is left alone")
    .action(async (product: string, file: string, options: { output?: string }) => {
      const { importCommand } = await import("./import-command.ts");
      await importCommand(terminal, product, file, { ...options, json });
    });
  program
    .command("completion")
    .description("print a script that completes sandlot's commands and options in a shell")
    .addArgument(new Argument("<shell>", "which").choices(["bash", "zsh", "fish"]))
    .action(async (shell: Shell) => {
      const { completionScript } = await import("./completion.ts");
      terminal.out(completionScript(shell, program));
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

/** What every command has around it. */
interface Around {
  readonly terminal: Terminal;
  readonly signal: AbortSignal;
  readonly json: boolean;
  readonly ending: Ending;
}

function addSandboxCommands(program: Command, { terminal, signal, json, ending }: Around): void {
  targeted(program.command("exec"))
    .description(
      "run a command in a thread's sandbox: one word is a line for the shell, several are program and arguments",
    )
    .requiredOption("-t, --thread <id>", "the conversation whose sandbox it is")
    .option("-u, --user <id>", "whose conversation")
    .option("-b, --blueprint <name>", "what a new sandbox is made from")
    .option("-C, --cwd <path>", "where to run; default /mnt/user-data/workspace")
    .option("-e, --env <name=value>", "an environment variable; may be repeated", collectVariable)
    .option("--timeout <ms>", "end the command after this long", wholeNumber)
    .argument("<command...>", "what to run; put -- before it")
    .passThroughOptions()
    .addHelpText(
      "after",
      examples(
        "sandlot exec -t t1 -- 'echo hello > note.txt; ls -l'",
        "sandlot exec -t t1 --timeout 5000 -- python3 -c 'print(6 * 7)'",
        "cat data.csv | sandlot exec -t t1 -- wc -l",
      ),
    )
    .action(async (words: string[], options: Omit<ExecCommandOptions, "json">) => {
      const { execCommand } = await import("./exec-command.ts");
      ending.exitCode = await execCommand(terminal, words, { ...options, json }, signal);
    });
  targeted(program.command("shell"))
    .description("a terminal in a thread's sandbox")
    .requiredOption("-t, --thread <id>", "the conversation whose sandbox it is")
    .option("-u, --user <id>", "whose conversation")
    .addHelpText("after", examples("sandlot shell -t t1", "sandlot shell -t t1 --url http://127.0.0.1:8750"))
    .action(async (options: ShellCommandOptions) => {
      const { shellCommand } = await import("./shell-command.ts");
      ending.exitCode = await shellCommand(terminal, options, signal);
    });
  targeted(program.command("rm"))
    .description("end a thread's sandbox; its workspace is kept unless --purge")
    .requiredOption("-t, --thread <id>", "the conversation whose sandbox it is")
    .option("-u, --user <id>", "whose conversation")
    .option("-f, --force", "also when somebody uses it")
    .option("--purge", "remove its files too")
    .addHelpText(
      "after",
      examples(
        "sandlot rm -t t1           the files stay for the next time",
        "sandlot rm -t t1 --purge   the files go too",
      ),
    )
    .action(async (options: Omit<RemoveCommandOptions, "json">) => {
      const { removeCommand } = await import("./fleet-commands.ts");
      await removeCommand(terminal, { ...options, json }, signal);
    });
}

function addFileCommands(program: Command, { terminal, signal, json }: Around): void {
  targeted(program.command("ls"))
    .description("list files of a thread: THREAD or THREAD:PATH")
    .option("-u, --user <id>", "whose conversation")
    .option("--depth <levels>", "how many levels deep", wholeNumber)
    .argument("<where>", "such as t1, or t1:outputs")
    .addHelpText("after", examples("sandlot ls t1", "sandlot ls t1:outputs --depth 3"))
    .action(async (where: string, options: TargetOptions & { user?: string; depth?: number }) => {
      const { filesCommand } = await import("./file-commands.ts");
      await filesCommand(terminal, where, { ...options, json }, signal);
    });
  targeted(program.command("cp"))
    .description("copy a file into or out of a thread's sandbox")
    .option("-u, --user <id>", "whose conversation")
    .argument("<from>", "a file, or THREAD:PATH")
    .argument("<to>", "a file or directory, or THREAD:PATH")
    .addHelpText("after", examples("sandlot cp report.pdf t1:uploads/", "sandlot cp t1:outputs/report.md ."))
    .action(async (from: string, to: string, options: TargetOptions & { user?: string }) => {
      const { copyCommand } = await import("./file-commands.ts");
      await copyCommand(terminal, from, to, { ...options, json }, signal);
    });
}

function addOperatorCommands(program: Command, { terminal, signal, json, ending }: Around): void {
  targeted(program.command("ps"))
    .description("list the sandboxes of the fleet")
    .addHelpText("after", examples("sandlot ps", "sandlot ps --json --url http://127.0.0.1:8750"))
    .action(async (options: TargetOptions) => {
      const { listCommand } = await import("./fleet-commands.ts");
      await listCommand(terminal, { ...options, json });
    });
  targeted(program.command("explain"))
    .description("why a sandbox is alive, who holds it, and what will end it")
    .argument("<sandbox>", "its id, or the beginning of it")
    .addHelpText("after", examples("sandlot explain 3f2a91    as `sandlot ps` shows it"))
    .action(async (sandbox: string, options: TargetOptions) => {
      const { explainCommand } = await import("./fleet-commands.ts");
      await explainCommand(terminal, sandbox, { ...options, json });
    });
  targeted(program.command("audit"))
    .description("compare the engine with the store; ends with 1 when they disagree")
    .addHelpText("after", examples("sandlot audit", "sandlot audit --json"))
    .action(async (options: TargetOptions) => {
      const { auditCommand } = await import("./fleet-commands.ts");
      ending.exitCode = (await auditCommand(terminal, { ...options, json })) ? EXIT_CODES.ok : EXIT_CODES.failed;
    });
  targeted(program.command("bench"))
    .description("how long the steps of an agent's turn take here, in a thread that it makes and removes")
    .option("-u, --user <id>", "whose thread that is")
    .option("-b, --blueprint <name>", "what its sandboxes are made from")
    .option("--rounds <count>", "how often each step is tried; default 50", wholeNumber)
    .addHelpText(
      "after",
      examples("sandlot bench", "sandlot bench --rounds 200 --json", "sandlot bench --url http://127.0.0.1:8750"),
    )
    .action(async (options: Omit<BenchCommandOptions, "json">) => {
      const { benchCommand } = await import("./bench-command.ts");
      await benchCommand(terminal, { ...options, json }, signal);
    });
  program
    .command("doctor")
    .description("what this machine has and lacks for sandboxes, and how to mend it")
    .option("-c, --config <file>", "the configuration file")
    .addHelpText("after", examples("sandlot doctor", "sandlot doctor -c sandlot.yaml --json"))
    .action(async (options: TargetOptions) => {
      const { doctorCommand } = await import("./doctor/doctor-command.ts");
      ending.exitCode = await doctorCommand(terminal, { ...options, json });
    });
}

function addServiceCommands(program: Command, { terminal, signal, json }: Around): void {
  program
    .command("serve")
    .description("serve the fleet over HTTP until interrupted; sandboxes stay for the next one")
    .option("--host <address>", "where to listen; loopback unless configured")
    .option("-p, --port <number>", "0 takes any free port", wholeNumber)
    .option("--behind-proxy", "a proxy in front terminates TLS; needed beyond loopback without TLS of our own")
    .option("--destroy", "at the end stop the sandboxes that nobody else holds")
    .option("--log-level <level>", "of the log on standard error: silent, error, warn, info, debug", "warn")
    .option("-c, --config <file>", "the configuration file")
    .addHelpText(
      "after",
      examples("sandlot serve", "sandlot serve --port 0 --json", "sandlot serve --host 0.0.0.0 --behind-proxy"),
    )
    .action(async (options: Omit<ServeCommandOptions, "json">) => {
      const { serveCommand } = await import("./serve-command.ts");
      await serveCommand(terminal, { ...options, json }, signal);
    });
  program
    .command("mcp")
    .description("serve a sandbox's tools to a coding agent over standard input and output")
    .option("-t, --thread <id>", "the conversation; default one of its own for each connection")
    .option("-u, --user <id>", "whose conversation")
    .option("--tools <names>", "only these, separated by commas", (text: string) => text.split(","))
    .option("--url <address>", "the gateway to ask; default $SANDLOT_URL, without one a fleet of its own")
    .option("-c, --config <file>", "the configuration file")
    .addHelpText("after", examples("sandlot mcp -t t1", "claude mcp add sandlot -- sandlot mcp"))
    .action(async (options: McpCommandOptions) => {
      const { mcpCommand } = await import("./mcp-command.ts");
      await mcpCommand(terminal, packageVersion(), options, signal);
    });
  addKeyCommands(program.command("keys").description("who may ask a gateway"), terminal, json);
}

function addKeyCommands(keys: Command, terminal: Terminal, json: boolean): void {
  keys
    .command("create")
    .description("make a key; it is shown this once")
    .requiredOption("--scope <scope>", "user (one user's threads), platform (acts for users), operator (everything)")
    .option("--user <id>", "whose threads a key of scope user reaches")
    .option("--label <text>", "what lists call it")
    .option("-c, --config <file>", "the configuration file")
    .addHelpText(
      "after",
      examples(
        "sandlot keys create --scope user --user alice --json",
        "sandlot keys create --scope platform --label 'our web site'",
      ),
    )
    .action(async (options: { scope: string; user?: string; label?: string; config?: string }) => {
      const { createKey } = await import("./key-commands.ts");
      await createKey(terminal, { ...options, json });
    });
  keys
    .command("list")
    .description("list keys, never their values")
    .option("-c, --config <file>", "the configuration file")
    .addHelpText("after", examples("sandlot keys list"))
    .action(async (options: { config?: string }) => {
      const { listKeys } = await import("./key-commands.ts");
      await listKeys(terminal, { ...options, json });
    });
  keys
    .command("revoke")
    .description("end a key")
    .argument("<id>", "as `keys list` shows it")
    .option("-c, --config <file>", "the configuration file")
    .addHelpText("after", examples("sandlot keys revoke 0368792c1285"))
    .action(async (id: string, options: { config?: string }) => {
      const { revokeKey } = await import("./key-commands.ts");
      await revokeKey(terminal, id, { ...options, json });
    });
}

/** A command that asks a gateway, or a fleet of its own. */
function targeted(command: Command): Command {
  return command
    .option("--url <address>", "the gateway to ask; default $SANDLOT_URL, without one a fleet of its own")
    .option("-c, --config <file>", "the configuration file");
}

function examples(...lines: readonly string[]): string {
  return `\nExamples:\n${lines.map((line) => `  ${line}\n`).join("")}`;
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
