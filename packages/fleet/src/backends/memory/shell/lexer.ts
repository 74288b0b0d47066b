/**
 * Splits a script into words, operators and redirections, and collects the texts of here-documents.
 */

import type { Redirect, Word } from "./syntax.ts";
import { ShellSyntaxError } from "./syntax.ts";
import { type Cursor, type ParseNested, WordReader } from "./words.ts";

export type Token =
  /** `plain` is the text of a word without any quoting or expansion: only such a word can be a keyword. */
  | { readonly type: "word"; readonly word: Word; readonly plain: string | null }
  | { readonly type: "operator"; readonly text: "&&" | "||" | ";;" | ";" | "&" | "|" | "(" | ")" | "newline" | "end" }
  | { readonly type: "redirect"; readonly fd: Redirect["fd"]; readonly operator: Redirect["operator"] | "<<-" };

interface PendingHere {
  readonly delimiter: string;
  readonly literal: boolean;
  readonly stripTabs: boolean;
  readonly fill: (text: Word) => void;
}

const OPERATORS = ["&&", "||", ";;", ";", "&", "|", "(", ")"] as const;
const REDIRECT = /([0-2])?(&>>|&>|<<-|<<|<&|>&|>>|>\||<|>)/y;

export class Lexer {
  readonly cursor: Cursor;
  readonly #words: WordReader;
  readonly #parseNested: ParseNested;
  readonly #pending: PendingHere[] = [];

  constructor(cursor: Cursor, parseNested: ParseNested) {
    this.cursor = cursor;
    this.#parseNested = parseNested;
    this.#words = new WordReader(cursor, parseNested);
  }

  next(): Token {
    this.#skipBlanks();
    const { cursor } = this;
    if (cursor.at >= cursor.text.length) return { type: "operator", text: "end" };
    if (cursor.text.charAt(cursor.at) === "\n") {
      cursor.at++;
      this.#readHereDocuments();
      return { type: "operator", text: "newline" };
    }
    const redirect = this.#redirect();
    if (redirect !== null) return redirect;
    const operator = OPERATORS.find((candidate) => cursor.text.startsWith(candidate, cursor.at));
    if (operator !== undefined) {
      cursor.at += operator.length;
      return { type: "operator", text: operator };
    }
    const word = this.#words.word();
    const only = word.length === 1 ? word[0] : undefined;
    return { type: "word", word, plain: only?.type === "text" && !only.quoted ? only.text : null };
  }

  /** Its text begins after the next newline; `fill` gets it then. */
  expectHereDocument(delimiter: Word, stripTabs: boolean, fill: (text: Word) => void): void {
    let name = "";
    let literal = false;
    for (const part of delimiter) {
      if (part.type !== "text") throw new ShellSyntaxError("Bad here-document delimiter");
      name += part.text;
      literal ||= part.quoted;
    }
    this.#pending.push({ delimiter: name, literal, stripTabs, fill });
  }

  #skipBlanks(): void {
    const { cursor } = this;
    for (;;) {
      const char = cursor.text.charAt(cursor.at);
      if (char === " " || char === "\t" || char === "\r") cursor.at++;
      else if (char === "\\" && cursor.text.charAt(cursor.at + 1) === "\n") cursor.at += 2;
      else if (char === "#") {
        const end = cursor.text.indexOf("\n", cursor.at);
        cursor.at = end < 0 ? cursor.text.length : end;
      } else return;
    }
  }

  #redirect(): Token | null {
    const { cursor } = this;
    REDIRECT.lastIndex = cursor.at;
    const match = REDIRECT.exec(cursor.text);
    if (match === null) return null;
    cursor.at += match[0].length;
    const symbol = match[2] ?? "";
    if (symbol === "&>" || symbol === "&>>")
      return { type: "redirect", fd: "both", operator: symbol === "&>" ? ">" : ">>" };
    const operator = (symbol === ">|" ? ">" : symbol) as Redirect["operator"] | "<<-";
    const fd = match[1] === undefined ? (operator.startsWith("<") ? 0 : 1) : (Number(match[1]) as 0 | 1 | 2);
    return { type: "redirect", fd, operator };
  }

  #readHereDocuments(): void {
    for (const { delimiter, literal, stripTabs, fill } of this.#pending.splice(0)) {
      let body = "";
      for (;;) {
        if (this.cursor.at >= this.cursor.text.length) break;
        const line = this.#line(stripTabs);
        if (line.replace(/\n$/, "") === delimiter) break;
        body += line;
      }
      fill(literal ? [{ type: "text", text: body, quoted: true }] : WordReader.hereText(body, this.#parseNested));
    }
  }

  #line(stripTabs: boolean): string {
    const { cursor } = this;
    const newline = cursor.text.indexOf("\n", cursor.at);
    const end = newline < 0 ? cursor.text.length : newline + 1;
    const line = cursor.text.slice(cursor.at, end);
    cursor.at = end;
    return stripTabs ? line.replace(/^\t+/, "") : line;
  }
}
