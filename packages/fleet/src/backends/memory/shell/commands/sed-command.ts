/**
 * sed: `s`, `p`, `d`, `q`, `a`, `i`, `c` with line, last-line and pattern addresses and ranges; `-n`, `-e`, `-i`, `-E`.
 */

import { guarded } from "@sandlot/sandboxd/patterns";
import { UsageError } from "../failure.ts";
import { type CommandTable, type Invocation, linesOf } from "./invocation.ts";
import { compilePosix } from "./posix-regex.ts";

export const SED_COMMANDS: CommandTable = { sed };

type Address = { readonly line: number } | { readonly last: true } | { readonly expression: RegExp };

interface Step {
  readonly from: Address | null;
  readonly to: Address | null;
  readonly negated: boolean;
  readonly action:
    | { readonly type: "p" | "d" | "q" }
    | { readonly type: "a" | "i" | "c"; readonly text: string }
    | {
        readonly type: "s";
        readonly expression: RegExp;
        readonly replacement: string;
        readonly print: boolean;
        readonly nth: number;
        readonly global: boolean;
      };
  /** Whether the range that this step is for has begun. */
  inRange: boolean;
}

async function sed(command: Invocation): Promise<number> {
  const { scripts, quiet, extended, inPlace, files } = readArguments(command.args);
  const parse = () => new ScriptReader(scripts.join("\n"), extended).steps();
  parse();
  const edit = (text: string) => guarded(scripts.join(" "), () => run(parse(), text, quiet));
  if (!inPlace) {
    const parts: string[] = [];
    const status = await command.eachInput(files, async (source) => {
      parts.push(new TextDecoder().decode(await source.readAll()));
    });
    await command.write(edit(parts.join("")));
    return status;
  }
  return command.each(files, (path) => {
    command.tree.write(path, new TextEncoder().encode(edit(new TextDecoder().decode(command.tree.read(path)))));
  });
}

function readArguments(args: readonly string[]) {
  const scripts: string[] = [];
  const files: string[] = [];
  let [quiet, extended, inPlace] = [false, false, false];
  for (let i = 0; i < args.length; i++) {
    const arg = args[i] ?? "";
    if (arg === "-e" || arg === "--expression") scripts.push(args[++i] ?? "");
    else if (/^-[nErsi]+$/.test(arg)) {
      quiet ||= arg.includes("n");
      extended ||= /[Er]/.test(arg);
      inPlace ||= arg.includes("i");
    } else if (arg.startsWith("-") && arg !== "-") throw new UsageError(`unknown option '${arg}'`);
    else files.push(arg);
  }
  if (scripts.length === 0) {
    const script = files.shift();
    if (script === undefined) throw new UsageError("no script specified");
    scripts.push(script);
  }
  return { scripts, quiet, extended, inPlace, files };
}

function run(steps: readonly Step[], text: string, quiet: boolean): string {
  const lines = linesOf(text);
  const output: string[] = [];
  for (const [index, original] of lines.entries()) {
    const place = { line: index + 1, isLast: index === lines.length - 1 };
    const outcome = runLine(steps, original, place, output);
    if (!quiet && !outcome.deleted) output.push(outcome.line);
    output.push(...outcome.after);
    if (outcome.quit) return `${output.join("\n")}\n`;
  }
  const endsWithNewline = text.endsWith("\n") || output.length === 0;
  return output.length === 0 ? "" : `${output.join("\n")}${endsWithNewline ? "\n" : ""}`;
}

function runLine(steps: readonly Step[], original: string, place: { line: number; isLast: boolean }, output: string[]) {
  const after: string[] = [];
  let line = original;
  for (const step of steps) {
    if (applies(step, line, place) === step.negated) continue;
    const { action } = step;
    switch (action.type) {
      case "p":
        output.push(line);
        break;
      case "d":
        return { line, deleted: true, quit: false, after };
      case "q":
        return { line, deleted: false, quit: true, after };
      case "a":
        after.push(action.text);
        break;
      case "i":
        output.push(action.text);
        break;
      case "c":
        output.push(action.text);
        return { line, deleted: true, quit: false, after };
      case "s": {
        const changed = substitute(line, action);
        if (changed !== null && action.print) output.push(changed);
        line = changed ?? line;
      }
    }
  }
  return { line, deleted: false, quit: false, after };
}

function applies(step: Step, line: string, place: { line: number; isLast: boolean }): boolean {
  if (step.from === null) return true;
  if (step.to === null) return matches(step.from, line, place);
  if (step.inRange) {
    const over = "line" in step.to ? place.line >= step.to.line : matches(step.to, line, place);
    if (over) step.inRange = false;
    return !("line" in step.to && place.line > step.to.line);
  }
  if (!matches(step.from, line, place)) return false;
  step.inRange = !("line" in step.to && step.to.line <= place.line);
  return true;
}

function matches(address: Address, line: string, place: { line: number; isLast: boolean }): boolean {
  if ("line" in address) return address.line === place.line;
  return "last" in address ? place.isLast : address.expression.test(line);
}

function substitute(line: string, action: Step["action"] & { type: "s" }): string | null {
  let count = 0;
  let changed = false;
  const result = line.replace(action.expression, (...args) => {
    count++;
    const match = args[0] as string;
    if (count < action.nth || (!action.global && count > action.nth)) return match;
    changed = true;
    return action.replacement.replace(
      /\\([0-9n&\\/])|\\(.)|(&)/gs,
      (_, escaped: string | undefined, other: string | undefined) => {
        if (escaped === undefined) return other ?? match;
        if (escaped === "n") return "\n";
        return /[0-9]/.test(escaped) ? String((args as unknown[])[Number(escaped)] ?? "") : escaped;
      },
    );
  });
  return changed ? result : null;
}

class ScriptReader {
  readonly #script: string;
  readonly #extended: boolean;
  #at = 0;

  constructor(script: string, extended: boolean) {
    this.#script = script;
    this.#extended = extended;
  }

  steps(): Step[] {
    const steps: Step[] = [];
    for (;;) {
      this.#skip(/[\s;]*/y);
      if (this.#at >= this.#script.length) return steps;
      const from = this.#address();
      const to = from !== null && this.#skip(/\s*,\s*/y) !== "" ? this.#address() : null;
      const negated = this.#skip(/\s*!?\s*/y).includes("!");
      steps.push({ from, to, negated, action: this.#action(), inRange: false });
    }
  }

  #address(): Address | null {
    const digits = this.#skip(/[0-9]+/y);
    if (digits !== "") return { line: Number(digits) };
    if (this.#skip(/\$/y) !== "") return { last: true };
    if (this.#skip(/\//y) === "") return null;
    return { expression: compilePosix(this.#until("/"), { extended: this.#extended }) };
  }

  #action(): Step["action"] {
    const name = this.#script.charAt(this.#at++);
    if (name === "p" || name === "d" || name === "q") return { type: name };
    if (name === "a" || name === "i" || name === "c") {
      this.#skip(/\s*\\?\n?[ \t]*/y);
      return { type: name, text: this.#skip(/[^\n]*/y) };
    }
    if (name !== "s") throw new UsageError(`unknown command: '${name}'`);
    const delimiter = this.#script.charAt(this.#at++);
    const pattern = this.#until(delimiter);
    const replacement = this.#until(delimiter);
    const flags = this.#skip(/[gpiI0-9]*/y);
    const expression = compilePosix(pattern, { extended: this.#extended, ignoreCase: /i/i.test(flags), global: true });
    const nth = Number(/[0-9]+/.exec(flags)?.[0] ?? "1");
    return { type: "s", expression, replacement, print: flags.includes("p"), nth, global: flags.includes("g") };
  }

  /** Up to a delimiter that is not escaped; an escaped one loses its backslash. */
  #until(delimiter: string): string {
    let text = "";
    for (; this.#at < this.#script.length; this.#at++) {
      const char = this.#script.charAt(this.#at);
      if (char === delimiter) {
        this.#at++;
        return text;
      }
      if (char === "\\") {
        const next = this.#script.charAt(++this.#at);
        text += next === delimiter ? next : char + next;
      } else text += char;
    }
    throw new UsageError("unterminated address or command");
  }

  #skip(expression: RegExp): string {
    expression.lastIndex = this.#at;
    const text = expression.exec(this.#script)?.[0] ?? "";
    this.#at += text.length;
    return text;
  }
}
