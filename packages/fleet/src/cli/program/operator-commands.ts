/** The commands of whoever looks after a fleet: `ps`, `explain`, `audit`, `bench` and `doctor`. */

import type { Command } from "commander";
import type { BenchCommandOptions } from "../bench-command.ts";
import type { TargetOptions } from "../target.ts";
import { EXIT_CODES } from "../terminal.ts";
import { type Around, examples, targeted, wholeNumber } from "./around.ts";

export function addOperatorCommands(program: Command, { terminal, signal, json, ending }: Around): void {
  targeted(program.command("ps"))
    .description("list the sandboxes of the fleet")
    .addHelpText("after", examples("sandlot ps", "sandlot ps --json --url http://127.0.0.1:8750"))
    .action(async (options: TargetOptions) => {
      const { listCommand } = await import("../fleet-commands.ts");
      await listCommand(terminal, { ...options, json });
    });
  targeted(program.command("explain"))
    .description("why a sandbox is alive, who holds it, and what will end it")
    .argument("<sandbox>", "its id, or the beginning of it")
    .addHelpText("after", examples("sandlot explain 3f2a91    as `sandlot ps` shows it"))
    .action(async (sandbox: string, options: TargetOptions) => {
      const { explainCommand } = await import("../fleet-commands.ts");
      await explainCommand(terminal, sandbox, { ...options, json });
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
}
