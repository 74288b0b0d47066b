/**
 * Runs the parser's output: lists, pipelines and compound commands. Simple commands are in `simple-command.ts`.
 *
 * How things end
 * - A command ends with a status. `Flow` carries `exit`, `break` and `continue` to the shell or loop that they end.
 * - `Killed` goes straight through to the process.
 * - `BrokenPipe` ends one element of a pipeline, silently, with 141.
 */

import { Killed, TooManyProcesses } from "../exec/machine.ts";
import { BrokenPipe, Collector, InputTooLarge, Pipe, type Streams } from "../exec/streams.ts";
import { Expander } from "./expand.ts";
import { describeFailure } from "./failure.ts";
import { parseScript } from "./parser.ts";
import { redirected } from "./redirect.ts";
import { runSimple } from "./simple-command.ts";
import { Flow, ShellError, type ShellState } from "./state.ts";
import { type AndOr, type Command, type List, type Pipeline, ShellSyntaxError, Unsupported } from "./syntax.ts";

/** 128 + SIGPIPE. */
const BROKEN_PIPE_STATUS = 141;
const SYNTAX_STATUS = 2;
/** Errors that a script can cause; any other is a bug of this shell, and is reported as one. */
const OUR_ERRORS = [ShellError, ShellSyntaxError, Unsupported, InputTooLarge, TooManyProcesses];

/** Runs a script to its end as a shell of its own: `exit` ends this shell and nothing else. */
export async function runShell(state: ShellState, script: string, streams: Streams): Promise<number> {
  return asShell(state, streams, async () => runList(state, parseScript(script), streams));
}

async function runList(state: ShellState, list: List, streams: Streams): Promise<number> {
  state.status = list.length === 0 ? 0 : state.status;
  for (const item of list) {
    if (item.background) startJob(state, item, streams);
    else await runAndOr(state, item, streams);
  }
  return state.status;
}

function startJob(state: ShellState, item: AndOr, streams: Streams): void {
  const job = state.machine.start(state.process.group, true, (process) => {
    const own = state.fork(process);
    return asShell(own, streams, () => runAndOr(own, item, streams));
  });
  state.lastBackground = job;
  state.status = 0;
}

async function runAndOr(state: ShellState, { first, rest }: AndOr, streams: Streams): Promise<number> {
  await runPipeline(state, first, streams);
  for (const { operator, pipeline } of rest)
    if ((state.status === 0) === (operator === "&&")) await runPipeline(state, pipeline, streams);
  return state.status;
}

async function runPipeline(state: ShellState, { commands, negated }: Pipeline, streams: Streams): Promise<void> {
  const [only] = commands;
  const status =
    commands.length === 1 && only !== undefined
      ? await runCommand(state, only, streams)
      : await runPiped(state, commands, streams);
  state.status = negated ? Number(status === 0) : status;
}

/** Every element runs at the same time in its own shell, and closes its ends when it is done. */
async function runPiped(state: ShellState, commands: readonly Command[], streams: Streams): Promise<number> {
  const pipes = commands.slice(1).map(() => new Pipe(state.process.signal));
  const statuses = await Promise.all(
    commands.map(async (command, index) => {
      const input = pipes[index - 1];
      const output = pipes[index];
      const own = state.fork();
      const ends = { ...streams, stdin: input?.source ?? streams.stdin, stdout: output ?? streams.stdout };
      try {
        return await asShell(own, ends, () => runCommand(own, command, ends));
      } finally {
        input?.closeRead();
        output?.closeWrite();
      }
    }),
  );
  return statuses.at(-1) ?? 0;
}

/** Runs a shell to its end, and then its EXIT trap. */
export async function asShell(state: ShellState, streams: Streams, run: () => Promise<number>): Promise<number> {
  const status = await statusOf(state, streams, run);
  const { exitTrap } = state;
  if (exitTrap === null) return status;
  state.exitTrap = null;
  state.status = status;
  return statusOf(state, streams, async () => {
    await runList(state, parseScript(exitTrap), streams);
    return status;
  });
}

/** The end of a shell: turns an exception into its status. */
async function statusOf(state: ShellState, streams: Streams, run: () => Promise<number>): Promise<number> {
  try {
    return await run();
  } catch (error) {
    if (error instanceof Flow) return error.kind === "exit" ? error.count : state.status;
    if (error instanceof BrokenPipe) return BROKEN_PIPE_STATUS;
    if (error instanceof Killed) throw error;
    const isOurs = OUR_ERRORS.some((kind) => error instanceof kind);
    const problem = isOurs ? (error as Error).message : `internal error: ${String(error)}`;
    const prefix = error instanceof Unsupported ? "" : `${state.name}: `;
    await streams.stderr.write(new TextEncoder().encode(`${prefix}${problem}\n`));
    return SYNTAX_STATUS;
  }
}

/** Runs a command with its redirections, and gives its status. A redirection that fails is a failure of the command. */
async function runCommand(state: ShellState, command: Command, streams: Streams): Promise<number> {
  await state.process.breathe();
  const expander = new Expander(state, (script) => substitute(state, script, streams));
  if (command.type === "simple") return runSimple(state, command, streams, expander);
  let ends: Streams;
  try {
    ends = await redirected(state, streams, command.redirects, expander);
  } catch (error) {
    return describeFailure(error, state.name, streams.stderr);
  }
  return runCompound(state, command, ends, expander);
}

async function runCompound(
  state: ShellState,
  command: Exclude<Command, { type: "simple" }>,
  streams: Streams,
  expander: Expander,
): Promise<number> {
  switch (command.type) {
    case "group":
      return runList(state, command.body, streams);
    case "subshell": {
      const own = state.fork();
      return asShell(own, streams, () => runList(own, command.body, streams));
    }
    case "if": {
      for (const { condition, body } of command.branches) {
        if ((await runList(state, condition, streams)) === 0) return runList(state, body, streams);
      }
      state.status = 0;
      return runList(state, command.otherwise, streams);
    }
    case "while":
    case "until":
      return loop(state, async () => {
        const status = await runList(state, command.condition, streams);
        return (status === 0) === (command.type === "while") ? () => runList(state, command.body, streams) : null;
      });
    case "for": {
      const next = (await expander.words(command.words)).values();
      return loop(state, async () => {
        const { value, done } = next.next();
        if (done === true) return null;
        state.assign(command.name, value);
        return () => runList(state, command.body, streams);
      });
    }
  }
}

/** `next` gives the body to run, or `null` when the loop is over. */
async function loop(state: ShellState, next: () => Promise<(() => Promise<number>) | null>): Promise<number> {
  let status = 0;
  for (;;) {
    await state.process.breathe();
    try {
      const body = await next();
      if (body === null) return status;
      status = await body();
    } catch (error) {
      if (!(error instanceof Flow) || (error.kind !== "break" && error.kind !== "continue")) throw error;
      if (error.count > 1) throw new Flow(error.kind, error.count - 1);
      status = 0;
      if (error.kind === "break") return status;
    }
  }
}

async function substitute(state: ShellState, script: List, streams: Streams): Promise<string> {
  const output = new Collector();
  const own = state.fork();
  const ends = { ...streams, stdout: output };
  state.substituted = await asShell(own, ends, () => runList(own, script, ends));
  return new TextDecoder().decode(output.bytes()).replaceAll("\0", "").replace(/\n+$/, "");
}
