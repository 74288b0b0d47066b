/**
 * `$(( … ))`: whole numbers, variables by name, `+ - * / %` and parentheses.
 */

import { ShellError } from "./state.ts";
import { Unsupported } from "./syntax.ts";

const TOKEN = /\s*([0-9]+|[A-Za-z_][A-Za-z0-9_]*|[-+*/%()])/y;

export function evaluate(expression: string, lookUp: (name: string) => string | undefined): number {
  return new Evaluator(tokenize(expression), lookUp).whole();
}

function tokenize(expression: string): string[] {
  const tokens: string[] = [];
  const text = expression.trimEnd();
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < text.length) {
    const at = TOKEN.lastIndex;
    const match = TOKEN.exec(text);
    if (match?.[1] === undefined) throw new Unsupported(`$((…)) with ${text.slice(at, at + 20).trim()}`);
    tokens.push(match[1]);
  }
  return tokens;
}

class Evaluator {
  readonly #tokens: readonly string[];
  readonly #lookUp: (name: string) => string | undefined;
  #at = 0;

  constructor(tokens: readonly string[], lookUp: (name: string) => string | undefined) {
    this.#tokens = tokens;
    this.#lookUp = lookUp;
  }

  whole(): number {
    if (this.#tokens.length === 0) return 0;
    const value = this.#sum();
    const left = this.#tokens[this.#at];
    if (left !== undefined) throw new ShellError(`arithmetic expression: unexpected "${left}"`);
    return value;
  }

  #sum(): number {
    let value = this.#product();
    for (;;) {
      if (this.#take("+")) value += this.#product();
      else if (this.#take("-")) value -= this.#product();
      else return value;
    }
  }

  #product(): number {
    let value = this.#operand();
    for (;;) {
      if (this.#take("*")) value *= this.#operand();
      else if (this.#take("/")) value = Math.trunc(value / this.#divisor());
      else if (this.#take("%")) value %= this.#divisor();
      else return value;
    }
  }

  #divisor(): number {
    const value = this.#operand();
    if (value === 0) throw new ShellError("arithmetic expression: division by zero");
    return value;
  }

  #operand(): number {
    if (this.#take("-")) return -this.#operand();
    if (this.#take("+")) return this.#operand();
    const token = this.#tokens[this.#at++] ?? "";
    if (token === "(") {
      const value = this.#sum();
      if (!this.#take(")")) throw new ShellError("arithmetic expression: expected )");
      return value;
    }
    const text = /^[A-Za-z_]/.test(token) ? (this.#lookUp(token)?.trim() ?? "") || "0" : token;
    // A leading zero means octal elsewhere.
    if (/^-?0[0-9]/.test(text)) throw new Unsupported(`the octal number ${text}`);
    if (!/^-?[0-9]+$/.test(text)) throw new ShellError(`arithmetic expression: expected a number, not "${text}"`);
    return Number(text);
  }

  #take(token: string): boolean {
    const found = this.#tokens[this.#at] === token;
    if (found) this.#at++;
    return found;
  }
}
