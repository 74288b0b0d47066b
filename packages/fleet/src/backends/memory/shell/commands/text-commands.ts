/**
 * Commands that pass text on: whole, in part, sorted, counted or translated.
 *
 * Text is handled with one character per byte, so that bytes which are no valid text come out as they went in.
 */

import { CHARACTER_CLASSES } from "@sandlot/sandboxd/patterns";
import { UsageError } from "../failure.ts";
import { openSink } from "../redirect.ts";
import { ESCAPES } from "../words.ts";
import {
  bytesToText,
  type CommandTable,
  countOf,
  type Invocation,
  linesOf,
  readOptions,
  textToBytes,
} from "./invocation.ts";

export const TEXT_COMMANDS: CommandTable = { cat, head, tail, tee, wc, sort, uniq, cut, tr, tac, rev };

async function cat(command: Invocation): Promise<number> {
  const { flags, operands } = readOptions(command.args, "nu");
  let number = 0;
  return command.eachInput(operands, async (source) => {
    if (!flags.has("n")) {
      for (let chunk = await source.read(); chunk !== null; chunk = await source.read()) await command.write(chunk);
      return;
    }
    for (let line = await source.readLine(); line !== null; line = await source.readLine()) {
      await command.write(`${String(++number).padStart(6)}\t`);
      await command.write(line);
    }
  });
}

/** `-5` is an old way to write `-n 5`. */
function countOptions(args: readonly string[]): {
  lines: string;
  bytes: string | undefined;
  quiet: boolean;
  operands: readonly string[];
} {
  const modern = args.flatMap((arg) => (/^-[0-9]+$/.test(arg) ? ["-n", arg.slice(1)] : [arg]));
  const { flags, values, operands } = readOptions(modern, "qv", "nc", { lines: "n", bytes: "c" });
  return { lines: values.get("n") ?? "10", bytes: values.get("c"), quiet: flags.has("q"), operands };
}

async function head(command: Invocation): Promise<number> {
  const { lines, bytes, quiet, operands } = countOptions(command.args);
  const max = countOf(bytes ?? lines, "number");
  let shown = 0;
  return command.eachInput(operands, async (source, name) => {
    if (operands.length > 1 && !quiet) await command.write(`${shown++ > 0 ? "\n" : ""}==> ${name} <==\n`);
    if (max < 0) {
      const all = bytesToText(await source.readAll());
      const kept =
        bytes !== undefined
          ? all.slice(0, max)
          : all
              .split(/(?<=\n)/)
              .slice(0, max)
              .join("");
      return command.write(textToBytes(kept));
    }
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

async function tail(command: Invocation): Promise<number> {
  const { lines, bytes, quiet, operands } = countOptions(command.args);
  const given = bytes ?? lines;
  const count = Math.abs(countOf(given, "number"));
  let shown = 0;
  return command.eachInput(operands, async (source, name) => {
    if (operands.length > 1 && !quiet) await command.write(`${shown++ > 0 ? "\n" : ""}==> ${name} <==\n`);
    const text = bytesToText(await source.readAll());
    const items = bytes === undefined ? text.split(/(?<=\n)/) : null;
    const from = (length: number) => (given.startsWith("+") ? Math.max(0, count - 1) : Math.max(0, length - count));
    const kept = items === null ? text.slice(from(text.length)) : items.slice(from(items.length)).join("");
    await command.write(textToBytes(kept));
  });
}

async function tee(command: Invocation): Promise<number> {
  const { flags, operands } = readOptions(command.args, "ai", "", { append: "a" });
  const sinks = operands.map((operand) => openSink(command.state, operand, flags.has("a"), command.streams));
  for (let chunk = await command.stdin.read(); chunk !== null; chunk = await command.stdin.read()) {
    for (const sink of sinks) await command.write(chunk, sink);
    await command.write(chunk);
  }
  return 0;
}

async function wc(command: Invocation): Promise<number> {
  const { flags, operands } = readOptions(command.args, "lwcm", "", { lines: "l", words: "w", bytes: "c", chars: "m" });
  const wanted = flags.size === 0 ? ["l", "w", "c"] : ["l", "w", "m", "c"].filter((flag) => flags.has(flag));
  const total: Record<string, number> = { l: 0, w: 0, m: 0, c: 0 };
  const row = (counts: Record<string, number>, name: string) => {
    const cells = wanted.map((flag) => String(counts[flag] ?? 0));
    const width = wanted.length > 1 || operands.length > 1 ? 7 : 0;
    return `${cells.map((cell) => cell.padStart(width)).join(" ")}${name === "" ? "" : ` ${name}`}\n`;
  };
  const status = await command.eachInput(operands, async (source, name) => {
    const counts: Record<string, number> = { l: 0, w: 0, m: 0, c: 0 };
    let inWord = false;
    for (let chunk = await source.read(); chunk !== null; chunk = await source.read()) {
      await command.process.breathe();
      inWord = count(chunk, counts, inWord);
    }
    for (const flag of Object.keys(total)) total[flag] = (total[flag] ?? 0) + (counts[flag] ?? 0);
    await command.write(row(counts, name === "-" ? "" : name));
  });
  if (operands.length > 1) await command.write(row(total, "total"));
  return status;
}

function count(chunk: Uint8Array, counts: Record<string, number>, startsInWord: boolean): boolean {
  let inWord = startsInWord;
  let [lines, words, chars] = [0, 0, 0];
  for (const byte of chunk) {
    if (byte === 0x0a) lines++;
    if ((byte & 0xc0) !== 0x80) chars++;
    const blank = byte === 0x20 || (byte >= 0x09 && byte <= 0x0d);
    if (!blank && !inWord) words++;
    inWord = !blank;
  }
  counts.l = (counts.l ?? 0) + lines;
  counts.w = (counts.w ?? 0) + words;
  counts.m = (counts.m ?? 0) + chars;
  counts.c = (counts.c ?? 0) + chunk.length;
  return inWord;
}

async function sort(command: Invocation): Promise<number> {
  const { flags, values, operands } = readOptions(command.args, "rnufbs", "kto", { reverse: "r", unique: "u" });
  const { text, status } = await command.allInput(operands);
  const field = values.has("k") ? Number.parseInt(values.get("k") ?? "1", 10) : 0;
  const separator = values.get("t");
  const key = (line: string): string => {
    const part =
      field === 0
        ? line
        : (separator === undefined ? line.trim().split(/\s+/) : line.split(separator))
            .slice(field - 1)
            .join(separator ?? " ");
    return flags.has("f") ? part.toUpperCase() : part;
  };
  const isNumeric = flags.has("n") || /n/.test(values.get("k") ?? "");
  const compare = (a: string, b: string): number => {
    const byNumber = isNumeric ? (Number.parseFloat(key(a)) || 0) - (Number.parseFloat(key(b)) || 0) : 0;
    if (byNumber !== 0 || (isNumeric && flags.has("u"))) return byNumber;
    return key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : flags.has("u") || a === b ? 0 : a < b ? -1 : 1;
  };
  const lines = linesOf(text).sort(compare);
  if (flags.has("r")) lines.reverse();
  const kept = flags.has("u")
    ? lines.filter((line, index) => index === 0 || compare(lines[index - 1] ?? "", line) !== 0)
    : lines;
  const target = values.get("o");
  const output = textToBytes(kept.map((line) => `${line}\n`).join(""));
  await command.write(
    output,
    target === undefined ? command.streams.stdout : openSink(command.state, target, false, command.streams),
  );
  return status;
}

async function uniq(command: Invocation): Promise<number> {
  const { flags, operands } = readOptions(command.args, "cdui");
  const { text, status } = await command.allInput(operands.slice(0, 1));
  const groups: { line: string; count: number }[] = [];
  const fold = (line: string | undefined) => (flags.has("i") ? line?.toLowerCase() : line);
  for (const line of linesOf(text)) {
    const last = groups.at(-1);
    if (last !== undefined && fold(last.line) === fold(line)) last.count++;
    else groups.push({ line, count: 1 });
  }
  const kept = groups.filter(({ count }) => (!flags.has("d") || count > 1) && (!flags.has("u") || count === 1));
  await command.write(
    textToBytes(
      kept.map(({ line, count }) => `${flags.has("c") ? `${String(count).padStart(7)} ` : ""}${line}\n`).join(""),
    ),
  );
  return status;
}

async function cut(command: Invocation): Promise<number> {
  const { flags, values, operands } = readOptions(command.args, "s", "dfcb");
  const list = values.get("f") ?? values.get("c") ?? values.get("b");
  if (list === undefined) throw new UsageError("you must specify a list of bytes, characters, or fields");
  const isChosen = ranges(list);
  const { text, status } = await command.allInput(operands);
  const delimiter = values.get("d") ?? "\t";
  const rows = linesOf(text).flatMap((line) => {
    if (!values.has("f")) return [[...line].filter((_, index) => isChosen(index + 1)).join("")];
    if (!line.includes(delimiter)) return flags.has("s") ? [] : [line];
    return [
      line
        .split(delimiter)
        .filter((_, index) => isChosen(index + 1))
        .join(delimiter),
    ];
  });
  await command.write(textToBytes(rows.map((row) => `${row}\n`).join("")));
  return status;
}

function ranges(list: string): (position: number) => boolean {
  const parsed = list.split(",").map((part) => {
    const match = /^([0-9]*)(-?)([0-9]*)$/.exec(part);
    if (match === null || part === "" || part === "-") throw new UsageError(`invalid range '${part}'`);
    const from = match[1] === "" ? 1 : Number(match[1]);
    return { from, to: match[2] === "" ? from : match[3] === "" ? Number.POSITIVE_INFINITY : Number(match[3]) };
  });
  return (position) => parsed.some(({ from, to }) => position >= from && position <= to);
}

async function tr(command: Invocation): Promise<number> {
  const { flags, operands } = readOptions(command.args, "dscC");
  const [first, second] = operands.map((set) => characters(set));
  if (first === undefined || (second === undefined && !flags.has("d") && !flags.has("s")))
    throw new UsageError("missing operand");
  const complement = flags.has("c") || flags.has("C");
  const isMember = (char: string) => first.includes(char) !== complement;
  const target = flags.has("d") ? undefined : second;
  const squeezed = flags.has("s") ? (target ?? (flags.has("d") ? second : undefined)) : undefined;
  const map = (char: string): string => {
    if (!isMember(char)) return char;
    if (flags.has("d")) return "";
    if (target === undefined) return char;
    return target.charAt(Math.min(complement ? target.length : first.indexOf(char), target.length - 1));
  };
  const table = Array.from({ length: 256 }, (_, code) => map(String.fromCharCode(code)));
  const codes = table.map((char) => (char === "" ? -1 : char.charCodeAt(0)));
  const squeezes = table.map(
    (char) => flags.has("s") && (squeezed === undefined ? isMember(char) : squeezed.includes(char)),
  );
  let last = -1;
  for (let chunk = await command.stdin.read(); chunk !== null; chunk = await command.stdin.read()) {
    const output = new Uint8Array(chunk.length);
    let size = 0;
    for (const byte of chunk) {
      const code = codes[byte] ?? -1;
      if (code < 0 || (code === last && squeezes[byte] === true)) continue;
      output[size++] = code;
      last = code;
    }
    await command.write(output.subarray(0, size));
  }
  return 0;
}

/** The members of a `tr` set: escapes, ranges and classes written out. */
function characters(set: string): string {
  const bytes = Buffer.from(set, "utf8").toString("latin1");
  const plain = bytes
    .replace(/\[:([a-z]+):\]/g, (whole, name: string) => {
      const members = CHARACTER_CLASSES[name];
      if (members === undefined) return whole;
      const expression = new RegExp(`[${members}]`);
      return Array.from({ length: 128 }, (_, code) => String.fromCharCode(code))
        .filter((char) => expression.test(char))
        .join("");
    })
    .replace(/\\([0-7]{1,3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)))
    .replace(/\\(.)/gs, (_, char: string) => ESCAPES[char] ?? char);
  return plain.replace(/([\s\S])-([\s\S])/g, (whole, from: string, to: string) => {
    const [start, end] = [from.charCodeAt(0), to.charCodeAt(0)];
    return end < start
      ? whole
      : Array.from({ length: end - start + 1 }, (_, index) => String.fromCharCode(start + index)).join("");
  });
}

async function tac(command: Invocation): Promise<number> {
  const { text, status } = await command.allInput(command.args);
  await command.write(
    textToBytes(
      linesOf(text)
        .reverse()
        .map((line) => `${line}\n`)
        .join(""),
    ),
  );
  return status;
}

async function rev(command: Invocation): Promise<number> {
  const { text, status } = await command.allInput(command.args);
  await command.write(
    textToBytes(
      linesOf(text)
        .map((line) => `${[...line].reverse().join("")}\n`)
        .join(""),
    ),
  );
  return status;
}
