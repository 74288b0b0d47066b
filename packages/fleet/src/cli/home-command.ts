/** `home reset`: empties the home that a thread keeps. */

import { SandlotError } from "@sandlot/contract";
import { withProgress } from "./progress.ts";
import { requireThread, type TargetOptions, type Whose, withTarget } from "./target.ts";
import { printJson, type Terminal } from "./terminal.ts";

export interface ResetHomeCommandOptions extends TargetOptions, Whose {
  readonly thread?: string;
  readonly force?: boolean;
  readonly json: boolean;
}

export async function resetHomeCommand(
  terminal: Terminal,
  options: ResetHomeCommandOptions,
  signal: AbortSignal,
): Promise<void> {
  const { thread, user, force = false } = options;
  if (thread === undefined)
    throw new SandlotError("invalid_request", { field: "command line", problem: "name a thread with -t" });
  const reset = () =>
    withTarget(terminal, options, async (target) => {
      await requireThread(target, { thread, user });
      return target.resetHome({ thread, user }, force, signal);
    });
  const outcome = await withProgress(terminal, `Emptying the home of thread ${thread}`, reset);
  if (options.json) printJson(terminal, { thread, outcome });
  else terminal.out(`${sentence(thread, outcome)}\n`);
}

function sentence(thread: string, outcome: string): string {
  if (outcome === "absent") return `Thread ${thread} has no files, so its home is empty.`;
  const lost =
    "Gone are installed programs, caches and dotfiles, and the sandbox with its processes. The workspace is kept.";
  return outcome === "stopped"
    ? `The home of thread ${thread} is empty. ${lost}`
    : `The home of thread ${thread} will be empty as soon as its sandbox has ended. ${lost}`;
}
