/**
 * echo, printf, seq, yes, date: commands that make text.
 */

import { UsageError } from "../failure.ts";
import { ESCAPES } from "../words.ts";
import { bytesToText, type CommandTable, type Invocation, readOptions, textToBytes } from "./invocation.ts";

export const PRINT_COMMANDS: CommandTable = { echo, printf, seq, yes, date };

async function echo(command: Invocation): Promise<number> {
  const args = [...command.args];
  let options = "";
  while (/^-[neE]+$/.test(args[0] ?? "")) options += args.shift();
  const text = asBytes(args.join(" "));
  await command.write(
    textToBytes((options.includes("e") ? interpretEscapes(text).text : text) + (options.includes("n") ? "" : "\n")),
  );
  return 0;
}

/** Applies the format again as long as arguments are left. */
async function printf(command: Invocation): Promise<number> {
  const given = command.args.map(asBytes);
  const [format, ...args] = given[0] === "--" ? given.slice(1) : given;
  if (format === undefined) throw new UsageError("usage: printf format [arguments]");
  const problems: string[] = [];
  let output = "";
  do {
    const before = args.length;
    const { text, stopped } = formatOnce(format, args, problems);
    output += text;
    if (stopped || args.length === before) break;
  } while (args.length > 0);
  await command.write(textToBytes(output));
  for (const problem of problems) await command.warn(problem);
  return problems.length > 0 ? 1 : 0;
}

/** One character per byte, so that `\\377` is a byte and not a letter. */
function asBytes(text: string): string {
  return bytesToText(new TextEncoder().encode(text));
}

const DIRECTIVE = /%(?:%|([-+ 0#]*)([0-9]+|\*)?(?:\.([0-9]+|\*))?([a-zA-Z]))/y;

function formatOnce(format: string, args: string[], problems: string[]): { text: string; stopped: boolean } {
  let text = "";
  for (let i = 0; i < format.length; ) {
    DIRECTIVE.lastIndex = i;
    const directive = DIRECTIVE.exec(format);
    if (directive !== null) {
      i += directive[0].length;
      const part = directive[0] === "%%" ? { text: "%", stopped: false } : convert(directive, args, problems);
      text += part.text;
      if (part.stopped) return { text, stopped: true };
    } else if (format.charAt(i) === "\\") {
      const sequence = /^\\(?:[0-7]{1,3}|x[0-9a-fA-F]{1,2}|.|$)/s.exec(format.slice(i))?.[0] ?? "\\";
      i += sequence.length;
      text += interpretEscapes(sequence).text;
    } else text += format.charAt(i++);
  }
  return { text, stopped: false };
}

function convert(
  [, flags = "", width, precision, letter = ""]: RegExpExecArray,
  args: string[],
  problems: string[],
): { text: string; stopped: boolean } {
  const size = width === "*" ? Number(args.shift() ?? 0) : Number(width ?? 0);
  const digits =
    precision === undefined ? undefined : precision === "*" ? Number(args.shift() ?? 0) : Number(precision);
  const arg = args.shift() ?? "";
  const pad = (text: string) => {
    if (flags.includes("-")) return text.padEnd(size);
    if (!flags.includes("0") || letter === "s") return text.padStart(size);
    const sign = /^[-+]/.exec(text)?.[0] ?? "";
    return sign + text.slice(sign.length).padStart(size - sign.length, "0");
  };
  switch (letter) {
    case "s":
      return { text: pad(arg.slice(0, digits)), stopped: false };
    case "b": {
      const { text, stopped } = interpretEscapes(arg);
      return { text: pad(text), stopped };
    }
    case "c":
      return { text: pad(arg.charAt(0)), stopped: false };
    case "q":
      return { text: `'${arg.replaceAll("'", "'\\''")}'`, stopped: false };
    default:
      return { text: pad(numeric(letter, arg, digits, flags, problems)), stopped: false };
  }
}

function numeric(letter: string, arg: string, digits: number | undefined, flags: string, problems: string[]): string {
  const quoted = /^['"](.)/su.exec(arg)?.[1];
  const value = quoted !== undefined ? (quoted.codePointAt(0) ?? 0) : arg === "" ? 0 : Number(arg);
  if (Number.isNaN(value)) problems.push(`'${arg}': expected numeric value`);
  const number = Number.isNaN(value) ? Number.parseFloat(arg) || 0 : value;
  const signed = (text: string) => (flags.includes("+") && number >= 0 ? `+${text}` : text);
  switch (letter) {
    case "d":
    case "i":
    case "u":
      return signed(String(Math.trunc(number)));
    case "x":
      return Math.trunc(number).toString(16);
    case "X":
      return Math.trunc(number).toString(16).toUpperCase();
    case "o":
      return Math.trunc(number).toString(8);
    case "f":
    case "F":
      return signed(number.toFixed(Math.min(digits ?? 6, 100)));
    case "e":
      return signed(number.toExponential(Math.min(digits ?? 6, 100)).replace(/e([+-])([0-9])$/, "e$10$2"));
    case "g":
      return signed(String(Number(number.toPrecision(Math.min(Math.max(digits ?? 6, 1), 100)))));
    default:
      problems.push(`%${letter}: invalid directive`);
      return "";
  }
}

/** `\c` ends all output. */
function interpretEscapes(text: string): { text: string; stopped: boolean } {
  let stopped = false;
  const end = /(?<!\\)(?:\\\\)*\\c/.exec(text);
  if (end !== null) stopped = true;
  const kept = end === null ? text : text.slice(0, end.index + end[0].length - 2);
  const result = kept.replace(/\\(0?[0-7]{1,3}|x[0-9a-fA-F]{1,2}|.)/gs, (whole, body: string) => {
    if (/^[0-7]/.test(body)) return String.fromCharCode(Number.parseInt(body, 8) & 255);
    if (body.length > 1) return String.fromCharCode(Number.parseInt(body.slice(1), 16));
    return ESCAPES[body] ?? whole;
  });
  return { text: result, stopped };
}

const SEQUENCE_MAX = 10_000_000;

async function seq(command: Invocation): Promise<number> {
  const { flags, values, operands } = readOptions(negativesAsOperands(command.args), "w", "s");
  const numbers = operands.map(Number);
  if (numbers.length === 0 || numbers.some(Number.isNaN)) throw new UsageError("invalid argument");
  const [first, step, last] =
    numbers.length === 1 ? [1, 1, numbers[0]] : numbers.length === 2 ? [numbers[0], 1, numbers[1]] : numbers;
  if (first === undefined || last === undefined || !step) throw new UsageError("invalid increment");
  const count = Math.floor((last - first) / step) + 1;
  if (count > SEQUENCE_MAX) throw new UsageError("sequence too long");
  const separator = values.get("s") ?? "\n";
  const width = flags.has("w") ? Math.max(String(first).length, String(last).length) : 0;
  for (let i = 0; i < count; i++) {
    const number = String(first + i * step).padStart(width, "0");
    await command.write(`${number}${i === count - 1 ? "\n" : separator}`);
  }
  return 0;
}

/** `seq 3 -1 1`: a number below zero is no option. */
function negativesAsOperands(args: readonly string[]): readonly string[] {
  const at = args.findIndex((arg) => /^-?[0-9.]/.test(arg));
  return at < 0 ? args : [...args.slice(0, at), "--", ...args.slice(at)];
}

async function yes(command: Invocation): Promise<number> {
  const block = `${command.args.join(" ") || "y"}\n`.repeat(512);
  for (;;) await command.write(block);
}

async function date(command: Invocation): Promise<number> {
  const now = new Date(command.state.machine.world.wallMs());
  const format = command.args.find((arg) => arg.startsWith("+"))?.slice(1) ?? "%Y-%m-%dT%H:%M:%SZ";
  const [day = "", time = ""] = now.toISOString().split("T");
  const [year = "", month = "", date = ""] = day.split("-");
  const [hour = "", minute = "", second = ""] = time.split(/[:.]/);
  const nanos = String(now.getUTCMilliseconds()).padStart(3, "0").padEnd(9, "0");
  const values: Record<string, string> = {
    Y: year,
    m: month,
    d: date,
    H: hour,
    M: minute,
    S: second,
    N: nanos,
    Z: "UTC",
    z: "+0000",
  };
  const composed: Record<string, string> = {
    s: String(Math.floor(now.getTime() / 1000)),
    F: day,
    T: `${hour}:${minute}:${second}`,
    "%": "%",
  };
  await command.write(
    `${format.replace(/%([a-zA-Z%])/g, (whole, letter: string) => values[letter] ?? composed[letter] ?? whole)}\n`,
  );
  return 0;
}
