/**
 * grep.
 */

import { guarded, nameMatcher } from "@sandlot/sandboxd/patterns";
import { Source } from "../../exec/streams.ts";
import { bytesOf } from "../../files/node.ts";
import { below } from "../../files/search.ts";
import { baseName, join } from "../../files/tree.ts";
import { UsageError } from "../failure.ts";
import { type CommandTable, countOf, type Invocation, readOptions } from "./invocation.ts";
import { compilePosix, escapeLiteral } from "./posix-regex.ts";

export const GREP_COMMANDS: CommandTable = {
  grep: (command) => grep(command, ""),
  egrep: (command) => grep(command, "E"),
  fgrep: (command) => grep(command, "F"),
};

interface Search {
  readonly pattern: string;
  readonly expression: RegExp;
  readonly flags: ReadonlySet<string>;
  readonly max: number;
  readonly withName: boolean;
}

/** Lines handed to the guarded matcher at once. */
const BATCH_LINES = 1_000;
const LONG = {
  "ignore-case": "i",
  "invert-match": "v",
  count: "c",
  "line-number": "n",
  "files-with-matches": "l",
  quiet: "q",
  recursive: "r",
  "extended-regexp": "E",
  "fixed-strings": "F",
  "only-matching": "o",
  "word-regexp": "w",
  "max-count": "m",
  include: "I",
  regexp: "e",
} as const;

async function grep(command: Invocation, variant: "" | "E" | "F"): Promise<number> {
  const { flags, values, operands } = readOptions(command.args, "ivcnlqrRsEFHhowxLaP", "emI", LONG);
  const rest = [...operands];
  const pattern = values.get("e") ?? rest.shift();
  if (pattern === undefined) throw new UsageError("usage: grep [options] pattern [file...]");
  const recursive = flags.has("r") || flags.has("R");
  const files = rest.length === 0 && recursive ? ["."] : rest;
  const search: Search = {
    pattern,
    expression: expressionOf(pattern, variant === "" ? flags : new Set([...flags, variant])),
    flags,
    max: values.has("m") ? countOf(values.get("m") ?? "", "max count") : Number.POSITIVE_INFINITY,
    withName: flags.has("H") || (!flags.has("h") && (files.length > 1 || recursive)),
  };
  let found = false;
  const one = async (source: Source, name: string) => {
    if (await searchOne(command, search, source, name)) found = true;
  };
  const status = recursive ? await recurse(command, files, values.get("I"), one) : await command.eachInput(files, one);
  if (flags.has("q") && found) return 0;
  return status === 0 ? Number(!found) : 2;
}

async function recurse(
  command: Invocation,
  roots: readonly string[],
  include: string | undefined,
  one: (source: Source, name: string) => Promise<void>,
): Promise<number> {
  const isIncluded = include === undefined ? () => true : nameMatcher(include);
  return command.each(roots, async (path, operand) => {
    const root = command.tree.get(path);
    const found = root.kind === "directory" ? [...below(root)] : [{ relative: "", node: root }];
    for (const { relative, node } of found.sort((a, b) => (a.relative < b.relative ? -1 : 1))) {
      const name = relative === "" ? operand : join(operand, relative);
      if (node.kind === "file" && isIncluded(baseName(name))) await one(Source.of(bytesOf(node)), name);
    }
  });
}

function expressionOf(pattern: string, flags: ReadonlySet<string>): RegExp {
  const alternatives = pattern.split("\n").map((line) => (flags.has("F") ? escapeLiteral(line) : line));
  const extended = flags.has("E") || flags.has("F") || flags.has("P");
  const sources = alternatives.map((line) => compilePosix(line, { extended }).source);
  let source = sources.length === 1 ? (sources[0] ?? "") : `(?:${sources.join(")|(?:")})`;
  if (flags.has("w")) source = `(?<!\\w)(?:${source})(?!\\w)`;
  if (flags.has("x")) source = `^(?:${source})$`;
  return new RegExp(source, flags.has("i") ? "gi" : "g");
}

async function searchOne(command: Invocation, search: Search, source: Source, name: string): Promise<boolean> {
  const { flags, max } = search;
  let count = 0;
  let lineNumber = 0;
  const quiet = flags.has("q") || flags.has("l") || flags.has("L") || flags.has("c");
  for (
    let lines = await nextLines(command, source);
    lines.length > 0 && count < max;
    lines = await nextLines(command, source)
  ) {
    const batch = lines;
    const hits = guarded(search.pattern, () => batch.map((line) => matchesIn(line, search)));
    for (const [index, matches] of hits.entries()) {
      if (matches === null || count >= max) continue;
      count++;
      if (quiet) continue;
      const shown = flags.has("o") ? matches : [batch[index] ?? ""];
      const prefix = (search.withName ? `${name}:` : "") + (flags.has("n") ? `${lineNumber + index + 1}:` : "");
      for (const text of shown) await command.write(`${prefix}${text}\n`);
    }
    lineNumber += lines.length;
    if (count > 0 && (flags.has("q") || flags.has("l"))) break;
  }
  if (flags.has("c") && !flags.has("q")) await command.write(`${search.withName ? `${name}:` : ""}${count}\n`);
  const listed = flags.has("l") ? count > 0 : flags.has("L") && count === 0;
  if (listed) await command.write(`${name === "-" ? "(standard input)" : name}\n`);
  return flags.has("L") ? listed : count > 0;
}

/** What matched, or `null`. With `-v` a line that does not match counts as matched whole. */
function matchesIn(line: string, { expression, flags }: Search): readonly string[] | null {
  expression.lastIndex = 0;
  const matches = flags.has("o")
    ? (line.match(expression)?.filter((match) => match !== "") ?? null)
    : expression.test(line)
      ? [line]
      : null;
  if (flags.has("v")) return matches === null ? [line] : null;
  return matches;
}

async function nextLines(command: Invocation, source: Source): Promise<string[]> {
  const lines: string[] = [];
  const chunk = await source.read();
  await command.process.breathe();
  if (chunk === null) return lines;
  source.unread(chunk);
  // As many whole lines as are there: what comes next may take a while, and its reader should not have to wait.
  const available = Math.max(
    1,
    chunk.reduce((count, byte) => count + Number(byte === 0x0a), 0),
  );
  while (lines.length < Math.min(available, BATCH_LINES)) {
    const line = await source.readLine();
    if (line === null) break;
    lines.push(new TextDecoder().decode(line).replace(/\n$/, ""));
  }
  return lines;
}
