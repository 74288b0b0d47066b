/** The commands that work in one thread's sandbox: `exec`, `shell`, `rm`, `prune`, `ls`, `cp`, `logs`, `stats` and `port`. */

import { type Command, InvalidArgumentError } from "commander";
import type { ExecCommandOptions } from "../exec-command.ts";
import type { RemoveCommandOptions } from "../fleet-commands.ts";
import type { ResetHomeCommandOptions } from "../home-command.ts";
import type { AioCommandOptions, PortCommandOptions } from "../inside-commands.ts";
import type { LogsCommandOptions } from "../logs-command.ts";
import type { ShellCommandOptions } from "../shell-command.ts";
import type { TargetOptions } from "../target.ts";
import { EXIT_CODES } from "../terminal.ts";
import {
  type CommandContext,
  duration,
  examples,
  portNumber,
  targeted,
  threaded,
  wholeNumber,
} from "./command-context.ts";

export function addSandboxCommands(program: Command, around: CommandContext): void {
  const { terminal, signal, json, ending } = around;
  threaded(targeted(program.command("exec")), "the conversation; without one, a sandbox that goes with the command")
    .description(
      "run a command in a thread's sandbox: one word is a line for the shell, several are program and arguments",
    )
    .option("-b, --blueprint <name>", "what a new sandbox is made from")
    .option(
      "--from <source>",
      "what a new thread begins with: a thread, thread@checkpoint, ./archive.tar, or ./directory (operators)",
    )
    .option("-C, --cwd <path>", "where to run; default /mnt/user-data/workspace")
    .option("-e, --env <name=value>", "an environment variable; may be repeated", collectVariable)
    .option("--timeout <duration>", "end the command after this long, such as 5s or 10m; a bare number is ms", duration)
    .argument("<command...>", "what to run; put -- before it")
    .passThroughOptions()
    .addHelpText(
      "after",
      examples(
        "sandlot exec -t t1 -- 'echo hello > note.txt; ls -l'",
        "sandlot exec -t t1 --timeout 5s -- python3 -c 'print(6 * 7)'",
        "sandlot exec -- uname -a             in a sandbox of its own, gone afterwards",
        "cat data.csv | sandlot exec -t t1 -- wc -l",
      ),
    )
    .action(async (words: string[], options: Omit<ExecCommandOptions, "json">) => {
      const { execCommand } = await import("../exec-command.ts");
      ending.exitCode = await execCommand(terminal, words, { ...options, json }, signal);
    });
  threaded(targeted(program.command("shell")))
    .description("a terminal in a thread's sandbox")
    .addHelpText("after", examples("sandlot shell -t t1", "sandlot shell -t t1 --url http://127.0.0.1:8750"))
    .addHelpText(
      "after",
      "\nIt ends with `exit` or Ctrl-D, and when this terminal is closed; the files stay. There is no detaching: to leave work\n" +
        "running and come back to it, run it in tmux inside, or start it with `sandlot exec -t t1 -- 'command &'`.\n",
    )
    .action(async (options: ShellCommandOptions) => {
      const { shellCommand } = await import("../shell-command.ts");
      ending.exitCode = await shellCommand(terminal, options, signal);
    });
  threaded(targeted(program.command("rm")))
    .description("end a thread's sandbox; its files are kept unless --purge")
    .option("-a, --all", "every thread of the user instead of one")
    .option("-f, --force", "also while it is in use")
    .option("--purge", "remove its files too")
    .addHelpText(
      "after",
      examples(
        "sandlot rm -t t1           the files stay for the next time",
        "sandlot rm -t t1 --purge   the files go too",
        "sandlot rm --all -u alice  every sandbox of alice",
      ),
    )
    .action(async (options: Omit<RemoveCommandOptions, "json">) => {
      const { removeCommand } = await import("../fleet-commands.ts");
      const isDone = await removeCommand(terminal, { ...options, json }, signal);
      ending.exitCode = isDone ? EXIT_CODES.ok : EXIT_CODES.failed;
    });
  const home = program.command("home").description("the home directory that a thread keeps");
  threaded(targeted(home.command("reset")))
    .description("empty a thread's home: installed programs, caches, dotfiles; ends its sandbox, keeps its workspace")
    .option("-f, --force", "also while it is in use")
    .addHelpText("after", examples("sandlot home reset -t t1"))
    .action(async (options: Omit<ResetHomeCommandOptions, "json">) => {
      const { resetHomeCommand } = await import("../home-command.ts");
      await resetHomeCommand(terminal, { ...options, json }, signal);
    });
  addEnvCommands(program, around);
  targeted(program.command("prune"))
    .description("end every sandbox that is not in use; files are kept unless --purge")
    .option("-u, --user <id>", "only this user's")
    .option("--purge", "remove the files of those threads too")
    .addHelpText("after", examples("sandlot prune", "sandlot prune -u alice --json"))
    .action(async (options: Omit<RemoveCommandOptions, "json">) => {
      const { pruneCommand } = await import("../fleet-commands.ts");
      const isDone = await pruneCommand(terminal, { ...options, json }, signal);
      ending.exitCode = isDone ? EXIT_CODES.ok : EXIT_CODES.failed;
    });
}

export function addFileCommands(program: Command, { terminal, signal, json, ending }: CommandContext): void {
  threaded(targeted(program.command("ls")))
    .description("list files of a thread")
    .option("--depth <levels>", "how many levels deep", wholeNumber)
    .argument("[path]", "where; default its workspace. Without -t: THREAD or THREAD:PATH")
    .addHelpText("after", examples("sandlot ls -t t1", "sandlot ls -t t1 outputs --depth 3", "sandlot ls t1:outputs"))
    .action(async (path: string | undefined, options: TargetOptions & { user?: string; depth?: number }) => {
      const { filesCommand } = await import("../file-commands.ts");
      await filesCommand(terminal, path, { ...options, json }, signal);
    });
  threaded(targeted(program.command("cp")))
    .description(
      "copy a file or a directory into or out of a thread's sandbox; ends with 1 when something was left out",
    )
    .argument("<from>", "a file or directory, THREAD:PATH (or :PATH with -t), or - for standard input")
    .argument("<to>", "a file or directory, THREAD:PATH (or :PATH with -t), or - for standard output")
    .addHelpText(
      "after",
      examples(
        "sandlot cp report.pdf t1:uploads/",
        "sandlot cp -t t1 :outputs/report.md .",
        "sandlot cp site t1:",
        "sandlot cp t1:notes.txt - | less",
      ),
    )
    .action(async (from: string, to: string, options: TargetOptions & { user?: string }) => {
      const { copyCommand } = await import("../file-commands.ts");
      const isWhole = await copyCommand(terminal, from, to, { ...options, json }, signal);
      ending.exitCode = isWhole ? EXIT_CODES.ok : EXIT_CODES.failed;
    });
}

/** Commands for the inside of existing sandboxes. */
export function addInsideCommands(program: Command, { terminal, signal, json, ending }: CommandContext): void {
  threaded(targeted(program.command("logs")))
    .description("what a command printed, as far as it is still held; ends with 1 when output was dropped before")
    .argument("[exec]", "its id, as --list shows it; default the last command")
    .option("-s, --session <id>", "what the last command of this session printed")
    .option("-f, --follow", "go on until it ends; the command does not wait for this reader")
    .option("-l, --list", "list commands and sessions instead")
    .addHelpText(
      "after",
      examples(
        "sandlot logs -t t1",
        "sandlot logs -t t1 --list",
        "sandlot logs -t t1 -f build",
        "sandlot logs -t t1 -s s1",
      ),
    )
    .action(async (exec: string | undefined, options: Omit<LogsCommandOptions, "json">) => {
      const { logsCommand } = await import("../logs-command.ts");
      ending.exitCode = await logsCommand(terminal, exec, { ...options, json }, signal);
    });
  threaded(targeted(program.command("stats")), "only this conversation")
    .description("memory, processes and processor time of sandboxes; counts as a use of each")
    .addHelpText("after", examples("sandlot stats", "sandlot stats -t t1 --json"))
    .action(async (options: TargetOptions & { thread?: string; user?: string }) => {
      const { statsCommand } = await import("../inside-commands.ts");
      await statsCommand(terminal, { ...options, json }, signal);
    });
  threaded(targeted(program.command("port")))
    .description(
      "ports on which something listens; of one port a link, or without a gateway a local port that leads there",
    )
    .argument("[port]", "the port inside", portNumber)
    .option("--ttl <duration>", "how long a gateway's link is good; default 1h", duration)
    .option("--listen <port>", "the port of this machine, without a gateway; default any free", portNumber)
    .addHelpText("after", examples("sandlot port -t t1", "sandlot port -t t1 8000 --ttl 10m"))
    .action(async (port: number | undefined, options: Omit<PortCommandOptions, "json">) => {
      const { portCommand } = await import("../inside-commands.ts");
      await portCommand(terminal, port, { ...options, json }, signal);
    });
  threaded(targeted(program.command("aio")))
    .description("a base URL for clients of AIO's API without a key; without a gateway a local port until Ctrl-C")
    .option("--ttl <duration>", "how long a gateway's URL is good; default 1d", duration)
    .option("--revoke [link]", "end all URLs of the conversation, or the one with this id")
    .option("--listen <port>", "the port of this machine, without a gateway; default any free", portNumber)
    .addHelpText("after", examples("sandlot aio -t t1", "sandlot aio -t t1 --ttl 2h", "sandlot aio -t t1 --revoke"))
    .action(async (options: Omit<AioCommandOptions, "json">) => {
      const { aioCommand } = await import("../inside-commands.ts");
      await aioCommand(terminal, { ...options, json }, signal);
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

/** They work on this home's files, so they need no server. */
function addEnvCommands(program: Command, { terminal, signal, json }: CommandContext): void {
  const env = program
    .command("env")
    .description("environments: what a blueprint's setup builds once for all sandboxes");
  const command = (name: string, about: string) =>
    env.command(name).description(about).option("-c, --config <file>", "the configuration file");
  command("ls", "list them, with their sizes and how many sandboxes have them mounted")
    .addHelpText("after", examples("sandlot env ls", "sandlot env ls --json"))
    .action(async (options: { config?: string }) => {
      const { listEnvironments } = await import("../env-command.ts");
      await listEnvironments(terminal, { ...options, json });
    });
  command("build [blueprint]", "build those that are missing, and those that failed")
    .addHelpText("after", examples("sandlot env build", "sandlot env build science"))
    .action(async (blueprint: string | undefined, options: { config?: string }) => {
      const { buildEnvironments } = await import("../env-command.ts");
      await buildEnvironments(terminal, { ...options, ...(blueprint !== undefined && { blueprint }), json }, signal);
    });
  command("inspect <environment>", "print what one is, or why it failed, and the log of its build")
    .addHelpText("after", examples("sandlot env inspect science@"))
    .action(async (id: string, options: { config?: string }) => {
      const { inspectEnvironment } = await import("../env-command.ts");
      await inspectEnvironment(terminal, id, { ...options, json });
    });
  command("rm <environment>", "remove one that no sandbox has mounted")
    .addHelpText("after", examples("sandlot env rm science@0f3c"))
    .action(async (id: string, options: { config?: string }) => {
      const { removeEnvironment } = await import("../env-command.ts");
      await removeEnvironment(terminal, id, { ...options, json }, signal);
    });
}
