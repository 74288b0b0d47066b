/**
 * Commands that act on the shell itself: directory, variables, flow, jobs, and running other commands.
 */

import { ENV_NAME_PATTERN } from "@sandlot/contract";
import { abortable } from "../../../../world/waiting.ts";
import { Killed, type Process } from "../../exec/machine.ts";
import { sentenceOf, UsageError } from "../failure.ts";
import { Flow } from "../state.ts";
import { type CommandTable, countOf, type Invocation } from "./invocation.ts";

export const SHELL_BUILTINS: CommandTable = {
  ":": async () => 0,
  true: async () => 0,
  false: async () => 1,
  cd: changeDirectory,
  pwd: async (command) => {
    await command.write(`${command.state.cwd}\n`);
    return 0;
  },
  export: exportVariables,
  readonly: exportVariables,
  local: exportVariables,
  unset: async ({ state, args }) => {
    for (const name of args) {
      if (args[0] === "-f") state.functions.delete(name);
      state.variables.delete(name);
      state.exported.delete(name);
    }
    return 0;
  },
  exit: flow("exit"),
  return: flow("return"),
  break: flow("break"),
  continue: flow("continue"),
  set: setOptions,
  shift: async ({ state, args }) => {
    const count = countOf(args[0] ?? "1", "count");
    if (count > state.positional.length) return 1;
    state.positional = state.positional.slice(count);
    return 0;
  },
  read: readVariables,
  eval: ({ runner, state, args, streams }) => runner.inShell(state, args.join(" "), streams),
  ".": source,
  source,
  wait: waitForJobs,
  kill: killProcesses,
  jobs: async (command) => {
    for (const job of command.state.jobs) if (isRunning(command, job)) await command.write(`[${job.pid}] Running\n`);
    return 0;
  },
  exec: async (command) => {
    if (command.args.length === 0) return 0;
    throw new Flow("exit", await command.run(command.args));
  },
  command: runCommandBuiltin,
  type: async (command) => {
    const missing = command.args.filter((name) => command.runner.whereIs(command.state, name) === undefined);
    for (const name of command.args)
      if (!missing.includes(name)) await command.write(`${name} is ${command.runner.whereIs(command.state, name)}\n`);
    for (const name of missing) await command.warn(`${name}: not found`);
    return missing.length > 0 ? 127 : 0;
  },
  which: async (command) => {
    let status = 0;
    for (const name of command.args) {
      const path = command.runner.whereIs(command.state, name);
      if (path === undefined) status = 1;
      else await command.write(`${path}\n`);
    }
    return status;
  },
  sh: shell,
  bash: shell,
  dash: shell,
  trap: setTrap,
  // Files have modes, but nobody is kept from them, so there is nothing to mask or limit.
  umask: async () => 0,
  ulimit: async () => 0,
};

async function changeDirectory(command: Invocation): Promise<number> {
  const { state, tree } = command;
  const operand = command.args.find((arg) => !/^-[LP]$/.test(arg));
  const target = operand === "-" ? state.variables.get("OLDPWD") : (operand ?? state.variables.get("HOME"));
  if (target === undefined) return command.fail("no directory to go to");
  const path = command.resolve(target);
  try {
    tree.directory(path);
  } catch (error) {
    return command.fail(`can't cd to ${target}: ${sentenceOf(error) ?? String(error)}`, 2);
  }
  state.assign("OLDPWD", state.cwd);
  state.cwd = path;
  state.assign("PWD", path);
  if (operand === "-") await command.write(`${path}\n`);
  return 0;
}

async function exportVariables(command: Invocation): Promise<number> {
  const { state, name, args } = command;
  if (args.length === 0 || args[0] === "-p") {
    for (const [key, value] of [...state.environment()].sort())
      await command.write(`export ${key}='${value.replaceAll("'", "'\\''")}'\n`);
    return 0;
  }
  for (const arg of args) {
    const [key = "", ...rest] = arg.split("=");
    if (!ENV_NAME_PATTERN.test(key)) return command.fail(`${key}: bad variable name`, 2);
    if (name === "local") state.declareLocal(key);
    if (rest.length > 0) state.assign(key, rest.join("="));
    if (name === "export") state.exported.add(key);
  }
  return 0;
}

function flow(kind: Flow["kind"]) {
  return async ({ state, args }: Invocation): Promise<number> => {
    const ends = kind === "exit" || kind === "return";
    const count = args[0] === undefined ? (ends ? state.status : 1) : countOf(args[0], "number");
    throw new Flow(kind, ends ? count & 255 : Math.max(1, count));
  };
}

const LONG_OPTIONS: Readonly<Record<string, string>> = { errexit: "e", nounset: "u", pipefail: "p", xtrace: "x" };
const OPTION_NAMES = { e: "errexit", u: "nounset", p: "pipefail", x: "xtrace" } as const;

async function setOptions({ state, args }: Invocation): Promise<number> {
  for (let i = 0; i < args.length; i++) {
    const arg = args[i] ?? "";
    if (arg === "--" || !/^[-+]/.test(arg)) {
      state.positional = args.slice(arg === "--" ? i + 1 : i);
      return 0;
    }
    for (const char of arg.slice(1)) {
      const letter = char === "o" ? LONG_OPTIONS[args[++i] ?? ""] : char;
      const name = OPTION_NAMES[letter as keyof typeof OPTION_NAMES];
      if (name !== undefined && !(char === "p" && letter === "p")) state.options[name] = arg.startsWith("-");
    }
  }
  return 0;
}

/** Only EXIT: no other signal reaches a handler in here, and a trap that would never run must not look as if it would. */
async function setTrap(command: Invocation): Promise<number> {
  const [action, ...signals] = command.args.filter((arg) => arg !== "--");
  const other = signals.filter((name) => name !== "EXIT" && name !== "0");
  if (other.length > 0) await command.warn(`${other.join(" ")}: only EXIT can be trapped here`);
  if (signals.length > other.length) command.state.exitTrap = action === "-" ? null : (action ?? null);
  return 0;
}

async function readVariables({ state, args, stdin }: Invocation): Promise<number> {
  const raw = args.includes("-r");
  const names = args.filter((arg, index) => !arg.startsWith("-") && args[index - 1] !== "-p");
  const bytes = await stdin.readLine();
  const text = new TextDecoder().decode(bytes ?? new Uint8Array(0));
  const line = raw ? text.replace(/\n$/, "") : text.replace(/\n$/, "").replace(/\\(.)/g, "$1");
  const separators = state.variables.get("IFS") ?? " \t\n";
  const last = names.pop() ?? "REPLY";
  let rest = trimSeparators(line, separators);
  for (const name of names) {
    const end = [...rest].findIndex((char) => separators.includes(char));
    state.assign(name, end < 0 ? rest : rest.slice(0, end));
    rest = end < 0 ? "" : trimSeparators(rest.slice(end + 1), separators);
  }
  state.assign(last, rest);
  return bytes !== null && text.endsWith("\n") ? 0 : 1;
}

/** Only blanks among the separators are trimmed: `IFS= read` keeps a line as it is. */
function trimSeparators(text: string, separators: string): string {
  let start = 0;
  let end = text.length;
  const isBlank = (char: string) => separators.includes(char) && /\s/.test(char);
  while (start < end && isBlank(text.charAt(start))) start++;
  while (end > start && isBlank(text.charAt(end - 1))) end--;
  return text.slice(start, end);
}

async function source(command: Invocation): Promise<number> {
  const [file] = command.args;
  if (file === undefined) throw new UsageError("filename argument required");
  const script = new TextDecoder().decode(command.tree.read(command.resolve(file)));
  return command.runner.inShell(command.state, script, command.streams);
}

async function waitForJobs({ state, args }: Invocation): Promise<number> {
  const all = args.length === 0;
  const jobs = all ? [...state.jobs] : [...state.jobs].filter((job) => args.includes(String(job.pid)));
  if (!all && jobs.length === 0) return 127;
  let status = 0;
  for (const job of jobs) {
    const ended = await abortable(job.ended, state.process.signal);
    status = ended instanceof Killed ? 128 + (SIGNALS.indexOf(ended.signal) || 15) : ended;
    state.jobs.delete(job);
  }
  return all ? 0 : status;
}

/** By number. */
const SIGNALS = [
  "",
  "SIGHUP",
  "SIGINT",
  "SIGQUIT",
  "",
  "",
  "SIGABRT",
  "",
  "",
  "SIGKILL",
  "SIGUSR1",
  "",
  "SIGUSR2",
  "SIGPIPE",
  "SIGALRM",
  "SIGTERM",
];

async function killProcesses(command: Invocation): Promise<number> {
  const [first = "", ...others] = command.args;
  const named = first === "-s" ? others.shift() : /^-(.+)$/.exec(first)?.[1];
  const pids = named === undefined ? command.args : others;
  if (first === "-l" || pids.length === 0) throw new UsageError("usage: kill [-s signal] pid...");
  const probe = named === "0";
  const signal =
    named === undefined
      ? "SIGTERM"
      : /^[0-9]+$/.test(named)
        ? (SIGNALS[Number(named)] ?? "")
        : `SIG${named.replace(/^SIG/, "").toUpperCase()}`;
  if (!probe && !SIGNALS.includes(signal)) return command.fail(`${named}: invalid signal specification`);
  let status = 0;
  for (const pid of pids) {
    const process = command.state.machine.process(Number(pid.replace(/^%/, "")));
    if (process === undefined) status = await command.fail(`(${pid}) - No such process`);
    else if (!probe) process.kill(signal);
  }
  // A shell that ended itself must not get to its next command.
  await command.process.breathe();
  return status;
}

function isRunning(command: Invocation, job: Process): boolean {
  return command.state.machine.process(job.pid) === job;
}

async function runCommandBuiltin(command: Invocation): Promise<number> {
  const [option, name = ""] = command.args;
  if (option !== "-v" && option !== "-V") return command.run(command.args.filter((arg) => arg !== "-p"));
  const path = command.runner.whereIs(command.state, name);
  if (path === undefined) return 127;
  await command.write(`${path}\n`);
  return 0;
}

async function shell(command: Invocation): Promise<number> {
  const { state, streams, runner } = command;
  const args = [...command.args];
  let options = "";
  while (args[0] !== undefined && /^-[a-zA-Z]+$/.test(args[0])) options += (args.shift() ?? "").slice(1);
  const [first, ...rest] = args;
  const strict = options.includes("e") ? "set -e\n" : "";
  if (options.includes("c")) {
    if (first === undefined) throw new UsageError("-c requires an argument");
    return runner.childShell(state, strict + first, rest[0] ?? command.name, rest.slice(1), streams);
  }
  const script = first === undefined ? await command.stdin.readAll() : command.tree.read(command.resolve(first));
  return runner.childShell(state, strict + new TextDecoder().decode(script), first ?? command.name, rest, streams);
}
