/** The commands that work in one thread's sandbox: `exec`, `shell`, `rm`, `ls` and `cp`. */

import { type Command, InvalidArgumentError } from "commander";
import type { ExecCommandOptions } from "../exec-command.ts";
import type { RemoveCommandOptions } from "../fleet-commands.ts";
import type { ShellCommandOptions } from "../shell-command.ts";
import type { TargetOptions } from "../target.ts";
import { type Around, examples, targeted, wholeNumber } from "./around.ts";

export function addSandboxCommands(program: Command, { terminal, signal, json, ending }: Around): void {
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
      const { execCommand } = await import("../exec-command.ts");
      ending.exitCode = await execCommand(terminal, words, { ...options, json }, signal);
    });
  targeted(program.command("shell"))
    .description("a terminal in a thread's sandbox")
    .requiredOption("-t, --thread <id>", "the conversation whose sandbox it is")
    .option("-u, --user <id>", "whose conversation")
    .addHelpText("after", examples("sandlot shell -t t1", "sandlot shell -t t1 --url http://127.0.0.1:8750"))
    .action(async (options: ShellCommandOptions) => {
      const { shellCommand } = await import("../shell-command.ts");
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
      const { removeCommand } = await import("../fleet-commands.ts");
      await removeCommand(terminal, { ...options, json }, signal);
    });
}

export function addFileCommands(program: Command, { terminal, signal, json }: Around): void {
  targeted(program.command("ls"))
    .description("list files of a thread: THREAD or THREAD:PATH")
    .option("-u, --user <id>", "whose conversation")
    .option("--depth <levels>", "how many levels deep", wholeNumber)
    .argument("<where>", "such as t1, or t1:outputs")
    .addHelpText("after", examples("sandlot ls t1", "sandlot ls t1:outputs --depth 3"))
    .action(async (where: string, options: TargetOptions & { user?: string; depth?: number }) => {
      const { filesCommand } = await import("../file-commands.ts");
      await filesCommand(terminal, where, { ...options, json }, signal);
    });
  targeted(program.command("cp"))
    .description("copy a file or a directory into or out of a thread's sandbox")
    .option("-u, --user <id>", "whose conversation")
    .argument("<from>", "a file or directory, or THREAD:PATH")
    .argument("<to>", "a file or directory, or THREAD:PATH")
    .addHelpText(
      "after",
      examples("sandlot cp report.pdf t1:uploads/", "sandlot cp t1:outputs/report.md .", "sandlot cp site t1:"),
    )
    .action(async (from: string, to: string, options: TargetOptions & { user?: string }) => {
      const { copyCommand } = await import("../file-commands.ts");
      await copyCommand(terminal, from, to, { ...options, json }, signal);
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
