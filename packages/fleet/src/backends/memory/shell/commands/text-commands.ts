/**
 * Commands that make text or pass it on: whole, in part, counted or translated.
 *
 * Text has one character per byte, so that invalid text passes through unchanged.
 */

import { UsageError } from "../failure.ts";
import { openSink } from "../redirect.ts";
import { Unsupported } from "../syntax.ts";
import {
  bytesToText,
  type CommandTable,
  countOf,
  type Invocation,
  linesOf,
  type Options,
  textToBytes,
} from "./invocation.ts";

export const TEXT_COMMANDS: CommandTable = {
  echo: async (command) => {
    const hasNewline = command.args[0] !== "-n";
    const words = hasNewline ? command.args : command.args.slice(1);
    await command.write(words.join(" ") + (hasNewline ? "\n" : ""));
    return 0;
  },
  printf,
  seq,
  yes: async (command) => {
    const block = `${command.args.join(" ") || "y"}\n`.repeat(512);
    for (;;) await command.write(block);
  },
  cat: (command) =>
    command.eachInput(command.options("").operands, async (source) => {
      for (let chunk = await source.read(); chunk !== null; chunk = await source.read()) await command.write(chunk);
    }),
  head,
  tail: async (command) => {
    const { values, operands } = command.options("", "n");
    const { text, status } = await command.allInput(atMostOne(command, operands));
    const lines = text.split(/(?<=\n)/);
    const given = values.get("n") ?? "10";
    const from = given.startsWith("+") ? Math.max(0, countOf(given.slice(1)) - 1) : lines.length - countOf(given);
    await command.write(textToBytes(lines.slice(Math.max(0, from)).join("")));
    return status;
  },
  tee: async (command) => {
    const { flags, operands } = command.options("a");
    const sinks = operands.map((operand) => openSink(command.state, operand, flags.has("a"), command.streams));
    for (let chunk = await command.stdin.read(); chunk !== null; chunk = await command.stdin.read()) {
      for (const sink of sinks) await command.write(chunk, sink);
      await command.write(chunk);
    }
    return 0;
  },
  wc: countText,
  grep,
  tr: translate,
  rev: async (command) => {
    const { text, status } = await command.allInput(command.options("").operands);
    await command.write(
      textToBytes(
        linesOf(text)
          .map((line) => `${[...line].reverse().join("")}\n`)
          .join(""),
      ),
    );
    return status;
  },
  /** `sed -n 3p` and `sed -n 3,5p`. */
  sed: async (command) => {
    const [option, script = "", ...files] = command.args;
    const [, from, to = from] = /^([0-9]{1,9})(?:,([0-9]{1,9}))?p$/.exec(script) ?? [];
    if (option !== "-n" || from === undefined || to === undefined)
      throw new Unsupported(`sed ${command.args.join(" ")}`);
    const { text, status } = await command.allInput(files);
    const lines = text.split(/(?<=\n)/).slice(Number(from) - 1, Number(to));
    await command.write(textToBytes(lines.join("")));
    return status;
  },
  /** `cut -c 2-` and `cut -c 2-5`. */
  cut: async (command) => {
    const { values, operands } = command.options("", "c");
    const [, from, to = ""] = /^([0-9]{1,9})-([0-9]{0,9})$/.exec(values.get("c") ?? "") ?? [];
    if (from === undefined) throw new Unsupported(`cut ${command.args.join(" ")}`);
    const { text, status } = await command.allInput(operands);
    const rows = linesOf(text).map((line) => `${line.slice(Number(from) - 1, to === "" ? undefined : Number(to))}\n`);
    await command.write(textToBytes(rows.join("")));
    return status;
  },
  base64: async (command) => {
    const { flags, values, operands } = command.options("d", "w");
    const { text, status } = await command.allInput(operands);
    if (flags.has("d")) {
      await command.write(Buffer.from(text, "base64"));
      return status;
    }
    const width = countOf(values.get("w") ?? "76");
    const encoded = Buffer.from(text, "latin1").toString("base64");
    const lines = width === 0 ? [encoded] : (encoded.match(new RegExp(`.{1,${width}}`, "g")) ?? []);
    await command.write(lines.join("\n") + (width === 0 ? "" : "\n"));
    return status;
  },
};

const ESCAPES: Readonly<Record<string, string>> = { n: "\n", t: "\t", r: "\r", "\\": "\\" };
const PRINTF_PART = /\\([0-7]{1,3})|\\([ntr\\])|%(%)|%(?:\.([0-9]{1,4}))?(s)|%(d)|([\\%].?)/gs;

/** Applies the format again as long as arguments are left. Knows `%s`, `%.3s`, `%d`, `%%` and octal bytes. */
async function printf(command: Invocation): Promise<number> {
  const asBytes = (text: string) => bytesToText(new TextEncoder().encode(text));
  const given = command.args.map(asBytes);
  const [format, ...args] = given[0] === "--" ? given.slice(1) : given;
  if (format === undefined) throw new UsageError("usage: printf format [arguments]");
  const once = () =>
    format.replace(PRINTF_PART, (_, octal, letter, percent, max, text, number, other) => {
      if (octal !== undefined) return String.fromCharCode(Number.parseInt(octal, 8) & 255);
      if (letter !== undefined) return ESCAPES[letter] ?? "";
      if (percent !== undefined) return "%";
      if (other !== undefined) throw new Unsupported(`printf ${other}`);
      const arg = args.shift() ?? "";
      if (text !== undefined) return arg.slice(0, max === undefined ? undefined : Number(max));
      if (number !== undefined && !/^(?:[-+]?[0-9]+)?$/.test(arg)) throw new UsageError(`'${arg}': expected a number`);
      return String(Number(arg));
    });
  let output = "";
  do {
    const before = args.length;
    output += once();
    if (args.length === before) break;
  } while (args.length > 0);
  await command.write(textToBytes(output));
  return 0;
}

const SEQUENCE_MAX = 10_000_000;

async function seq(command: Invocation): Promise<number> {
  const { values, operands } = command.options("", "s");
  const numbers = operands.map(countOf);
  const [first, last] = numbers.length === 1 ? [1, numbers[0]] : numbers;
  if (first === undefined || last === undefined || numbers.length > 2)
    throw new Unsupported(`seq ${command.args.join(" ")}`);
  if (last - first > SEQUENCE_MAX) throw new UsageError("sequence too long");
  const separator = values.get("s") ?? "\n";
  for (let number = first; number <= last; number++)
    await command.write(`${number}${number === last ? "\n" : separator}`);
  return 0;
}

async function head(command: Invocation): Promise<number> {
  const { values, operands } = command.options("", "nc");
  const bytes = values.get("c");
  const max = countOf(bytes ?? values.get("n") ?? "10");
  return command.eachInput(atMostOne(command, operands), async (source) => {
    for (let left = max; left > 0; ) {
      const chunk = bytes === undefined ? await source.readLine() : await source.read();
      if (chunk === null) return;
      const part = bytes === undefined ? chunk : chunk.subarray(0, left);
      if (part.length < chunk.length) source.unread(chunk.subarray(part.length));
      left -= bytes === undefined ? 1 : part.length;
      await command.write(part);
    }
  });
}

/** Other shells print headings for several files of `head` and `tail`. */
function atMostOne({ name }: Invocation, operands: Options["operands"]): Options["operands"] {
  if (operands.length > 1) throw new Unsupported(`${name} of several files`);
  return operands;
}

/** `wc -l` and `wc -c`. */
async function countText(command: Invocation): Promise<number> {
  const { flags, operands } = command.options("lc");
  if (flags.size !== 1) throw new Unsupported("wc with anything but one of -l and -c");
  if (operands.length > 1) throw new Unsupported("wc of several files");
  return command.eachInput(operands, async (source, name) => {
    let count = 0;
    for (let chunk = await source.read(); chunk !== null; chunk = await source.read()) {
      await command.process.breathe();
      count += flags.has("c") ? chunk.length : chunk.reduce((lines, byte) => lines + Number(byte === 0x0a), 0);
    }
    await command.write(`${count}${name === "-" ? "" : ` ${name}`}\n`);
  });
}

/** Searches plain text, in one file or the input: without regular expressions it is never slow. */
async function grep(command: Invocation): Promise<number> {
  const { flags, operands } = command.options("cqx");
  const [pattern, ...files] = operands;
  if (pattern === undefined) throw new UsageError("usage: grep [-cqx] text [file]");
  if (/[\\^$.*[\n]/.test(pattern)) throw new Unsupported(`grep of a pattern: ${pattern}`);
  const sought = bytesToText(new TextEncoder().encode(pattern));
  const { text, status } = await command.allInput(atMostOne(command, files));
  const found = linesOf(text).filter((line) => (flags.has("x") ? line === sought : line.includes(sought)));
  if (flags.has("c")) await command.write(`${found.length}\n`);
  else if (!flags.has("q")) await command.write(textToBytes(found.map((line) => `${line}\n`).join("")));
  return status === 0 ? Number(found.length === 0) : 2;
}

/** `tr set set`: characters, ranges and octal bytes. */
async function translate(command: Invocation): Promise<number> {
  const [from, to, ...others] = command.options("").operands.map(members);
  if (from === undefined || to === undefined || to === "" || others.length > 0)
    throw new Unsupported(`tr ${command.args.join(" ")}`);
  const codes = Uint8Array.from({ length: 256 }, (_, code) => {
    const at = from.lastIndexOf(String.fromCharCode(code));
    return at < 0 ? code : to.charCodeAt(Math.min(at, to.length - 1));
  });
  for (let chunk = await command.stdin.read(); chunk !== null; chunk = await command.stdin.read())
    await command.write(chunk.map((byte) => codes[byte] ?? byte));
  return 0;
}

function members(set: string): string {
  if (/\[[:=]|\\[^0-7]/.test(set)) throw new Unsupported(`tr ${set}`);
  const bytes = bytesToText(new TextEncoder().encode(set));
  const plain = bytes.replace(/\\([0-7]{1,3})/g, (_, octal: string) =>
    String.fromCharCode(Number.parseInt(octal, 8) & 255),
  );
  return plain.replace(/([\s\S])-([\s\S])/g, (_, first: string, last: string) => {
    const [start, end] = [first.charCodeAt(0), last.charCodeAt(0)];
    if (end < start) throw new UsageError(`range-endpoints of '${first}-${last}' are in reverse order`);
    return Array.from({ length: end - start + 1 }, (_, index) => String.fromCharCode(start + index)).join("");
  });
}
