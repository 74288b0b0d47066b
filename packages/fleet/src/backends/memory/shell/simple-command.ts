/**
 * A simple command: assignments, words, redirections. Decides what a name stands for: a function, a command of ours, or
 * a script in the tree.
 */

import type { Streams } from "../exec/streams.ts";
import { bytesOf } from "../files/node.ts";
import { baseName, join, parentOf } from "../files/tree.ts";
import { type CommandFunction, Invocation, type Runner } from "./commands/invocation.ts";
import { COMMANDS } from "./commands/table.ts";
import type { Expander } from "./expand.ts";
import { describeFailure } from "./failure.ts";
import { runCommand, runInShell, runShell } from "./interpreter.ts";
import { redirected } from "./redirect.ts";
import { Flow, ShellError, ShellState } from "./state.ts";
import type { Command } from "./syntax.ts";

const NOT_FOUND_STATUS = 127;
const NOT_EXECUTABLE_STATUS = 126;
/** Where our own commands pretend to be installed. */
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
  for (const { name, value } of command.assignments) values.push([name, await expander.text(value)]);
  let ends: Streams;
  try {
    ends = await redirected(state, streams, command.redirects, expander);
  } catch (error) {
    return describeFailure(error, state.name, streams.stderr);
  }
  if (argv.length === 1 && argv[0] === "exec" && command.redirects.length > 0) {
    // They would have to outlive the command; better no script than one whose output goes somewhere else.
    throw new ShellError("exec: redirections without a command are not supported");
  }
  if (argv.length > 0) return withAssignments(state, values, () => runArgv(state, argv, ends));
  for (const [name, value] of values) state.assign(name, value);
  // An assignment alone has the status of the last substitution in it, if there was one.
  return state.substituted;
}

/** Runs words as they are, without any parsing: what an `exec` with an array, `xargs` and `env` do. */
export async function runArgv(state: ShellState, argv: readonly string[], streams: Streams): Promise<number> {
  const [name = "", ...args] = argv;
  await state.process.breathe();
  const body = state.functions.get(name);
  if (body !== undefined) return callFunction(state, body, args, streams);
  const builtin = commandNamed(name);
  if (builtin !== undefined) return runBuiltin(state, builtin, name, args, streams);
  return runFile(state, name, args, streams);
}

/** The path a command would be found at, as `command -v` shows it. */
function whereIs(state: ShellState, name: string): string | undefined {
  if (state.functions.has(name) || SHELL_OWN.has(name)) return name;
  if (COMMANDS[name] !== undefined && !name.includes("/")) return `/usr/bin/${name}`;
  const path = findScript(state, name);
  return path !== undefined && state.tree.find(path)?.kind === "file" ? path : undefined;
}

const SHELL_OWN = new Set([":", ".", "cd", "eval", "exit", "export", "read", "set", "shift", "unset", "wait"]);

function commandNamed(name: string): CommandFunction | undefined {
  if (!name.includes("/")) return Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  const inDirectory = name.startsWith("/") && COMMAND_DIRECTORIES.has(parentOf(name));
  return inDirectory && Object.hasOwn(COMMANDS, baseName(name)) ? COMMANDS[baseName(name)] : undefined;
}

async function runBuiltin(
  state: ShellState,
  builtin: CommandFunction,
  name: string,
  args: readonly string[],
  streams: Streams,
): Promise<number> {
  const invocation = new Invocation(state, baseName(name), args, streams, RUNNER);
  try {
    return await builtin(invocation);
  } catch (error) {
    if (error instanceof Flow) throw error;
    return describeFailure(error, invocation.name, streams.stderr);
  }
}

async function callFunction(
  state: ShellState,
  body: Command,
  args: readonly string[],
  streams: Streams,
): Promise<number> {
  try {
    return await state.call(args, () => runCommand(state, body, streams, false));
  } catch (error) {
    if (error instanceof Flow && error.kind === "return") return error.count;
    throw error;
  }
}

function findScript(state: ShellState, name: string): string | undefined {
  if (name === "") return undefined;
  if (name.includes("/")) return state.resolve(name);
  const directories = (state.variables.get("PATH") ?? "").split(":").filter((directory) => directory.startsWith("/"));
  return directories.map((directory) => join(directory, name)).find((path) => state.tree.find(path)?.kind === "file");
}

async function runFile(state: ShellState, name: string, args: readonly string[], streams: Streams): Promise<number> {
  const complain = async (problem: string, status: number) => {
    await streams.stderr.write(new TextEncoder().encode(`${state.name}: ${name}: ${problem}\n`));
    return status;
  };
  const path = findScript(state, name);
  const node = path === undefined ? undefined : state.tree.find(path);
  if (path === undefined || node === undefined)
    return complain(name.includes("/") ? "No such file or directory" : "not found", NOT_FOUND_STATUS);
  if (node.kind === "directory") return complain("Is a directory", NOT_EXECUTABLE_STATUS);
  if (node.kind !== "file" || (node.mode & 0o111) === 0) return complain("Permission denied", NOT_EXECUTABLE_STATUS);
  const text = new TextDecoder().decode(bytesOf(node));
  const interpreter = /^#! *(\S+)(?: +(\S+))?/.exec(text);
  const program =
    interpreter === null
      ? "sh"
      : baseName(interpreter[1] === "/usr/bin/env" ? (interpreter[2] ?? "") : (interpreter[1] ?? ""));
  if (text.includes("\0") || COMMANDS[program] === undefined)
    return complain("cannot execute: no such interpreter", NOT_EXECUTABLE_STATUS);
  return runArgv(state, [program, path, ...args], streams);
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

const RUNNER: Runner = { argv: runArgv, inShell: runInShell, childShell: runChildShell, whereIs };
