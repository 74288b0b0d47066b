/**
 * test, sleep, env, xargs, timeout and what a script asks about its machine.
 */

import { createHash } from "node:crypto";
import { Killed } from "../../exec/machine.ts";
import { Source } from "../../exec/streams.ts";
import { sizeOf } from "../../files/node.ts";
import { UsageError } from "../failure.ts";
import { type CommandFunction, type CommandTable, countOf, type Invocation, readOptions } from "./invocation.ts";

export const OTHER_COMMANDS: CommandTable = {
  test: (command) => evaluateTest(command, command.args),
  "[": (command) => {
    if (command.args.at(-1) !== "]") throw new UsageError("missing ]");
    return evaluateTest(command, command.args.slice(0, -1));
  },
  sleep,
  env,
  printenv: async (command) => {
    const [name] = command.args;
    const environment = command.state.environment();
    if (name === undefined) return env(command);
    if (!environment.has(name)) return 1;
    await command.write(`${environment.get(name)}\n`);
    return 0;
  },
  xargs,
  timeout,
  nohup: (command) => command.run(command.args),
  sha256sum: digest("sha256"),
  md5sum: digest("md5"),
  base64: async (command) => {
    const { flags, operands } = readOptions(command.args, "di", "w", { decode: "d" });
    const { text, status } = await command.allInput(operands);
    const bytes = Buffer.from(text, "latin1");
    if (flags.has("d")) await command.write(Buffer.from(text, "base64"));
    else await command.write(`${bytes.toString("base64").replace(/.{76}(?=.)/g, "$&\n")}\n`);
    return status;
  },
  cmp: async (command) => {
    const [first = "", second = ""] = readOptions(command.args, "s").operands;
    const [a, b] = [command.tree.read(command.resolve(first)), command.tree.read(command.resolve(second))];
    return Number(Buffer.compare(a, b) !== 0);
  },
  uname: print((command) =>
    command.args.includes("-a") ? `Linux ${command.state.machine.hostName} sandlot-memory` : "Linux",
  ),
  hostname: print((command) => command.state.machine.hostName),
  whoami: print(() => "sandbox"),
  id: print((command) =>
    command.args.includes("-u") || command.args.includes("-g") ? "1000" : "uid=1000(sandbox) gid=1000(sandbox)",
  ),
};

function print(text: (command: Invocation) => string): CommandFunction {
  return async (command) => {
    await command.write(`${text(command)}\n`);
    return 0;
  };
}

function digest(algorithm: string): CommandFunction {
  return async (command) =>
    command.eachInput(command.args, async (source, name) => {
      const hash = createHash(algorithm);
      for (let chunk = await source.read(); chunk !== null; chunk = await source.read()) hash.update(chunk);
      await command.write(`${hash.digest("hex")}  ${name}\n`);
    });
}

const UNITS: Readonly<Record<string, number>> = { "": 1, s: 1, m: 60, h: 3_600, d: 86_400 };

function durationMs(text: string): number {
  const match = /^([0-9]*\.?[0-9]+|[0-9]+\.?|infinity)([smhd]?)$/.exec(text);
  if (match === null) throw new UsageError(`invalid time interval '${text}'`);
  const seconds = match[1] === "infinity" ? Number.MAX_SAFE_INTEGER : Number(match[1]);
  return seconds * (UNITS[match[2] ?? ""] ?? 1) * 1_000;
}

/** As long as one timer can wait. */
const TIMER_MAX_MS = 2 ** 31 - 1;

async function sleep(command: Invocation): Promise<number> {
  if (command.args.length === 0) throw new UsageError("missing operand");
  let left = command.args.reduce((sum, arg) => sum + durationMs(arg), 0);
  for (; left > 0; left -= TIMER_MAX_MS) await command.process.pause(Math.min(left, TIMER_MAX_MS));
  return 0;
}

async function env(command: Invocation): Promise<number> {
  const child = command.state.fork();
  const args = [...command.args];
  for (let arg = args[0]; arg !== undefined; arg = args[0]) {
    const assignment = /^([A-Za-z_][A-Za-z0-9_]*)=(.*)$/s.exec(arg);
    if (arg === "-i" || arg === "-") child.exported.clear();
    else if (arg === "-u") child.exported.delete(args.splice(1, 1)[0] ?? "");
    else if (assignment?.[1] !== undefined) {
      child.assign(assignment[1], assignment[2] ?? "");
      child.exported.add(assignment[1]);
    } else break;
    args.shift();
  }
  if (args.length > 0 && command.name === "env") return command.run(args, {}, child);
  for (const [name, value] of child.environment()) await command.write(`${name}=${value}\n`);
  return 0;
}

async function xargs(command: Invocation): Promise<number> {
  // Its own options end where the command begins: what follows belongs to that.
  const args = [...command.args];
  const own: string[] = [];
  while (/^-./.test(args[0] ?? "")) {
    const option = args.shift() ?? "";
    own.push(option, ...(/^-[nIdLP]$/.test(option) ? args.splice(0, 1) : []));
  }
  const { flags, values } = readOptions(own, "0rt", "nIdLP");
  const input = new TextDecoder().decode(await command.stdin.readAll());
  const replace = values.get("I");
  const separator = flags.has("0")
    ? "\0"
    : values.has("d")
      ? (values.get("d") ?? "").replace("\\n", "\n")
      : replace !== undefined
        ? "\n"
        : null;
  const items = (separator === null ? input.split(/\s+/) : input.split(separator)).filter((item) => item !== "");
  const base = args.length === 0 ? ["echo"] : args;
  const size =
    replace !== undefined ? 1 : values.has("n") ? Math.max(1, countOf(values.get("n") ?? "", "number")) : 5_000;
  if (items.length === 0)
    return flags.has("r") || replace !== undefined ? 0 : command.run(base, { stdin: Source.empty() });
  let failed = false;
  for (let at = 0; at < items.length; at += size) {
    const batch = items.slice(at, at + size);
    const argv =
      replace === undefined ? [...base, ...batch] : base.map((arg) => arg.replaceAll(replace, batch[0] ?? ""));
    const status = await command.run(argv, { stdin: Source.empty() });
    if (status === 127 || status === 126) return status;
    failed ||= status !== 0;
  }
  return failed ? 123 : 0;
}

/** Runs the command as a process of its own, because that is what can be ended. */
async function timeout(command: Invocation): Promise<number> {
  const args = [...command.args];
  while (/^-/.test(args[0] ?? "")) if (/^-[sk]$/.test(args.shift() ?? "")) args.shift();
  const [duration, ...argv] = args;
  if (duration === undefined || argv.length === 0) throw new UsageError("usage: timeout duration command");
  const { state, streams, runner, process } = command;
  const child = state.machine.start(process.group, process.background, (own) =>
    runner.argv(state.fork(own), argv, streams),
  );
  const onKilled = () => child.kill("SIGTERM");
  process.signal.addEventListener("abort", onKilled, { once: true });
  const timer = state.machine.world.timer(Math.min(durationMs(duration), TIMER_MAX_MS), () => child.kill("SIGTERM"), {
    background: process.background,
  });
  const ended = await child.ended;
  timer.cancel();
  process.signal.removeEventListener("abort", onKilled);
  process.signal.throwIfAborted();
  return ended instanceof Killed ? 124 : ended;
}

async function evaluateTest(command: Invocation, args: readonly string[]): Promise<number> {
  const parser = new TestParser(command, args);
  return Number(!parser.parse());
}

/** test's grammar. With up to three arguments their number decides, as POSIX has it; that makes `[ "$x" = "(" ]` safe. */
class TestParser {
  readonly #command: Invocation;
  readonly #args: readonly string[];
  #at = 0;

  constructor(command: Invocation, args: readonly string[]) {
    this.#command = command;
    this.#args = args;
  }

  parse(): boolean {
    const [first = "", second = "", third = ""] = this.#args;
    if (this.#args.length === 0) return false;
    if (this.#args.length === 1) return first !== "";
    if (this.#args.length === 3 && second in BINARY) return this.#binary(first, second, third);
    const value = this.#or();
    if (this.#at < this.#args.length) throw new UsageError(`${this.#args[this.#at]}: unexpected operator`);
    return value;
  }

  #or(): boolean {
    let value = this.#and();
    while (this.#take("-o")) value = this.#and() || value;
    return value;
  }

  #and(): boolean {
    let value = this.#not();
    while (this.#take("-a")) value = this.#not() && value;
    return value;
  }

  #not(): boolean {
    if (this.#take("!")) return !this.#not();
    if (this.#take("(")) {
      const value = this.#or();
      if (!this.#take(")")) throw new UsageError("missing )");
      return value;
    }
    const [first, second, third] = this.#args.slice(this.#at);
    if (first === undefined) throw new UsageError("argument expected");
    if (second !== undefined && third !== undefined && second in BINARY) {
      this.#at += 3;
      return this.#binary(first, second, third);
    }
    if (/^-[a-zA-Z]$/.test(first) && second !== undefined) {
      this.#at += 2;
      return this.#unary(first, second);
    }
    this.#at++;
    return first !== "";
  }

  #unary(operator: string, operand: string): boolean {
    if (operator === "-z") return operand === "";
    if (operator === "-n") return operand !== "";
    if (operator === "-t") return false;
    const { tree } = this.#command;
    const node = tree.find(this.#command.resolve(operand), { follow: operator !== "-L" && operator !== "-h" });
    switch (operator) {
      case "-e":
      case "-r":
      case "-w":
        return node !== undefined;
      case "-f":
        return node?.kind === "file";
      case "-d":
        return node?.kind === "directory";
      case "-L":
      case "-h":
        return node?.kind === "symlink";
      case "-s":
        return node !== undefined && (node.kind === "directory" || sizeOf(node) > 0);
      case "-x":
        return node !== undefined && (node.mode & 0o111) !== 0;
      case "-c":
        return node?.kind === "device";
      default:
        throw new UsageError(`${operator}: unknown operator`);
    }
  }

  #binary(left: string, operator: string, right: string): boolean {
    const compare = BINARY[operator];
    if (compare === undefined) throw new UsageError(`${operator}: unknown operator`);
    if (!operator.startsWith("-")) return compare(left, right);
    if (operator === "-nt" || operator === "-ot") {
      const [a, b] = [left, right].map((path) => this.#command.tree.find(this.#command.resolve(path))?.modifiedAt ?? 0);
      return operator === "-nt" ? (a ?? 0) > (b ?? 0) : (a ?? 0) < (b ?? 0);
    }
    for (const text of [left, right])
      if (!/^\s*[-+]?[0-9]+\s*$/.test(text)) throw new UsageError(`Illegal number: ${text}`);
    return compare(Number(left), Number(right));
  }

  #take(arg: string): boolean {
    const found = this.#args[this.#at] === arg;
    if (found) this.#at++;
    return found;
  }
}

type Comparison = (left: string | number, right: string | number) => boolean;
const BINARY: Readonly<Record<string, Comparison>> = {
  "=": (left, right) => left === right,
  "==": (left, right) => left === right,
  "!=": (left, right) => left !== right,
  "-eq": (left, right) => left === right,
  "-ne": (left, right) => left !== right,
  "-lt": (left, right) => left < right,
  "-le": (left, right) => left <= right,
  "-gt": (left, right) => left > right,
  "-ge": (left, right) => left >= right,
  "-nt": () => false,
  "-ot": () => false,
};
