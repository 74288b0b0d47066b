/**
 * Reads words: text with quotes, parameters, substitutions and arithmetic in it. The lexer decides where a word begins;
 * this file decides where it ends and what is inside.
 */

import { type List, type ParameterOperator, ShellSyntaxError, type Word, type WordPart } from "./syntax.ts";

/** A place in a script. Everything that reads it moves it. */
export interface Cursor {
  readonly text: string;
  at: number;
}

/** Parses the commands of a `$( … )` up to its closing parenthesis. The parser provides it, as it needs this file. */
export type ParseNested = (cursor: Cursor) => List;

const WORD_END = new Set([" ", "\t", "\n", ";", "&", "|", "<", ">", "(", ")"]);
const NAME = /[A-Za-z_][A-Za-z0-9_]*/y;
const SPECIAL_PARAMETERS = "?$!#@*-0123456789";
/** Longest first: `:-` must not be read as `:` and `-`. */
const OPERATORS: readonly ParameterOperator[] = [":-", ":=", ":+", ":?", "##", "%%", "-", "=", "+", "?", "#", "%"];

export class WordReader {
  readonly #cursor: Cursor;
  readonly #parseNested: ParseNested;

  constructor(cursor: Cursor, parseNested: ParseNested) {
    this.#cursor = cursor;
    this.#parseNested = parseNested;
  }

  /** A word, up to a blank or an operator. */
  word(): Word {
    const parts: WordPart[] = [];
    while (this.#cursor.at < this.#cursor.text.length && !WORD_END.has(this.#peek())) this.#unquotedPart(parts);
    return parts;
  }

  /** The text of a here-document: like inside double quotes, but these are ordinary characters. */
  static hereText(text: string, parseNested: ParseNested): Word {
    const cursor = { text, at: 0 };
    return new WordReader(cursor, parseNested).#quoted("");
  }

  #unquotedPart(parts: WordPart[]): void {
    const char = this.#peek();
    if (char === "'") parts.push(this.#single());
    else if (char === '"') {
      this.#cursor.at++;
      parts.push(text("", true), ...this.#quoted('"'));
    } else if (char === "$" && this.#peek(1) === "'") {
      this.#cursor.at++;
      parts.push(this.#dollarSingle());
    } else if (char === "$" || char === "`") parts.push(this.#dollar(false));
    else if (char === "\\") {
      const next = this.#peek(1);
      this.#cursor.at += 2;
      if (next !== "\n") parts.push(text(next === "" ? "\\" : next, true));
    } else {
      push(parts, char, false);
      this.#cursor.at++;
    }
  }

  #single(): WordPart {
    const { text: source, at } = this.#cursor;
    const end = source.indexOf("'", at + 1);
    if (end < 0) throw new ShellSyntaxError("Unterminated quoted string");
    this.#cursor.at = end + 1;
    return text(source.slice(at + 1, end), true);
  }

  /** `$'…'`, whose escapes are those of printf. */
  #dollarSingle(): WordPart {
    let value = "";
    for (this.#cursor.at++; this.#peek() !== "'"; ) {
      if (this.#cursor.at >= this.#cursor.text.length) throw new ShellSyntaxError("Unterminated quoted string");
      const char = this.#peek();
      if (char === "\\") {
        value += ESCAPES[this.#peek(1)] ?? `\\${this.#peek(1)}`;
        this.#cursor.at += 2;
      } else {
        value += char;
        this.#cursor.at++;
      }
    }
    this.#cursor.at++;
    return text(value, true);
  }

  /** Up to `end`, which is consumed; an empty `end` means the end of the text. */
  #quoted(end: string): WordPart[] {
    const parts: WordPart[] = [];
    for (;;) {
      const char = this.#peek();
      if (char === "") {
        if (end === "") return parts;
        throw new ShellSyntaxError("Unterminated quoted string");
      }
      if (char === end) {
        this.#cursor.at++;
        return parts;
      }
      if (char === "$" || char === "`") parts.push(this.#dollar(true));
      else if (char === "\\" && this.#isEscapedInQuotes(this.#peek(1), end)) {
        if (this.#peek(1) !== "\n") push(parts, this.#peek(1), true);
        this.#cursor.at += 2;
      } else {
        push(parts, char, true);
        this.#cursor.at++;
      }
    }
  }

  #isEscapedInQuotes(next: string, end: string): boolean {
    return next === "$" || next === "`" || next === "\\" || next === "\n" || (next === '"' && end === '"');
  }

  #dollar(quoted: boolean): WordPart {
    const cursor = this.#cursor;
    if (this.#peek() === "`") return this.#backticks(quoted);
    if (cursor.text.startsWith("$((", cursor.at)) {
      const arithmetic = this.#arithmetic(quoted);
      if (arithmetic !== null) return arithmetic;
    }
    cursor.at++;
    if (this.#peek() === "(") {
      cursor.at++;
      return { type: "substitution", script: this.#parseNested(cursor), quoted };
    }
    if (this.#peek() === "{") {
      cursor.at++;
      return this.#braced(quoted);
    }
    const name = this.#name(false);
    return name === "" ? text("$", quoted) : { type: "parameter", name, quoted, operator: null, argument: [] };
  }

  /** `$((` may also begin a substitution whose first command is a subshell: then `null`, and nothing was read. */
  #arithmetic(quoted: boolean): WordPart | null {
    const { text: source, at } = this.#cursor;
    let depth = 0;
    for (let i = at + 1; i < source.length; i++) {
      if (source.charAt(i) === "(") depth++;
      if (source.charAt(i) !== ")" || --depth > 0) continue;
      if (source.charAt(i - 1) !== ")") return null;
      this.#cursor.at = i + 1;
      const expression = WordReader.hereText(source.slice(at + 3, i - 1), this.#parseNested);
      return { type: "arithmetic", expression, quoted };
    }
    throw new ShellSyntaxError("Missing '))'");
  }

  #backticks(quoted: boolean): WordPart {
    const { text: source, at } = this.#cursor;
    let end = at + 1;
    while (end < source.length && source.charAt(end) !== "`") end += source.charAt(end) === "\\" ? 2 : 1;
    if (end >= source.length) throw new ShellSyntaxError("EOF in backquote substitution");
    this.#cursor.at = end + 1;
    const inner = source.slice(at + 1, end).replace(/\\([\\`$])/g, "$1");
    // The nested parser expects a closing parenthesis.
    return { type: "substitution", script: this.#parseNested({ text: `${inner}\n)`, at: 0 }), quoted };
  }

  #braced(quoted: boolean): WordPart {
    if (this.#peek() === "#" && this.#peek(1) !== "}") {
      this.#cursor.at++;
      const name = this.#name(true);
      this.#expect("}");
      return { type: "parameter", name, quoted, operator: "length", argument: [] };
    }
    const name = this.#name(true);
    if (name === "") throw new ShellSyntaxError("Bad substitution");
    const operator = OPERATORS.find((candidate) => this.#cursor.text.startsWith(candidate, this.#cursor.at)) ?? null;
    this.#cursor.at += operator?.length ?? 0;
    const argument: WordPart[] = [];
    if (operator !== null) while (this.#peek() !== "}" && this.#peek() !== "") this.#argumentPart(argument, quoted);
    this.#expect("}");
    return { type: "parameter", name, quoted, operator, argument };
  }

  /** Inside `"${x:-a 'b'}"` single quotes are ordinary characters; outside double quotes they quote. */
  #argumentPart(parts: WordPart[], quoted: boolean): void {
    if (!quoted || this.#peek() === "$" || this.#peek() === '"' || this.#peek() === "`") this.#unquotedPart(parts);
    else {
      if (this.#peek() === "\\") this.#cursor.at++;
      push(parts, this.#peek(), true);
      this.#cursor.at++;
    }
  }

  #name(braced: boolean): string {
    const cursor = this.#cursor;
    NAME.lastIndex = cursor.at;
    const match = NAME.exec(cursor.text);
    const digits = braced ? /^[0-9]+/.exec(cursor.text.slice(cursor.at, cursor.at + 10)) : null;
    const char = this.#peek();
    const name = match?.[0] ?? digits?.[0] ?? (char !== "" && SPECIAL_PARAMETERS.includes(char) ? char : "");
    cursor.at += name.length;
    return name;
  }

  #expect(char: string): void {
    if (this.#peek() !== char)
      throw new ShellSyntaxError(this.#peek() === "" ? `Missing '${char}'` : "Bad substitution");
    this.#cursor.at++;
  }

  #peek(ahead = 0): string {
    return this.#cursor.text.charAt(this.#cursor.at + ahead);
  }
}

/** What a backslash and a letter mean in `$'…'`, printf and `echo -e`. */
export const ESCAPES: Readonly<Record<string, string>> = {
  n: "\n",
  t: "\t",
  r: "\r",
  a: "\x07",
  b: "\b",
  f: "\f",
  v: "\v",
  e: "\x1b",
  "\\": "\\",
  "'": "'",
  '"': '"',
};

function text(value: string, quoted: boolean): WordPart {
  return { type: "text", text: value, quoted };
}

function push(parts: WordPart[], char: string, quoted: boolean): void {
  const last = parts.at(-1);
  if (last?.type === "text" && last.quoted === quoted) parts[parts.length - 1] = text(last.text + char, quoted);
  else parts.push(text(char, quoted));
}
