/**
 * A simple command: assignments, words, redirections. Resolves a name to a built-in command, or to a script in the
 * tree.
 */

import type { Streams } from "../exec/streams.ts";
import { bytesOf } from "../files/node.ts";
import { baseName, parentOf } from "../files/tree.ts";
import { FILE_COMMANDS } from "./commands/file-commands.ts";
import { type CommandFunction, type CommandTable, Invocation, type Runner } from "./commands/invocation.ts";
import { SHELL_COMMANDS } from "./commands/shell-commands.ts";
import { TEXT_COMMANDS } from "./commands/text-commands.ts";
import type { Expander } from "./expand.ts";
import { describeFailure } from "./failure.ts";
import { runShell } from "./interpreter.ts";
import { redirected } from "./redirect.ts";
import { Flow, ShellState } from "./state.ts";
import { type Command, Unsupported } from "./syntax.ts";

/** The commands that the tests, the examples and the demonstration of this repository use. */
const COMMANDS: CommandTable = { ...SHELL_COMMANDS, ...FILE_COMMANDS, ...TEXT_COMMANDS };
/** They change how the rest of a script runs, so a script with one of them fails there. */
const LEFT_OUT: ReadonlySet<string> = new Set(
  ". alias eval exec getopts local readonly return set shift source unset wait".split(" "),
);
const NOT_FOUND_STATUS = 127;
const NOT_EXECUTABLE_STATUS = 126;
/** Directories in which the built-in commands appear to be installed. */
const COMMAND_DIRECTORIES = new Set(["/bin", "/usr/bin", "/usr/local/bin"]);

export async function runSimple(
  state: ShellState,
  command: Command & { type: "simple" },
  streams: Streams,
  expander: Expander,
): Promise<number> {
  state.substituted = 0;
  const argv = await expander.words(command.words);
  const values: [string, string][] = [];
  for (const { name, value } of command.assignments) {
    if (name === "IFS") throw new Unsupported("IFS");
    values.push([name, await expander.text(value)]);
  }
  let ends: Streams;
  try {
    ends = await redirected(state, streams, command.redirects, expander);
  } catch (error) {
    return describeFailure(error, state.name, streams.stderr);
  }
  if (argv.length > 0) return withAssignments(state, values, () => runArgv(state, argv, ends));
  for (const [name, value] of values) state.assign(name, value);
  // An assignment alone has the status of the last substitution in it, if there was one.
  return state.substituted;
}

/** Runs words without any parsing, as an `exec` with an array does. */
export async function runArgv(state: ShellState, argv: readonly string[], streams: Streams): Promise<number> {
  const [name = "", ...args] = argv;
  await state.process.breathe();
  if (LEFT_OUT.has(name)) throw new Unsupported(name);
  const found = commandNamed(name);
  if (found === undefined) return runFile(state, name, args, streams);
  const invocation = new Invocation(state, baseName(name), args, streams, RUNNER);
  try {
    return await found(invocation);
  } catch (error) {
    if (error instanceof Flow) throw error;
    return describeFailure(error, invocation.name, streams.stderr);
  }
}

function commandNamed(name: string): CommandFunction | undefined {
  const isInstalled = !name.includes("/") || COMMAND_DIRECTORIES.has(parentOf(name));
  const known = name.includes("/") ? baseName(name) : name;
  return isInstalled && Object.hasOwn(COMMANDS, known) ? COMMANDS[known] : undefined;
}

/** A script in the tree that begins with `#!/bin/sh`, or without such a line. Only by its path, not by `PATH`. */
async function runFile(state: ShellState, name: string, args: readonly string[], streams: Streams): Promise<number> {
  const complain = async (problem: string, status: number) => {
    await streams.stderr.write(new TextEncoder().encode(`${problem}\n`));
    return status;
  };
  if (!name.includes("/")) return complain(new Unsupported(`${name}: command not found`).message, NOT_FOUND_STATUS);
  const path = state.resolve(name);
  const node = state.tree.find(path);
  if (node === undefined) return complain(`${state.name}: ${name}: No such file or directory`, NOT_FOUND_STATUS);
  if (node.kind === "directory") return complain(`${state.name}: ${name}: Is a directory`, NOT_EXECUTABLE_STATUS);
  if (node.kind !== "file" || (node.mode & 0o111) === 0)
    return complain(`${state.name}: ${name}: Permission denied`, NOT_EXECUTABLE_STATUS);
  const text = new TextDecoder().decode(bytesOf(node));
  if (text.includes("\0") || (text.startsWith("#!") && !/^#! *\/bin\/sh\s/.test(text)))
    return complain(new Unsupported(`${name} needs another interpreter than /bin/sh`).message, NOT_EXECUTABLE_STATUS);
  return runArgv(state, ["sh", path, ...args], streams);
}

/** `X=1 command` sets `X` for that command only. */
async function withAssignments(
  state: ShellState,
  values: readonly [string, string][],
  run: () => Promise<number>,
): Promise<number> {
  if (values.length === 0) return run();
  const before = values.map(([name]) => ({
    name,
    value: state.variables.get(name),
    exported: state.exported.has(name),
  }));
  for (const [name, value] of values) {
    state.variables.set(name, value);
    state.exported.add(name);
  }
  try {
    return await run();
  } finally {
    for (const { name, value, exported } of before) {
      if (value === undefined) state.variables.delete(name);
      else state.variables.set(name, value);
      if (!exported) state.exported.delete(name);
    }
  }
}

/** A new shell that knows only what is exported, as `sh script` starts one. */
async function runChildShell(
  state: ShellState,
  script: string,
  name: string,
  positional: readonly string[],
  streams: Streams,
): Promise<number> {
  const child = new ShellState(state.process, state.cwd, state.environment(), state);
  child.name = name;
  child.positional = positional;
  return runShell(child, script, streams);
}

const RUNNER: Runner = { childShell: runChildShell, isCommand: (name) => commandNamed(name) !== undefined };
