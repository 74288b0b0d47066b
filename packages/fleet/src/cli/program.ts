/**
 * The command line as a value: what commands there are and what each one calls. Importing this runs nothing and
 * installs nothing; `main.ts` does both.
 *
 * What a command needs is imported when it runs, so that `--help` does not load a fleet.
 */

import { readFileSync } from "node:fs";
import { Command } from "commander";
import { z } from "zod";
import { EXIT_CODES, printFailure, type Terminal } from "./terminal.ts";

const EPILOGUE = `
Examples:
  sandlot demo                        see in a few seconds what Sandlot does
  sandlot config schema > fleet.schema.json
  sandlot config check fleet.json     is this configuration right, and what does it come to?
  sandlot config check --json         the same for the defaults, for programs

Exit codes:
  ${EXIT_CODES.ok}    done
  ${EXIT_CODES.failed}    failed; the error names its code and what to do about it
  ${EXIT_CODES.usage}    the command line was wrong; nothing was tried
  128+n interrupted by signal n, after everything was closed

Environment:
  SANDLOT_HOME    where all state is kept
  SANDLOT_CONFIG  the configuration file, where none is named`;

/** Runs one command line (`argv` as Node has it) and resolves with its exit code. Never rejects. */
export async function run(argv: readonly string[], terminal: Terminal, signal: AbortSignal): Promise<number> {
  // Looked for before parsing, so that an error in parsing is printed in the right form too.
  const json = argv.includes("--json");
  try {
    await buildProgram(terminal, signal, json).parseAsync(argv);
    return EXIT_CODES.ok;
  } catch (failure) {
    return printFailure(terminal, failure, json);
  }
}

function buildProgram(terminal: Terminal, signal: AbortSignal, json: boolean): Command {
  const program = new Command("sandlot")
    .description("A sandbox of its own for every conversation of an AI agent.")
    .version(packageVersion(), "-V, --version", "print the version")
    .helpOption("-h, --help", "show this help")
    .option("--json", "print one JSON document, also for errors")
    .configureOutput({
      writeOut: (text) => terminal.out(text),
      writeErr: (text) => terminal.error(text),
      ...(json && { outputError: () => {} }),
    })
    .showHelpAfterError(json ? false : "Run `sandlot --help` to see every command.")
    .addHelpText("after", EPILOGUE)
    .exitOverride();

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
    .argument("[file]", "a JSON file")
    .action(async (file: string | undefined) => {
      const { checkConfig } = await import("./config-commands.ts");
      await checkConfig(terminal, { file, json });
    });
  return program;
}

/** The package's own version; the path is the same from `src/cli` and from `dist/cli`. */
function packageVersion(): string {
  const manifest: unknown = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8"));
  return z.object({ version: z.string() }).parse(manifest).version;
}
