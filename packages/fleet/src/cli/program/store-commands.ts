/** The commands about the store itself: `store status`, `export`, `import` and `resume`. */

import type { Command } from "commander";
import type { ExportCommandOptions } from "../store/export-command.ts";
import type { ImportCommandOptions } from "../store/import-command.ts";
import { type CommandContext, examples } from "./command-context.ts";

export function addStoreCommands(program: Command, { terminal, signal, json }: CommandContext): void {
  const store = program.command("store").description("look at the store of a fleet, or move the fleet to another one");
  configured(store.command("status"))
    .description("where it is, what is in it, who uses it and how fast it answers")
    .addHelpText("after", examples("sandlot store status", "sandlot store status --json"))
    .action(async (options: { config?: string }) => {
      const { statusCommand } = await import("../store/status-command.ts");
      await statusCommand(terminal, { ...options, json });
    });
  configured(store.command("export"))
    .description("write everything in it to a file, and close it to instances; the file has secrets")
    .argument("[file]", "a new file; default standard output")
    .option("--while-running", "leave it open, and leave out the sandboxes: recovery finds them again")
    .addHelpText("after", examples("sandlot store export fleet.jsonl", "sandlot store export | gpg -e > fleet.gpg"))
    .action(async (file: string | undefined, options: Omit<ExportCommandOptions, "json">) => {
      const { exportCommand } = await import("../store/export-command.ts");
      await exportCommand(terminal, file, { ...options, json }, signal);
    });
  configured(store.command("import"))
    .description("fill a new store from a file of `store export`")
    .argument("<file>", "the exported file")
    .option("--to <place>", "the new store: a configuration file, or sqlite:PATH; default the configured one")
    .addHelpText("after", examples("sandlot store import fleet.jsonl --to new/sandlot.yaml"))
    .action(async (file: string, options: Omit<ImportCommandOptions, "json">) => {
      const { importCommand } = await import("../store/import-command.ts");
      await importCommand(terminal, file, { ...options, json }, signal);
    });
  configured(store.command("resume"))
    .description("let instances use a store again that `store export` has closed; its file must not be used any more")
    .addHelpText("after", examples("sandlot store resume"))
    .action(async (options: { config?: string }) => {
      const { resumeCommand } = await import("../store/resume-command.ts");
      await resumeCommand(terminal, { ...options, json });
    });
}

function configured(command: Command): Command {
  return command.option("-c, --config <file>", "the configuration file");
}
