/**
 * `$(( … ))`: whole numbers, C's operators, variables by name.
 */

import { ShellError } from "./state.ts";

export interface Variables {
  get(name: string): string | undefined;
  set(name: string, value: string): void;
}

const TOKEN =
  /\s*(0[xX][0-9a-fA-F]+|[0-9]+|[A-Za-z_][A-Za-z0-9_]*|<<=|>>=|\*\*|\+\+|--|&&|\|\||<<|>>|[<>=!+\-*/%&|^]=|[-+*/%<>=!~&|^?:(),])/y;
/** Binary operators from loosest to tightest. */
const LEVELS: readonly (readonly string[])[] = [
  ["||"],
  ["&&"],
  ["|"],
  ["^"],
  ["&"],
  ["==", "!="],
  ["<", ">", "<=", ">="],
  ["<<", ">>"],
  ["+", "-"],
  ["*", "/", "%"],
];

export function evaluate(expression: string, variables: Variables, depth = 0): number {
  if (depth > 20) throw new ShellError("arithmetic: recursion too deep");
  const tokens = tokenize(expression);
  if (tokens.length === 0) return 0;
  const parser = new Parser(tokens, variables, depth);
  const value = parser.assignment();
  parser.expectEnd();
  return value;
}

function tokenize(expression: string): string[] {
  const tokens: string[] = [];
  const text = expression.trimEnd();
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < text.length) {
    const at = TOKEN.lastIndex;
    const match = TOKEN.exec(text);
    if (match?.[1] === undefined)
      throw new ShellError(`arithmetic expression: unexpected "${text.slice(at, at + 20)}"`);
    tokens.push(match[1]);
  }
  return tokens;
}

class Parser {
  readonly #tokens: readonly string[];
  readonly #variables: Variables;
  readonly #depth: number;
  #at = 0;
  /** Above 0 while reading a branch that is not taken: it must be read, but must not act. */
  #skipping = 0;

  constructor(tokens: readonly string[], variables: Variables, depth: number) {
    this.#tokens = tokens;
    this.#variables = variables;
    this.#depth = depth;
  }

  assignment(): number {
    const name = this.#tokens[this.#at] ?? "";
    const operator = this.#tokens[this.#at + 1] ?? "";
    if (!isName(name) || !/^([-+*/%&|^]|<<|>>)?=$/.test(operator)) return this.#ternary();
    this.#at += 2;
    const right = this.assignment();
    const value = operator === "=" ? right : this.#apply(operator.slice(0, -1), this.#value(name), right);
    return this.#store(name, value);
  }

  expectEnd(): void {
    const token = this.#tokens[this.#at];
    if (token !== undefined) throw new ShellError(`arithmetic expression: unexpected "${token}"`);
  }

  #ternary(): number {
    const condition = this.#binary(0);
    if (!this.#take("?")) return condition;
    const yes = this.#guarded(condition === 0, () => this.assignment());
    if (!this.#take(":")) throw new ShellError("arithmetic expression: expected :");
    const no = this.#guarded(condition !== 0, () => this.#ternary());
    return condition !== 0 ? yes : no;
  }

  #binary(level: number): number {
    const operators = LEVELS[level];
    if (operators === undefined) return this.#power();
    let left = this.#binary(level + 1);
    for (;;) {
      const operator = this.#tokens[this.#at] ?? "";
      if (!operators.includes(operator)) return left;
      this.#at++;
      const skip = (operator === "&&" && left === 0) || (operator === "||" && left !== 0);
      const right = this.#guarded(skip, () => this.#binary(level + 1));
      left = this.#apply(operator, left, right);
    }
  }

  #power(): number {
    const base = this.#unary();
    return this.#take("**") ? base ** this.#power() : base;
  }

  #unary(): number {
    if (this.#take("-")) return -this.#unary();
    if (this.#take("+")) return this.#unary();
    if (this.#take("!")) return this.#unary() === 0 ? 1 : 0;
    if (this.#take("~")) return ~this.#unary();
    const step = this.#take("++") ? 1 : this.#take("--") ? -1 : 0;
    if (step === 0) return this.#postfix();
    const name = this.#tokens[this.#at++] ?? "";
    return this.#store(name, this.#value(name) + step);
  }

  #postfix(): number {
    const token = this.#tokens[this.#at++] ?? "";
    if (token === "(") {
      const value = this.assignment();
      if (!this.#take(")")) throw new ShellError("arithmetic expression: expected )");
      return value;
    }
    if (!isName(token)) return numberOf(token);
    const value = this.#value(token);
    const step = this.#take("++") ? 1 : this.#take("--") ? -1 : 0;
    if (step !== 0) this.#store(token, value + step);
    return value;
  }

  #apply(operator: string, left: number, right: number): number {
    if (this.#skipping > 0) return 0;
    if ((operator === "/" || operator === "%") && right === 0)
      throw new ShellError("arithmetic expression: division by zero");
    const operation = OPERATIONS[operator];
    if (operation === undefined) throw new ShellError(`arithmetic expression: unexpected "${operator}"`);
    return Number(operation(left, right));
  }

  #guarded(skip: boolean, read: () => number): number {
    if (skip) this.#skipping++;
    const value = read();
    if (skip) this.#skipping--;
    return value;
  }

  #value(name: string): number {
    const text = this.#variables.get(name)?.trim() ?? "";
    if (text === "") return 0;
    return /^-?[0-9]+$/.test(text) ? Number(text) : evaluate(text, this.#variables, this.#depth + 1);
  }

  #store(name: string, value: number): number {
    if (!isName(name)) throw new ShellError(`arithmetic expression: "${name}" is not a variable`);
    if (this.#skipping === 0) this.#variables.set(name, String(value));
    return value;
  }

  #take(token: string): boolean {
    const found = this.#tokens[this.#at] === token;
    if (found) this.#at++;
    return found;
  }
}

const OPERATIONS: Readonly<Record<string, (left: number, right: number) => number | boolean>> = {
  "||": (left, right) => left !== 0 || right !== 0,
  "&&": (left, right) => left !== 0 && right !== 0,
  "|": (left, right) => left | right,
  "^": (left, right) => left ^ right,
  "&": (left, right) => left & right,
  "==": (left, right) => left === right,
  "!=": (left, right) => left !== right,
  "<": (left, right) => left < right,
  ">": (left, right) => left > right,
  "<=": (left, right) => left <= right,
  ">=": (left, right) => left >= right,
  "<<": (left, right) => left << right,
  ">>": (left, right) => left >> right,
  "+": (left, right) => left + right,
  "-": (left, right) => left - right,
  "*": (left, right) => left * right,
  "/": (left, right) => Math.trunc(left / right),
  "%": (left, right) => left % right,
};

function isName(token: string): boolean {
  return /^[A-Za-z_]/.test(token);
}

function numberOf(token: string): number {
  if (!/^[0-9]/.test(token))
    throw new ShellError(`arithmetic expression: expected a number${token === "" ? "" : `, not "${token}"`}`);
  if (/^0[0-7]+$/.test(token)) return Number.parseInt(token, 8);
  return Number(token);
}
