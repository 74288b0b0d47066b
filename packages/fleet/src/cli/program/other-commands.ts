/** The commands that need no fleet of the user: `demo`, `config` and `completion`. */

import { Argument, type Command } from "commander";
import { SHELLS, type Shell } from "../completion.ts";
import { type CommandContext, examples } from "./command-context.ts";

export function addOtherCommands(program: Command, { terminal, signal, json }: CommandContext): void {
  program
    .command("demo")
    .description("show what Sandlot does, on the built-in memory backend; leaves nothing behind")
    .addHelpText("after", examples("sandlot demo"))
    .action(async () => {
      const { runDemo } = await import("../demo.ts");
      await runDemo(terminal, { json, signal });
    });

  const config = program.command("config").description("look at configuration, or begin one");
  config
    .command("schema")
    .description("print every configuration key with its meaning and default, as JSON Schema")
    .addHelpText("after", examples("sandlot config schema > sandlot.schema.json"))
    .action(async () => {
      const { printSchema } = await import("../config-commands.ts");
      printSchema(terminal);
    });
  config
    .command("init")
    .description("write a configuration to begin with; an existing file is left alone")
    .argument("[file]", "where; default sandlot.yaml in $SANDLOT_HOME, where every command finds it")
    .addHelpText("after", examples("sandlot config init", "sandlot config init sandlot.yaml"))
    .action(async (file: string | undefined) => {
      const { initConfig } = await import("../config-commands.ts");
      await initConfig(terminal, { file, json });
    });
  config
    .command("check")
    .description("check a configuration and show what it comes to; without a file, $SANDLOT_CONFIG or the defaults")
    .argument("[file]", "a YAML or JSON file")
    .addHelpText("after", examples("sandlot config check sandlot.yaml", "sandlot config check --json"))
    .action(async (file: string | undefined) => {
      const { checkConfig } = await import("../config-commands.ts");
      await checkConfig(terminal, { file, json });
    });
  config
    .command("import")
    .description("make a configuration out of another product's, and list what has no counterpart")
    .addArgument(new Argument("<product>", "whose").choices(["deerflow"]))
    .argument("<file>", "its configuration file, such as config.yaml")
    .option("-o, --output <file>", "where to write it; an existing file is left alone")
    .addHelpText("after", examples("sandlot config import deerflow config.yaml -o sandlot.yaml"))
    .action(async (_product: string, file: string, options: { output?: string }) => {
      const { importCommand } = await import("../import-command.ts");
      await importCommand(terminal, file, { ...options, json });
    });
  program
    .command("completion")
    .description("print a script that completes sandlot's commands and options in a shell")
    .addArgument(new Argument("<shell>", "which").choices(SHELLS))
    .addHelpText(
      "after",
      examples(
        "source <(sandlot completion bash)",
        "sandlot completion zsh > ~/.zfunc/_sandlot     with fpath+=~/.zfunc before compinit",
        "sandlot completion fish > ~/.config/fish/completions/sandlot.fish",
      ),
    )
    .action(async (shell: Shell) => {
      const { completionScript } = await import("../completion.ts");
      terminal.out(completionScript(shell, program));
    });
}
