/** The commands for operators: what there is, why, and what to do about it. */

import { TIMELINE_KINDS } from "@sandlot/contract";
import type { Command } from "commander";
import type { BenchCommandOptions } from "../bench-command.ts";
import type { ConfirmDeadOptions, ExplainCommandOptions, ListCommandOptions } from "../fleet-commands.ts";
import type { LetGoOptions } from "../let-go-command.ts";
import type { TargetOptions } from "../target.ts";
import { EXIT_CODES } from "../terminal.ts";
import type { TimelineCommandOptions } from "../timeline-command.ts";
import { type CommandContext, duration, examples, targeted, threaded, wholeNumber } from "./command-context.ts";

export function addOperatorCommands(program: Command, { terminal, signal, json, ending }: CommandContext): void {
  targeted(program.command("ps"))
    .description("list sandboxes: those of the key's user, or of the fleet")
    .option("-u, --user <id>", "only this user's")
    .option("--threads", "list threads, also those that have files and no sandbox")
    .option("-q, --quiet", "names only")
    .addHelpText(
      "after",
      examples("sandlot ps", "sandlot ps --threads", "sandlot ps --json --url http://127.0.0.1:8750"),
    )
    .action(async (options: Omit<ListCommandOptions, "json">) => {
      const { listCommand } = await import("../fleet-commands.ts");
      await listCommand(terminal, { ...options, json });
    });
  threaded(targeted(program.command("explain")), "the conversation, instead of a sandbox's id")
    .description("why a sandbox is alive, who holds it, and what will end it; or why it ended; `pool`: about blanks")
    .argument("[sandbox]", "its id, or the beginning of it; `pool` for the blanks that are kept ready")
    .addHelpText(
      "after",
      examples(
        "sandlot explain -t t1",
        "sandlot explain 3f2a91    as `sandlot ps` shows it",
        "sandlot explain pool      which blanks are kept, and why",
      ),
    )
    .action(async (sandbox: string | undefined, options: Omit<ExplainCommandOptions, "json">) => {
      if (sandbox === "pool" && options.thread === undefined) {
        const { poolCommand } = await import("../pool-command.ts");
        return poolCommand(terminal, { ...options, json });
      }
      const { explainCommand } = await import("../fleet-commands.ts");
      await explainCommand(terminal, sandbox, { ...options, json });
    });
  threaded(targeted(program.command("timeline")), "the conversation")
    .description("what happened to a thread: commands, leases, files changed, crashes and more")
    .argument("[thread]", "the same as --thread")
    .option("-f, --follow", "go on with what comes, until interrupted")
    .option("-k, --kind <kind...>", `only these: ${TIMELINE_KINDS.join(", ")}`)
    .option("--since <duration>", "only of the last 10m, 2h and so on", duration)
    .option("-n, --limit <count>", "at most so many of the newest entries; default 200, at most 1000", wholeNumber)
    .option("--export <file>", "the whole timeline as a new file: a page without scripts, or .json")
    .addHelpText(
      "after",
      examples(
        "sandlot timeline t1",
        "sandlot timeline t1 -k command crash --follow",
        "sandlot timeline t1 --export t1.html",
      ),
    )
    .action(async (named: string | undefined, options: Omit<TimelineCommandOptions, "json"> & { thread?: string }) => {
      const { timelineCommand } = await import("../timeline-command.ts");
      const { namedThread } = await import("../named-thread.ts");
      const thread = namedThread({ thread: named ?? options.thread });
      await timelineCommand(terminal, thread, { ...options, json }, signal);
    });
  targeted(program.command("confirm-dead"))
    .description("say that nothing of a sandbox runs any more: its node is lost, and the machine is off")
    .argument("<sandbox>", "its id, or the beginning of it")
    .option("--machine-is-off", "you know that the machine is off; without it nothing is done")
    .addHelpText("after", examples("sandlot explain 3f2a91", "sandlot confirm-dead 3f2a91 --machine-is-off"))
    .action(async (sandbox: string, options: Omit<ConfirmDeadOptions, "json">) => {
      const { confirmDeadCommand } = await import("../fleet-commands.ts");
      const isDone = await confirmDeadCommand(terminal, sandbox, { ...options, json }, signal);
      ending.exitCode = isDone ? EXIT_CODES.ok : EXIT_CODES.failed;
    });
  targeted(program.command("events"))
    .description("what happens to sandboxes, as it happens, until interrupted")
    .option("-f, --follow", "the same: events are always followed")
    .addHelpText("after", examples("sandlot events -f", "sandlot events --json"))
    .action(async (options: TargetOptions) => {
      const { eventsCommand } = await import("../events-command.ts");
      await eventsCommand(terminal, { ...options, json }, signal);
    });
  targeted(program.command("audit"))
    .description("compare the engine with the store; ends with 1 when they disagree")
    .addHelpText("after", examples("sandlot audit", "sandlot audit --json"))
    .action(async (options: TargetOptions) => {
      const { auditCommand } = await import("../fleet-commands.ts");
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
      const { benchCommand } = await import("../bench-command.ts");
      await benchCommand(terminal, { ...options, json }, signal);
    });
  program
    .command("doctor")
    .description("what this machine has and lacks for sandboxes, and how to mend it")
    .option("-c, --config <file>", "the configuration file")
    .addHelpText("after", examples("sandlot doctor", "sandlot doctor -c sandlot.yaml --json"))
    .action(async (options: TargetOptions) => {
      const { doctorCommand } = await import("../doctor/doctor-command.ts");
      ending.exitCode = await doctorCommand(terminal, { ...options, json });
    });
  const kubernetes = program.command("kubernetes").description("a fleet whose sandboxes are pods");
  kubernetes
    .command("let-go")
    .description(
      "end every sandbox of a fleet without gateways and take the finalizers off, so that its namespace can go",
    )
    .option("-c, --config <file>", "the configuration file of the fleet")
    .option(
      "--machines-are-off",
      "also of pods whose end no kubelet has confirmed: you know that their machines are off",
    )
    .addHelpText("after", examples("sandlot kubernetes let-go -c sandlot.yaml"))
    .action(async (options: Omit<LetGoOptions, "json">) => {
      const { letGoCommand } = await import("../let-go-command.ts");
      const isDone = await letGoCommand(terminal, { ...options, json }, signal);
      ending.exitCode = isDone ? EXIT_CODES.ok : EXIT_CODES.failed;
    });
}
