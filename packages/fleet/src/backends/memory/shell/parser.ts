/**
 * The shell's grammar: from a script to what `interpreter.ts` runs. Recursive descent, one method per rule of the
 * POSIX grammar, lowest precedence first.
 */

import { Lexer, type Token } from "./lexer.ts";
import {
  type AndOr,
  type Assignment,
  type Command,
  type CommandBody,
  type List,
  type Pipeline,
  type Redirect,
  ShellSyntaxError,
  Unsupported,
  type Word,
} from "./syntax.ts";
import type { Cursor } from "./words.ts";

const SCRIPT_MAX_CHARS = 1_000_000;

export function parseScript(text: string): List {
  if (text.length > SCRIPT_MAX_CHARS)
    throw new ShellSyntaxError(`the script has more than ${SCRIPT_MAX_CHARS} characters`);
  try {
    const parser = new Parser({ text, at: 0 });
    const list = parser.list();
    parser.expectOperator("end");
    return list;
  } catch (error) {
    // The parser recurses as deep as the script nests.
    if (error instanceof RangeError) throw new ShellSyntaxError("nested too deeply");
    throw error;
  }
}

/** Commands up to the parenthesis that closes a `$(`. */
function parseNested(cursor: Cursor): List {
  const parser = new Parser(cursor);
  const list = parser.list();
  parser.expectOperator(")");
  return list;
}

/** What ends a list when it stands where a command could begin. */
const CLOSERS = new Set(["then", "else", "elif", "fi", "do", "done", "}"]);
/** Keywords of other shells that this one does not support. */
const LEFT_OUT = new Set(["case", "esac", "function", "select", "[[", "time", "coproc"]);
const ASSIGNMENT = /^([A-Za-z_][A-Za-z0-9_]*)=/;

class Parser {
  readonly #lexer: Lexer;
  #ahead: Token | null = null;

  constructor(cursor: Cursor) {
    this.#lexer = new Lexer(cursor, parseNested);
  }

  list(): List {
    const items: AndOr[] = [];
    for (;;) {
      this.#skipNewlines();
      const token = this.#peek();
      if (token.type === "operator" && token.text !== "(") return items;
      if (token.type === "word" && token.plain !== null && CLOSERS.has(token.plain)) return items;
      const item = this.#andOr();
      const background = this.#takeOperator("&");
      items.push({ ...item, background });
      if (!background && !this.#takeOperator(";") && !this.#isOperator("newline")) return items;
    }
  }

  expectOperator(text: "end" | ")"): void {
    const token = this.#peek();
    if (token.type === "operator" && token.text === text) {
      // The closing token of a nested script is the last that it reads: reading further would consume the text behind
      // it.
      this.#ahead = null;
      return;
    }
    throw unexpected(token, text === "end" ? undefined : text);
  }

  #andOr(): Omit<AndOr, "background"> {
    const first = this.#pipeline();
    const rest: { operator: "&&" | "||"; pipeline: Pipeline }[] = [];
    for (;;) {
      const operator = this.#takeOperator("&&") ? "&&" : this.#takeOperator("||") ? "||" : null;
      if (operator === null) return { first, rest };
      this.#skipNewlines();
      rest.push({ operator, pipeline: this.#pipeline() });
    }
  }

  #pipeline(): Pipeline {
    let negated = false;
    while (this.#takeKeyword("!")) negated = !negated;
    const commands = [this.#command()];
    while (this.#takeOperator("|")) {
      this.#skipNewlines();
      commands.push(this.#command());
    }
    return { negated, commands };
  }

  #command(): Command {
    const token = this.#peek();
    if (token.type === "operator" && token.text === "(") {
      this.#take();
      const body = this.list();
      this.#requireOperator(")");
      return this.#withRedirects({ type: "subshell", body });
    }
    const compound = token.type === "word" ? this.#compound(token.plain) : null;
    return compound === null ? this.#simple() : this.#withRedirects(compound);
  }

  #compound(keyword: string | null): CommandBody | null {
    switch (keyword) {
      case "{": {
        this.#take();
        const body = this.list();
        this.#requireKeyword("}");
        return { type: "group", body };
      }
      case "if":
        return this.#if();
      case "while":
      case "until": {
        this.#take();
        const condition = this.list();
        return { type: keyword, condition, body: this.#doGroup() };
      }
      case "for":
        return this.#for();
      default:
        if (keyword !== null && LEFT_OUT.has(keyword)) throw new Unsupported(keyword);
        return null;
    }
  }

  #if(): CommandBody {
    const branches: { condition: List; body: List }[] = [];
    do {
      this.#take();
      const condition = this.list();
      this.#requireKeyword("then");
      branches.push({ condition, body: this.list() });
    } while (this.#isKeyword("elif"));
    const otherwise = this.#takeKeyword("else") ? this.list() : [];
    this.#requireKeyword("fi");
    return { type: "if", branches, otherwise };
  }

  #for(): CommandBody {
    this.#take();
    const name = this.#plainWord("a name");
    this.#skipNewlines();
    if (!this.#takeKeyword("in")) throw new Unsupported("for without in");
    const words: Word[] = [];
    for (let token = this.#peek(); token.type === "word"; token = this.#peek()) {
      words.push(token.word);
      this.#take();
    }
    this.#takeOperator(";");
    this.#skipNewlines();
    return { type: "for", name, words, body: this.#doGroup() };
  }

  #doGroup(): List {
    this.#skipNewlines();
    this.#requireKeyword("do");
    const body = this.list();
    this.#requireKeyword("done");
    return body;
  }

  #simple(): Command {
    const assignments: Assignment[] = [];
    const words: Word[] = [];
    const redirects: Redirect[] = [];
    for (let token = this.#peek(); token.type !== "operator"; token = this.#peek()) {
      this.#take();
      if (token.type === "redirect") redirects.push(this.#redirect(token));
      else {
        const assignment = words.length === 0 ? asAssignment(token.word) : null;
        if (assignment !== null) assignments.push(assignment);
        else words.push(token.word);
        if (words.length === 1 && this.#isOperator("(")) throw new Unsupported("functions");
      }
    }
    if (words.length + assignments.length + redirects.length === 0) throw unexpected(this.#peek());
    return { type: "simple", assignments, words, redirects };
  }

  #withRedirects(body: CommandBody): Command {
    const redirects: Redirect[] = [];
    for (let token = this.#peek(); token.type === "redirect"; token = this.#peek()) {
      this.#take();
      redirects.push(this.#redirect(token));
    }
    return { ...body, redirects };
  }

  #redirect({ fd, operator }: Token & { type: "redirect" }): Redirect {
    return { fd, operator, target: this.#word() };
  }

  #word(): Word {
    const token = this.#take();
    if (token.type !== "word") throw unexpected(token, "a word");
    return token.word;
  }

  #plainWord(what: string): string {
    const token = this.#take();
    if (token.type !== "word" || token.plain === null) throw unexpected(token, what);
    return token.plain;
  }

  #peek(): Token {
    this.#ahead ??= this.#lexer.next();
    return this.#ahead;
  }

  #take(): Token {
    const token = this.#peek();
    this.#ahead = null;
    return token;
  }

  #isOperator(text: string): boolean {
    const token = this.#peek();
    return token.type === "operator" && token.text === text;
  }

  #takeOperator(text: string): boolean {
    const found = this.#isOperator(text);
    if (found) this.#take();
    return found;
  }

  #requireOperator(text: string): void {
    if (!this.#takeOperator(text)) throw unexpected(this.#peek(), text);
  }

  #isKeyword(text: string): boolean {
    const token = this.#peek();
    return token.type === "word" && token.plain === text;
  }

  #takeKeyword(text: string): boolean {
    const found = this.#isKeyword(text);
    if (found) this.#take();
    return found;
  }

  #requireKeyword(text: string): void {
    if (!this.#takeKeyword(text)) throw unexpected(this.#peek(), text);
  }

  #skipNewlines(): void {
    while (this.#takeOperator("newline"));
  }
}

function asAssignment(word: Word): Assignment | null {
  const [first, ...rest] = word;
  const match = first?.type === "text" && !first.quoted ? ASSIGNMENT.exec(first.text) : null;
  const name = match?.[1];
  if (first?.type !== "text" || match === null || name === undefined) return null;
  const value = first.text.slice(match[0].length);
  return { name, value: value === "" ? rest : [{ ...first, text: value }, ...rest] };
}

function unexpected(token: Token, wanted?: string): ShellSyntaxError {
  const shown =
    token.type === "operator"
      ? token.text === "end"
        ? "end of file"
        : token.text
      : token.type === "word"
        ? (token.plain ?? "word")
        : token.operator;
  return new ShellSyntaxError(
    `Syntax error: unexpected "${shown}"${wanted === undefined ? "" : ` (expecting "${wanted}")`}`,
  );
}
