/**
 * Expansion: from a word to a command's arguments. In the order of POSIX: tilde, parameters, substitutions and
 * arithmetic; then splitting into fields; then path names. Quoted text is neither split nor matched.
 */

import { isPattern, nameMatcher } from "@sandlot/sandboxd/patterns";
import { resolvePath } from "../files/tree.ts";
import { evaluate } from "./arithmetic.ts";
import { ShellError, type ShellState } from "./state.ts";
import type { List, Word, WordPart } from "./syntax.ts";

/** Runs a `$( … )` and gives its output without the last newlines. */
export type Substitute = (script: List) => Promise<string>;

interface Piece {
  readonly text: string;
  readonly quoted: boolean;
}
type Field = Piece[];

/** A bound on what one word may become: a pattern over a large tree, or a huge variable that is split. */
const FIELDS_MAX = 100_000;

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

  /** One text, neither split nor matched: a value or a target. */
  async text(word: Word): Promise<string> {
    let text = "";
    for (const [index, part] of word.entries()) text += await this.#partText(part, index === 0);
    return text;
  }

  async #partText(part: WordPart, first: boolean): Promise<string> {
    switch (part.type) {
      case "text":
        return first && !part.quoted ? this.#tilde(part.text) : part.text;
      case "parameter":
        return this.#state.parameter(part.name) ?? "";
      case "substitution":
        return this.#substitute(part.script);
      case "arithmetic":
        return String(evaluate(await this.text(part.expression), (name) => this.#state.parameter(name)));
    }
  }

  async #fields(word: Word): Promise<Field[]> {
    const fields = new Fields();
    for (const [index, part] of word.entries()) {
      if (part.type === "parameter" && part.name === "@") {
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

  #tilde(text: string): string {
    if (text !== "~" && !text.startsWith("~/")) return text;
    return (this.#state.variables.get("HOME") ?? "~") + text.slice(1);
  }

  /** The paths that a field matches in the tree, in order; the field itself without a match. */
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

/** Builds fields. Only the results of expansions are split, never the text of the script. */
class Fields {
  readonly #done: Field[] = [];
  #field: Field | null = null;

  addLiteral(text: string, quoted: boolean): void {
    this.#field ??= [];
    this.#field.push({ text, quoted });
  }

  add(text: string, quoted: boolean): void {
    if (quoted) this.addLiteral(text, true);
    else this.#split(text);
  }

  #split(text: string): void {
    if (/^[ \t\n]/.test(text)) this.end();
    for (const [at, run] of text.split(/[ \t\n]+/).entries()) {
      if (at > 0) this.end();
      if (run !== "") this.addLiteral(run, false);
    }
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

function escapePattern(text: string): string {
  return text.replace(/[\\*?[\]]/g, "\\$&");
}

function unescapePattern(text: string): string {
  return text.replace(/\\(.)/g, "$1");
}
