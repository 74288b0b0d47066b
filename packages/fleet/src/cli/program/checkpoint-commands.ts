/** The commands on earlier states of a thread: `checkpoint`, `diff`, `restore`, `undo`, `redo` and `fork`. */

import type { Command } from "commander";
import type { CheckpointCommandOptions, DiffCommandOptions } from "../checkpoint-commands.ts";
import { EXIT_CODES } from "../terminal.ts";
import { type CommandContext, examples, targeted, threaded } from "./command-context.ts";

type Given<T> = Omit<T, "json">;
const WHICH = "its id, the beginning of it, or its label";

export function addCheckpointCommands(program: Command, context: CommandContext): void {
  const { terminal, signal, json, ending } = context;
  const group = program.command("checkpoint").description("earlier states of a thread's workspace and home");
  threaded(targeted(group.command("ls")))
    .description("list a thread's checkpoints, the newest first; * is the present one")
    .addHelpText("after", examples("sandlot checkpoint ls -t t1"))
    .action(async (options: Given<CheckpointCommandOptions>) => {
      const { listCheckpointsCommand } = await import("../checkpoint-commands.ts");
      await listCheckpointsCommand(terminal, { ...options, json }, signal);
    });
  threaded(targeted(group.command("take")))
    .description("keep the present state; the sandbox goes on")
    .option("-l, --label <name>", "a name; a labelled checkpoint is kept until it is removed")
    .option("--quiesce", "freeze the sandbox meanwhile, where the backend can")
    .option("--verify", "read every file again")
    .addHelpText("after", examples("sandlot checkpoint take -t t1", 'sandlot checkpoint take -t t1 -l "it works"'))
    .action(async (options: Given<CheckpointCommandOptions>) => {
      const { takeCheckpointCommand } = await import("../checkpoint-commands.ts");
      await takeCheckpointCommand(terminal, { ...options, json }, signal);
    });
  threaded(targeted(group.command("verify")))
    .description("read all that checkpoints have; ends with 1 when something is damaged")
    .argument("[checkpoint]", `${WHICH}; default all`)
    .addHelpText("after", examples("sandlot checkpoint verify -t t1"))
    .action(async (checkpoint: string | undefined, options: Given<CheckpointCommandOptions>) => {
      const { verifyCheckpointsCommand } = await import("../checkpoint-commands.ts");
      const isWhole = await verifyCheckpointsCommand(terminal, checkpoint, { ...options, json }, signal);
      ending.exitCode = isWhole ? EXIT_CODES.ok : EXIT_CODES.failed;
    });
  threaded(targeted(group.command("rm")))
    .description("remove a checkpoint")
    .argument("<checkpoint>", WHICH)
    .addHelpText("after", examples("sandlot checkpoint rm -t t1 3f2a91"))
    .action(async (checkpoint: string, options: Given<CheckpointCommandOptions>) => {
      const { removeCheckpointCommand } = await import("../checkpoint-commands.ts");
      await removeCheckpointCommand(terminal, checkpoint, { ...options, json }, signal);
    });
  threaded(targeted(group.command("export")))
    .description("write a checkpoint's files as a tar archive")
    .argument("<checkpoint>", WHICH)
    .option("-o, --output <file>", "a new file; default standard output")
    .addHelpText("after", examples("sandlot checkpoint export -t t1 3f2a91 -o before.tar"))
    .action(async (checkpoint: string, options: Given<CheckpointCommandOptions>) => {
      const { exportCheckpointCommand } = await import("../checkpoint-commands.ts");
      await exportCheckpointCommand(terminal, checkpoint, { ...options, json }, signal);
    });
  threaded(targeted(program.command("diff")))
    .description("what changed in a thread: what an undo would take back, since a checkpoint, or between two")
    .argument("[from]", `a checkpoint: ${WHICH}`)
    .argument("[to]", "another one; default now")
    .option("--stat", "names only, without the texts")
    .option("--path <path...>", "only these, relative to the workspace's root")
    .addHelpText("after", examples("sandlot diff -t t1", "sandlot diff -t t1 3f2a91 --stat"))
    .action(async (from: string | undefined, to: string | undefined, options: Given<DiffCommandOptions>) => {
      const { diffCommand } = await import("../checkpoint-commands.ts");
      await diffCommand(terminal, from, to, { ...options, json }, signal);
    });
  addRestoring(program, context);
}

type Forced = Given<CheckpointCommandOptions> & { readonly force?: boolean };

function addRestoring(program: Command, { terminal, signal, json }: CommandContext): void {
  threaded(targeted(program.command("restore")))
    .description(
      "bring back a checkpoint, or some paths of it; ends the sandbox, and keeps the present as a checkpoint",
    )
    .argument("<checkpoint>", WHICH)
    .argument("[paths...]", "only these, relative to the workspace's root, such as workspace/report.md")
    .option("-f, --force", "also while it is in use")
    .addHelpText("after", examples("sandlot restore -t t1 3f2a91", "sandlot restore -t t1 3f2a91 workspace/report.md"))
    .action(async (checkpoint: string, given: readonly string[], { force = false, ...options }: Forced) => {
      const { restoreCommand } = await import("../checkpoint-commands.ts");
      const paths = given.length === 0 ? {} : { paths: given };
      await restoreCommand(terminal, { checkpoint, force, ...paths }, { ...options, json }, signal);
    });
  for (const direction of ["undo", "redo"] as const)
    threaded(targeted(program.command(direction)))
      .description(
        direction === "undo"
          ? "go back to a thread's newest state that differs from the present; again, to the one before"
          : "return from the newest undo",
      )
      .option("-f, --force", "also while it is in use")
      .addHelpText("after", examples(`sandlot ${direction} -t t1`))
      .action(async ({ force = false, ...options }: Forced) => {
        const { restoreCommand } = await import("../checkpoint-commands.ts");
        await restoreCommand(terminal, { direction, force }, { ...options, json }, signal);
      });
  threaded(targeted(program.command("fork")))
    .description("begin a thread with the files of another one, links included")
    .argument("<new>", "the new thread")
    .option("--checkpoint <checkpoint>", `the state to begin with: ${WHICH}; default now`)
    .addHelpText("after", examples("sandlot fork -t t1 t2", "sandlot fork -t t1 t2 --checkpoint 3f2a91"))
    .action(async (to: string, options: Given<CheckpointCommandOptions> & { readonly checkpoint?: string }) => {
      const { forkCommand } = await import("../checkpoint-commands.ts");
      await forkCommand(terminal, to, { ...options, json }, signal);
    });
}
