/**
 * Reads words: text with quotes, parameters, substitutions and arithmetic in it. The lexer decides where a word begins;
 * this file decides where it ends and what is inside.
 */

import { type List, ShellSyntaxError, Unsupported, type Word, type WordPart } from "./syntax.ts";

/** A position in a script. Every reader moves it. */
export interface Cursor {
  readonly text: string;
  at: number;
}

/** Parses the commands of a `$( … )` up to its closing parenthesis. The parser provides it, as it needs this file. */
export type ParseNested = (cursor: Cursor) => List;

const WORD_END = new Set([" ", "\t", "\n", ";", "&", "|", "<", ">", "(", ")"]);
/** `$name`, `$1`, `$?` and the same in braces. */
const PARAMETER = /\$(?:([A-Za-z_][A-Za-z0-9_]*|[?$!#@*0-9])|\{([A-Za-z_][A-Za-z0-9_]*|[?$!#@*]|[0-9]+)\})/y;
const ESCAPED_IN_QUOTES = '$`\\\n"';

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

  #unquotedPart(parts: WordPart[]): void {
    const char = this.#peek();
    if (char === "'") parts.push(this.#single());
    else if (char === '"') {
      this.#cursor.at++;
      parts.push(text("", true), ...this.#double());
    } else if (char === "$") parts.push(this.#dollar(false));
    else if (char === "`") throw new Unsupported("`…`; write $(…)");
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

  /** Up to the closing quote, which is consumed. */
  #double(): WordPart[] {
    const parts: WordPart[] = [];
    for (;;) {
      const [char, next] = [this.#peek(), this.#peek(1)];
      if (char === "") throw new ShellSyntaxError("Unterminated quoted string");
      if (char === "$") parts.push(this.#dollar(true));
      else if (char === "`") throw new Unsupported("`…`; write $(…)");
      else if (char === "\\" && next !== "" && ESCAPED_IN_QUOTES.includes(next)) {
        if (next !== "\n") push(parts, next, true);
        this.#cursor.at += 2;
      } else {
        this.#cursor.at++;
        if (char === '"') return parts;
        push(parts, char, true);
      }
    }
  }

  #dollar(quoted: boolean): WordPart {
    const cursor = this.#cursor;
    const { text: source } = cursor;
    if (source.startsWith("$((", cursor.at)) return this.#arithmetic(quoted);
    if (source.startsWith("$(", cursor.at)) {
      cursor.at += 2;
      return { type: "substitution", script: this.#parseNested(cursor), quoted };
    }
    PARAMETER.lastIndex = cursor.at;
    const match = PARAMETER.exec(source);
    if (match !== null) {
      cursor.at += match[0].length;
      return { type: "parameter", name: match[1] ?? match[2] ?? "", quoted };
    }
    const next = this.#peek(1);
    if (next === "{") throw new Unsupported(`${/^\$\{[^}\n]*\}?/.exec(source.slice(cursor.at))?.[0] ?? "${"}`);
    if (next === "'" && !quoted) throw new Unsupported("$'…'");
    cursor.at++;
    return text("$", quoted);
  }

  #arithmetic(quoted: boolean): WordPart {
    const { text: source, at } = this.#cursor;
    let depth = 0;
    for (let i = at + 1; i < source.length; i++) {
      if (source.charAt(i) === "(") depth++;
      if (source.charAt(i) !== ")" || --depth > 0) continue;
      if (source.charAt(i - 1) !== ")") throw new Unsupported("$((…) …); write $( (…) …)");
      this.#cursor.at = i + 1;
      const inner = source.slice(at + 3, i - 1);
      if (/["'`]/.test(inner)) throw new Unsupported("quotes in $((…))");
      // Read like the inside of double quotes, which end with one.
      const reader = new WordReader({ text: `${inner}"`, at: 0 }, this.#parseNested);
      return { type: "arithmetic", expression: reader.#double(), quoted };
    }
    throw new ShellSyntaxError("Missing '))'");
  }

  #peek(ahead = 0): string {
    return this.#cursor.text.charAt(this.#cursor.at + ahead);
  }
}

function text(value: string, quoted: boolean): WordPart {
  return { type: "text", text: value, quoted };
}

function push(parts: WordPart[], char: string, quoted: boolean): void {
  const last = parts.at(-1);
  if (last?.type === "text" && last.quoted === quoted) parts[parts.length - 1] = text(last.text + char, quoted);
  else parts.push(text(char, quoted));
}
