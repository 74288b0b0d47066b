/**
 * Commands that act on the shell and its processes: directory, variables, flow, tests, waiting, signals.
 */

import { ENV_NAME_PATTERN } from "@sandlot/contract";
import { sentenceOf, UsageError } from "../failure.ts";
import { Flow } from "../state.ts";
import { Unsupported } from "../syntax.ts";
import { type CommandTable, countOf, type Invocation } from "./invocation.ts";

export const SHELL_COMMANDS: CommandTable = {
  ":": async () => 0,
  true: async () => 0,
  false: async () => 1,
  cd: changeDirectory,
  pwd: async (command) => {
    await command.write(`${command.state.cwd}\n`);
    return 0;
  },
  export: exportVariables,
  env: async (command) => {
    if (command.args.length > 0) throw new Unsupported("env with arguments");
    for (const [name, value] of command.state.environment()) await command.write(`${name}=${value}\n`);
    return 0;
  },
  exit: async ({ state, args }) => {
    throw new Flow("exit", args[0] === undefined ? state.status : countOf(args[0]) & 255);
  },
  break: async ({ args }) => {
    throw new Flow("break", Math.max(1, countOf(args[0] ?? "1")));
  },
  continue: async ({ args }) => {
    throw new Flow("continue", Math.max(1, countOf(args[0] ?? "1")));
  },
  read: async ({ state, args, stdin }) => {
    const [name, ...others] = args;
    if (name === undefined || others.length > 0 || !ENV_NAME_PATTERN.test(name))
      throw new Unsupported("read with anything but one variable");
    const bytes = await stdin.readLine();
    const line = new TextDecoder().decode(bytes ?? new Uint8Array(0));
    if (line.includes("\\")) throw new Unsupported("read of a line with a backslash");
    state.assign(name, line.trim());
    return line.endsWith("\n") ? 0 : 1;
  },
  trap: async ({ state, args }) => {
    const [action, signal, ...others] = args;
    if (action === undefined || signal !== "EXIT" || others.length > 0)
      throw new Unsupported("trap of anything but EXIT");
    state.exitTrap = action === "-" ? null : action;
    return 0;
  },
  kill: killProcesses,
  command: async (command) => {
    const [option, name = "", ...others] = command.args;
    if (option !== "-v" || others.length > 0) throw new Unsupported("command without -v");
    if (!command.runner.isCommand(name)) return 127;
    await command.write(`${name}\n`);
    return 0;
  },
  sh: shell,
  sleep,
  test: (command) => evaluateTest(command, command.args),
  "[": (command) => {
    if (command.args.at(-1) !== "]") throw new UsageError("missing ]");
    return evaluateTest(command, command.args.slice(0, -1));
  },
};

async function changeDirectory(command: Invocation): Promise<number> {
  const { state, args } = command;
  const [target = state.variables.get("HOME") ?? "/", ...others] = args;
  if (target.startsWith("-") || others.length > 0) throw new Unsupported(`cd ${args.join(" ")}`);
  const path = command.resolve(target);
  try {
    command.tree.directory(path);
  } catch (error) {
    return command.fail(`can't cd to ${target}: ${sentenceOf(error) ?? String(error)}`, 2);
  }
  state.cwd = path;
  return 0;
}

async function exportVariables({ state, args }: Invocation): Promise<number> {
  for (const arg of args) {
    const [, name, value] = /^([^=]*)(?:=(.*))?$/s.exec(arg) ?? [];
    if (name === undefined || !ENV_NAME_PATTERN.test(name)) throw new UsageError(`${arg}: bad variable name`);
    if (value !== undefined) state.assign(name, value);
    state.exported.add(name);
  }
  return 0;
}

/** By number. */
const SIGNALS: Readonly<Record<string, string>> = { 1: "HUP", 2: "INT", 9: "KILL", 15: "TERM" };

async function killProcesses(command: Invocation): Promise<number> {
  const named = /^-(?:SIG)?(.+)$/.exec(command.args[0] ?? "")?.[1];
  const pids = named === undefined ? command.args : command.args.slice(1);
  const signal = named === undefined ? "TERM" : (SIGNALS[named] ?? named);
  if (!Object.values(SIGNALS).includes(signal)) throw new Unsupported(`kill -${named}`);
  if (pids.length === 0) throw new UsageError("usage: kill [-signal] pid...");
  let status = 0;
  for (const pid of pids) {
    const process = command.state.machine.process(Number(pid));
    if (process === undefined) status = await command.fail(`(${pid}) - No such process`);
    else process.kill(`SIG${signal}`);
  }
  // A shell that ended itself must not get to its next command.
  await command.process.breathe();
  return status;
}

/** `sh script arguments`, `sh -c text`, and the same with `-l`. */
async function shell(command: Invocation): Promise<number> {
  const { state, streams, runner } = command;
  const [option, ...rest] = command.args;
  if (option === "-c" || option === "-lc") {
    const [script, name = command.name, ...positional] = rest;
    if (script === undefined) throw new UsageError("-c requires an argument");
    return runner.childShell(state, script, name, positional, streams);
  }
  if (option === undefined || option.startsWith("-")) throw new Unsupported(`sh ${option ?? "without a script"}`);
  const script = new TextDecoder().decode(command.tree.read(command.resolve(option)));
  return runner.childShell(state, script, option, rest, streams);
}

/** As long as one timer can wait. */
const TIMER_MAX_MS = 2 ** 31 - 1;

async function sleep(command: Invocation): Promise<number> {
  const [seconds = "", ...others] = command.args;
  if (!/^[0-9]*\.?[0-9]+$/.test(seconds) || others.length > 0)
    throw new Unsupported(`sleep with anything but seconds: ${command.args.join(" ")}`);
  for (let left = Number(seconds) * 1_000; left > 0; left -= TIMER_MAX_MS)
    await command.process.pause(Math.min(left, TIMER_MAX_MS));
  return 0;
}

const TEXT_TESTS: Readonly<Record<string, (left: string, right: string) => boolean>> = {
  "=": (left, right) => left === right,
  "!=": (left, right) => left !== right,
};
const NUMBER_TESTS: Readonly<Record<string, (left: number, right: number) => boolean>> = {
  "-eq": (left, right) => left === right,
  "-ne": (left, right) => left !== right,
  "-lt": (left, right) => left < right,
  "-le": (left, right) => left <= right,
  "-gt": (left, right) => left > right,
  "-ge": (left, right) => left >= right,
};

/** One test, perhaps after `!`. `-a`, `-o` and parentheses are left out: POSIX calls them obsolescent. */
async function evaluateTest(command: Invocation, args: readonly string[]): Promise<number> {
  const isNegated = args[0] === "!" && args.length > 1;
  const holds = testOf(command, isNegated ? args.slice(1) : args);
  return Number(holds === isNegated);
}

function testOf(command: Invocation, args: readonly string[]): boolean {
  const [first = "", second = "", third = ""] = args;
  if (args.length <= 1) return first !== "";
  if (args.length === 2) return unaryTest(command, first, second);
  const byText = Object.hasOwn(TEXT_TESTS, second) ? TEXT_TESTS[second] : undefined;
  const byNumber = Object.hasOwn(NUMBER_TESTS, second) ? NUMBER_TESTS[second] : undefined;
  if (args.length > 3 || (byText === undefined && byNumber === undefined))
    throw new Unsupported(`test ${args.join(" ")}`);
  if (byText !== undefined) return byText(first, third);
  for (const text of [first, third])
    if (!/^\s*[-+]?[0-9]+\s*$/.test(text)) throw new UsageError(`Illegal number: ${text}`);
  return byNumber?.(Number(first), Number(third)) ?? false;
}

function unaryTest(command: Invocation, operator: string, operand: string): boolean {
  const node = () => command.tree.find(command.resolve(operand));
  switch (operator) {
    case "-n":
      return operand !== "";
    case "-z":
      return operand === "";
    case "-e":
      return node() !== undefined;
    case "-f":
      return node()?.kind === "file";
    case "-d":
      return node()?.kind === "directory";
    default:
      throw new Unsupported(`test ${operator}`);
  }
}
