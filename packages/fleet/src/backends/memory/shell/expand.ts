/**
 * Expansion: from a word to the texts a command sees. In the order POSIX prescribes: tilde, parameters, substitutions
 * and arithmetic; then splitting into fields; then path names. What was quoted is neither split nor matched.
 */

import { isPattern, nameMatcher } from "@sandlot/sandboxd/patterns";
import { resolvePath } from "../files/tree.ts";
import { evaluate } from "./arithmetic.ts";
import { ShellError, type ShellState } from "./state.ts";
import type { List, ParameterPart, Word, WordPart } from "./syntax.ts";

/** Runs a `$( … )` and gives its output without the last newlines. */
export type Substitute = (script: List) => Promise<string>;

interface Piece {
  readonly text: string;
  readonly quoted: boolean;
}
type Field = Piece[];

/** A bound on what one word may become: a pattern over a large tree, or a huge variable that is split. */
const FIELDS_MAX = 100_000;
/** Trimming tries every length, so its work grows with the square of this. Paths are never longer. */
const TRIM_MAX_CHARS = 4_096;

export class Expander {
  readonly #state: ShellState;
  readonly #substitute: Substitute;

  constructor(state: ShellState, substitute: Substitute) {
    this.#state = state;
    this.#substitute = substitute;
  }

  /** The arguments that words become: none, one or many each. */
  async words(words: readonly Word[]): Promise<string[]> {
    const results: string[] = [];
    for (const word of words) {
      for (const field of await this.#fields(word)) results.push(...this.#paths(field));
      if (results.length > FIELDS_MAX) throw new ShellError("argument list too long");
    }
    return results;
  }

  /** One text, neither split nor matched: a value, a target, a here-document. */
  async text(word: Word): Promise<string> {
    let text = "";
    for (const [index, part] of word.entries()) text += await this.#partText(part, index === 0);
    return text;
  }

  /** A pattern for `case` and `${x%…}`: what was quoted in it stands for itself. */
  async pattern(word: Word): Promise<string> {
    let pattern = "";
    for (const [index, part] of word.entries()) {
      const text = await this.#partText(part, index === 0);
      pattern += part.quoted ? escapePattern(text) : text;
    }
    return pattern;
  }

  async #partText(part: WordPart, first: boolean): Promise<string> {
    switch (part.type) {
      case "text":
        return first && !part.quoted ? this.#tilde(part.text) : part.text;
      case "parameter":
        return (await this.#parameter(part)) ?? "";
      case "substitution":
        return this.#substitute(part.script);
      case "arithmetic":
        return this.#arithmetic(part.expression);
    }
  }

  async #fields(word: Word): Promise<Field[]> {
    const fields = new Fields(this.#state.variables.get("IFS") ?? " \t\n");
    for (const [index, part] of word.entries()) {
      if (part.type === "parameter" && part.name === "@" && part.operator === null) {
        for (const [at, value] of this.#state.positional.entries()) {
          if (at > 0) fields.end();
          fields.add(value, part.quoted);
        }
      } else {
        const text = await this.#partText(part, index === 0);
        if (part.type === "text") fields.addLiteral(text, part.quoted);
        else fields.add(text, part.quoted);
      }
    }
    return fields.take();
  }

  async #parameter(part: ParameterPart): Promise<string | undefined> {
    const { name, operator, argument } = part;
    const value = this.#state.parameter(name);
    switch (operator) {
      case null:
        return this.#checked(name, value);
      case "length":
        return String(
          [
            ...(name === "@" || name === "*"
              ? String(this.#state.positional.length)
              : (this.#checked(name, value) ?? "")),
          ].length,
        );
      case "#":
      case "##":
      case "%":
      case "%%":
        return trim(this.#checked(name, value) ?? "", operator, await this.pattern(argument));
    }
    const missing = operator.startsWith(":") ? value === undefined || value === "" : value === undefined;
    switch (operator.replace(":", "")) {
      case "+":
        return missing ? "" : this.text(argument);
      case "-":
        return missing ? this.text(argument) : value;
      case "=": {
        if (!missing) return value;
        const assigned = await this.text(argument);
        this.#state.assign(name, assigned);
        return assigned;
      }
      default: {
        if (!missing) return value;
        throw new ShellError(`${name}: ${(await this.text(argument)) || "parameter not set"}`);
      }
    }
  }

  #checked(name: string, value: string | undefined): string | undefined {
    if (value === undefined && this.#state.options.nounset && name !== "@" && name !== "*")
      throw new ShellError(`${name}: parameter not set`);
    return value;
  }

  async #arithmetic(expression: Word): Promise<string> {
    const state = this.#state;
    const variables = {
      get: (name: string) => state.parameter(name),
      set: (name: string, value: string) => state.assign(name, value),
    };
    return String(evaluate(await this.text(expression), variables));
  }

  #tilde(text: string): string {
    if (text !== "~" && !text.startsWith("~/")) return text;
    return (this.#state.variables.get("HOME") ?? "~") + text.slice(1);
  }

  /** What a field matches in the tree, in order; itself when it matches nothing. */
  #paths(field: Field): string[] {
    const literal = field.map(({ text }) => text).join("");
    if (!field.some(({ text, quoted }) => !quoted && isPattern(text))) return [literal];
    const pattern = field.map(({ text, quoted }) => (quoted ? escapePattern(text) : text)).join("");
    const names = pattern.split("/");
    const found = pattern.startsWith("/") ? this.#match("/", names.slice(1)) : this.#match("", names);
    return found.length === 0 ? [literal] : found.sort();
  }

  #match(prefix: string, names: readonly string[]): string[] {
    const [name, ...rest] = names;
    if (name === undefined) return [prefix];
    const { tree, cwd } = this.#state;
    if (!isPattern(name)) {
      const path = prefix + unescapePattern(name);
      const there = tree.find(resolvePath(cwd, path), { follow: rest.length > 0 }) !== undefined;
      return there ? this.#match(rest.length > 0 ? `${path}/` : path, rest) : [];
    }
    const directory = tree.find(resolvePath(cwd, prefix === "" ? "." : prefix));
    if (directory?.kind !== "directory") return [];
    const matches = nameMatcher(name);
    const results: string[] = [];
    for (const entry of directory.entries.keys()) {
      if (entry.startsWith(".") && !name.startsWith(".")) continue;
      if (matches(entry)) results.push(...this.#match(`${prefix}${entry}${rest.length > 0 ? "/" : ""}`, rest));
      if (results.length > FIELDS_MAX) throw new ShellError("argument list too long");
    }
    return results;
  }
}

/** Builds fields. Only the results of expansions are split, never what stands in the script. */
class Fields {
  readonly #separators: string;
  readonly #done: Field[] = [];
  #field: Field | null = null;

  constructor(separators: string) {
    this.#separators = separators;
  }

  addLiteral(text: string, quoted: boolean): void {
    this.#field ??= [];
    this.#field.push({ text, quoted });
  }

  add(text: string, quoted: boolean): void {
    if (quoted) this.addLiteral(text, true);
    else this.#split(text);
  }

  #split(text: string): void {
    let run = "";
    for (const char of text) {
      if (!this.#separators.includes(char)) {
        run += char;
        continue;
      }
      if (run !== "") this.addLiteral(run, false);
      else if (!/\s/.test(char)) this.addLiteral("", false);
      run = "";
      this.end();
    }
    if (run !== "") this.addLiteral(run, false);
  }

  end(): void {
    if (this.#field !== null) this.#done.push(this.#field);
    this.#field = null;
  }

  take(): Field[] {
    this.end();
    return this.#done;
  }
}

/** Removes the shortest (`#`, `%`) or longest (`##`, `%%`) part that matches, from the front or the end. */
function trim(value: string, operator: "#" | "##" | "%" | "%%", pattern: string): string {
  if (value.length > TRIM_MAX_CHARS) throw new ShellError(`more than ${TRIM_MAX_CHARS} characters to trim`);
  const matches = nameMatcher(pattern);
  const lengths = Array.from({ length: value.length + 1 }, (_, length) => length);
  if (operator.length === 2) lengths.reverse();
  for (const length of lengths) {
    const part = operator.startsWith("#") ? value.slice(0, length) : value.slice(value.length - length);
    if (matches(part)) return operator.startsWith("#") ? value.slice(length) : value.slice(0, value.length - length);
  }
  return value;
}

function escapePattern(text: string): string {
  return text.replace(/[\\*?[\]]/g, "\\$&");
}

function unescapePattern(text: string): string {
  return text.replace(/\\(.)/g, "$1");
}
