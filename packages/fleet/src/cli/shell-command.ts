/**
 * `sandlot shell`: a terminal in a thread's sandbox, connected to this one. Every key goes inside, Ctrl-C included; it
 * ends with the shell (`exit`, Ctrl-D) or with this terminal: detaching is unsupported.
 */

import { type Terminal as SandboxTerminal, SandlotError } from "@sandlot/contract";
import { namedThread } from "./named-thread.ts";
import { withPullProgress } from "./progress.ts";
import { type TargetOptions, withTarget } from "./target.ts";
import { EXIT_CODES, type Terminal } from "./terminal.ts";

export interface ShellCommandOptions extends TargetOptions {
  readonly thread?: string;
  readonly user?: string;
}

const FALLBACK_SIZE = { columns: 80, rows: 24 };

export async function shellCommand(
  terminal: Terminal,
  options: ShellCommandOptions,
  signal: AbortSignal,
): Promise<number> {
  const { stdin } = terminal;
  if (!stdin.isTTY) {
    const problem = "a shell needs a terminal; use `sandlot exec` in scripts";
    throw new SandlotError("invalid_request", { field: "stdin", problem });
  }
  const { user } = options;
  const thread = namedThread(options);
  return withTarget(terminal, options, async (target) => {
    const acquire = () => target.acquire({ thread, user }, "sandlot shell", signal);
    const label = `Waiting for the sandbox of thread ${thread}`;
    await using lease = await withPullProgress(terminal, target, label, acquire);
    const size = { ...FALLBACK_SIZE, ...terminal.size() };
    const opened = await lease.sandbox.terminals.open({ ...size, env: promptOf(thread) });
    try {
      return await join(terminal, opened, signal);
    } finally {
      await lease.sandbox.terminals.close(opened.terminalId);
    }
  });
}

/**
 * A prompt that cannot be mistaken for the host's. Bash's own start-up files may set another, so it is set again at the
 * first prompt; after that the user may change it. The name of a thread needs no quoting.
 */
function promptOf(thread: string): Readonly<Record<string, string>> {
  const prompt = `[sandlot ${thread}] \\w\\$ `;
  return { PS1: prompt, PROMPT_COMMAND: `PS1='${prompt}'; unset PROMPT_COMMAND` };
}

async function join(terminal: Terminal, opened: SandboxTerminal, signal: AbortSignal): Promise<number> {
  const { stdin } = terminal;
  const onKey = (bytes: Buffer) => opened.write(bytes);
  const onAbort = () => void opened.detach();
  const stopResizing = terminal.onResize(() => {
    const { columns, rows } = terminal.size();
    opened.resize(columns, rows);
  });
  stdin.setRawMode(true);
  stdin.on("data", onKey);
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    for await (const { bytes } of opened.output) await terminal.write("stdout", bytes);
    const end = await opened.ended;
    return end?.exitCode ?? EXIT_CODES.sandlotFailed;
  } finally {
    signal.removeEventListener("abort", onAbort);
    stopResizing();
    stdin.off("data", onKey);
    stdin.setRawMode(false);
    stdin.pause();
  }
}
