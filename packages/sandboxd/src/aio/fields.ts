/**
 * The fields of a request's body, checked as the AIO API checks them: everything that is wrong is told at once.
 */

import type { IncomingMessage } from "node:http";
import { readBody } from "../wire/body.ts";
import { type FieldProblem, ValidationProblem } from "./answers.ts";

type Kind = "string" | "boolean" | "number" | "integer";

const EXPECTED: Readonly<Record<Kind, readonly [type: string, msg: string]>> = {
  string: ["string_type", "Input should be a valid string"],
  boolean: ["bool_parsing", "Input should be a valid boolean"],
  number: ["float_parsing", "Input should be a valid number"],
  integer: ["int_parsing", "Input should be a valid integer"],
};

export class Fields {
  readonly #values: Readonly<Record<string, unknown>>;
  readonly #problems: FieldProblem[] = [];

  constructor(values: Readonly<Record<string, unknown>>) {
    this.#values = values;
  }

  static async of(request: IncomingMessage): Promise<Fields> {
    const body = await readBody(request);
    let values: unknown;
    try {
      values = JSON.parse(body.toString("utf8"));
    } catch {
      throw new ValidationProblem([{ type: "json_invalid", loc: ["body"], msg: "JSON decode error", input: {} }]);
    }
    if (typeof values !== "object" || values === null || Array.isArray(values)) {
      const msg = "Input should be a valid dictionary";
      throw new ValidationProblem([{ type: "dict_type", loc: ["body"], msg, input: values ?? null }]);
    }
    return new Fields(values as Record<string, unknown>);
  }

  text(name: string): string {
    if (this.#isAbsent(name)) this.#missing(name);
    return this.optionalText(name) ?? "";
  }

  optionalText(name: string): string | null {
    return this.#value<string>(name, "string");
  }

  flag(name: string, otherwise: boolean): boolean {
    return this.#value<boolean>(name, "boolean") ?? otherwise;
  }

  number(name: string): number | null {
    return this.#value<number>(name, "number");
  }

  integer(name: string): number | null {
    return this.#value<number>(name, "integer");
  }

  choice<T extends string>(name: string, choices: readonly T[], otherwise: T): T {
    const value = this.#values[name];
    if (value === undefined || value === null) return otherwise;
    const found = choices.find((choice) => choice === value);
    if (found === undefined)
      this.#wrong(name, "enum", `Input should be ${choices.map((one) => `'${one}'`).join(", ")}`);
    return found ?? otherwise;
  }

  texts(name: string): readonly string[] | null {
    const value = this.#values[name];
    if (value === undefined || value === null) return null;
    if (Array.isArray(value) && value.every((entry) => typeof entry === "string")) return value;
    this.#wrong(name, "list_type", "Input should be a valid list");
    return null;
  }

  integers(name: string): readonly number[] | null {
    const value = this.#values[name];
    if (value === undefined || value === null) return null;
    if (Array.isArray(value) && value.every((entry) => Number.isInteger(entry))) return value;
    this.#wrong(name, "list_type", "Input should be a valid list");
    return null;
  }

  textMap(name: string): Readonly<Record<string, string>> {
    const value = this.#values[name];
    if (value === undefined || value === null) return {};
    const isMap = typeof value === "object" && !Array.isArray(value);
    if (isMap && Object.values(value).every((entry) => typeof entry === "string"))
      return value as Record<string, string>;
    this.#wrong(name, "dict_type", "Input should be a valid dictionary");
    return {};
  }

  /** Call when everything was read. */
  check(): void {
    if (this.#problems.length > 0) throw new ValidationProblem(this.#problems);
  }

  #value<T>(name: string, kind: Kind): T | null {
    const value = this.#values[name];
    if (value === undefined || value === null) return null;
    const isRight = kind === "integer" ? Number.isInteger(value) : typeof value === kind;
    if (isRight) return value as T;
    this.#wrong(name, ...EXPECTED[kind]);
    return null;
  }

  #isAbsent(name: string): boolean {
    return this.#values[name] === undefined;
  }

  #missing(name: string): void {
    this.#problems.push({ type: "missing", loc: ["body", name], msg: "Field required", input: this.#values });
  }

  #wrong(name: string, type: string, msg: string): void {
    this.#problems.push({ type, loc: ["body", name], msg, input: this.#values[name] });
  }
}
