/**
 * Splits a script into words, operators and redirections.
 */

import { type Redirect, Unsupported, type Word } from "./syntax.ts";
import { type Cursor, type ParseNested, WordReader } from "./words.ts";

export type Token =
  /** `plain` is the text of a word without any quoting or expansion: only such a word can be a keyword. */
  | { readonly type: "word"; readonly word: Word; readonly plain: string | null }
  | { readonly type: "operator"; readonly text: "&&" | "||" | ";" | "&" | "|" | "(" | ")" | "newline" | "end" }
  | { readonly type: "redirect"; readonly fd: Redirect["fd"]; readonly operator: Redirect["operator"] };

const OPERATORS = ["&&", "||", ";", "&", "|", "(", ")"] as const;
/** The second alternative is refused. */
const REDIRECT = /([0-2])?(?:(>&(?!\s)|>>|>(?![&|])|<(?![<&>]))|(&>>?|<<-?|<&|<>|>\||>&))/y;

export class Lexer {
  readonly cursor: Cursor;
  readonly #words: WordReader;

  constructor(cursor: Cursor, parseNested: ParseNested) {
    this.cursor = cursor;
    this.#words = new WordReader(cursor, parseNested);
  }

  next(): Token {
    this.#skipBlanks();
    const { cursor } = this;
    if (cursor.at >= cursor.text.length) return { type: "operator", text: "end" };
    if (cursor.text.charAt(cursor.at) === "\n") {
      cursor.at++;
      return { type: "operator", text: "newline" };
    }
    const redirect = this.#redirect();
    if (redirect !== null) return redirect;
    if (cursor.text.startsWith(";;", cursor.at)) throw new Unsupported("case");
    const operator = OPERATORS.find((candidate) => cursor.text.startsWith(candidate, cursor.at));
    if (operator !== undefined) {
      cursor.at += operator.length;
      return { type: "operator", text: operator };
    }
    const word = this.#words.word();
    const only = word.length === 1 ? word[0] : undefined;
    return { type: "word", word, plain: only?.type === "text" && !only.quoted ? only.text : null };
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
    const [all, digit, symbol, refused] = match;
    if (symbol === undefined) throw new Unsupported(`the redirection ${refused ?? all}`);
    cursor.at += all.length;
    const operator = symbol as Redirect["operator"];
    const fd = digit === undefined ? (operator === "<" ? 0 : 1) : (Number(digit) as Redirect["fd"]);
    return { type: "redirect", fd, operator };
  }
}
