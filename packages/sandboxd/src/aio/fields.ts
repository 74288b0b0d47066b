/**
 * The fields of a request's body, checked as the AIO API checks them: all mistakes are reported at once.
 *
 * A nullable field takes null for its default; another one refuses it. An unambiguous value is converted: "7" to a
 * number, 1 to true.
 */

import type { IncomingMessage } from "node:http";
import { type FieldProblem, ValidationProblem } from "./answers.ts";
import { readBody } from "./body.ts";

type Kind = "string" | "boolean" | "number" | "integer";
type Wrong = readonly [type: string, msg: string];

/** How a value of each kind is read; or what is wrong with it. */
const READERS: Readonly<Record<Kind, (value: unknown) => { readonly value: unknown } | { readonly wrong: Wrong }>> = {
  string: (value) =>
    typeof value === "string" ? { value } : { wrong: ["string_type", "Input should be a valid string"] },
  boolean: (value) => {
    const text = typeof value === "string" ? value.toLowerCase() : value;
    if (YES.includes(text)) return { value: true };
    if (NO.includes(text)) return { value: false };
    return { wrong: [typeof value === "string" ? "bool_parsing" : "bool_type", "Input should be a valid boolean"] };
  },
  number: (value) => {
    const number = numberIn(value);
    if (number !== null) return { value: number };
    return { wrong: [typeof value === "string" ? "float_parsing" : "float_type", "Input should be a valid number"] };
  },
  integer: (value) => {
    const number = numberIn(value);
    if (number !== null && Number.isInteger(number)) return { value: number };
    const type = typeof value === "number" ? "int_from_float" : typeof value === "string" ? "int_parsing" : "int_type";
    return { wrong: [type, "Input should be a valid integer"] };
  },
};

const YES: readonly unknown[] = [true, 1, "1", "true", "t", "yes", "y", "on"];
const NO: readonly unknown[] = [false, 0, "0", "false", "f", "no", "n", "off"];

function numberIn(value: unknown): number | null {
  const number = typeof value === "string" && value.trim() !== "" ? Number(value) : value;
  return typeof number === "number" && Number.isFinite(number) ? number : null;
}

export class Fields {
  readonly #values: Readonly<Record<string, unknown>>;
  readonly #problems: FieldProblem[] = [];

  constructor(values: Readonly<Record<string, unknown>>) {
    this.#values = values;
  }

  /** `whenEmpty`: the meaning of an absent body, which clients send when no field is given. */
  static async of(request: IncomingMessage, whenEmpty: "missing" | "no fields" = "missing"): Promise<Fields> {
    const body = await readBody(request);
    if (body.length === 0 && whenEmpty === "no fields") return new Fields({});
    if (body.length === 0) throw bodyProblem("missing", "Field required", null);
    let values: unknown;
    try {
      values = JSON.parse(body.toString("utf8"));
    } catch {
      throw bodyProblem("json_invalid", "JSON decode error", {});
    }
    if (typeof values !== "object" || values === null || Array.isArray(values))
      throw bodyProblem("model_attributes_type", "Input should be a valid dictionary", values ?? null);
    return new Fields(values as Record<string, unknown>);
  }

  /** Required. */
  text(name: string): string {
    return this.#required<string>(name, "string") ?? "";
  }

  /** Required. */
  flag(name: string): boolean {
    return this.#required<boolean>(name, "boolean") ?? false;
  }

  optionalText(name: string): string | null {
    return this.#nullable<string>(name, "string");
  }

  number(name: string): number | null {
    return this.#nullable<number>(name, "number");
  }

  integer(name: string): number | null {
    return this.#nullable<number>(name, "integer");
  }

  /** `null` also means the default. */
  flagOrNull(name: string, otherwise: boolean): boolean {
    return this.#nullable<boolean>(name, "boolean") ?? otherwise;
  }

  textOr(name: string, otherwise: string): string {
    return this.#defaulted(name, "string", otherwise);
  }

  flagOr(name: string, otherwise: boolean): boolean {
    return this.#defaulted(name, "boolean", otherwise);
  }

  numberOr(name: string, otherwise: number): number {
    return this.#defaulted(name, "number", otherwise);
  }

  integerOr(name: string, otherwise: number): number {
    return this.#defaulted(name, "integer", otherwise);
  }

  /** Only validated: fields without a meaning here. */
  ignore(kind: Kind, ...names: readonly string[]): void {
    for (const name of names) this.#nullable(name, kind);
  }

  choice<T extends string>(name: string, choices: readonly T[]): T | null {
    const value = this.#values[name];
    if (value === undefined || value === null) return null;
    const found = choices.find((choice) => choice === value);
    if (found === undefined)
      this.#wrong(name, "enum", `Input should be ${choices.map((one) => `'${one}'`).join(", ")}`);
    return found ?? null;
  }

  /** Required. */
  requiredChoice<T extends string>(name: string, choices: readonly [T, ...T[]]): T {
    const isNull = this.#values[name] === null;
    if (this.#isAbsent(name)) this.#missing(name);
    else if (isNull) this.#wrong(name, "enum", `Input should be ${choices.map((one) => `'${one}'`).join(", ")}`);
    return this.choice(name, choices) ?? choices[0];
  }

  texts(name: string): readonly string[] | null {
    return this.#list<string>(name, "string");
  }

  textsOr(name: string, otherwise: readonly string[]): readonly string[] {
    if (this.#values[name] === null) this.#wrong(name, "list_type", "Input should be a valid list");
    return this.#list<string>(name, "string") ?? otherwise;
  }

  /** All of them, where none are named. */
  choices<T extends string>(name: string, choices: readonly T[]): readonly T[] {
    const given = this.textsOr(name, choices);
    for (const [index, one] of given.entries()) {
      if (choices.some((choice) => choice === one)) continue;
      const msg = `Input should be ${choices.map((choice) => `'${choice}'`).join(", ")}`;
      this.#problems.push({ type: "enum", loc: ["body", name, index], msg, input: one });
    }
    return given as readonly T[];
  }

  integers(name: string): readonly number[] | null {
    return this.#list<number>(name, "integer");
  }

  /** Drops null values. */
  textMap(name: string): Readonly<Record<string, string>> {
    const value = this.#values[name];
    if (value === undefined || value === null) return {};
    if (typeof value !== "object" || Array.isArray(value)) {
      this.#wrong(name, "dict_type", "Input should be a valid dictionary");
      return {};
    }
    const entries = Object.entries(value).filter(([, entry]) => entry !== null);
    for (const [key, entry] of entries) {
      if (typeof entry === "string") continue;
      const loc = ["body", name, key];
      this.#problems.push({ type: "string_type", loc, msg: "Input should be a valid string", input: entry });
    }
    return Object.fromEntries(entries) as Record<string, string>;
  }

  /** Call after reading all fields. */
  check(): void {
    if (this.#problems.length > 0) throw new ValidationProblem(this.#problems);
  }

  #required<T>(name: string, kind: Kind): T | null {
    if (!this.#isAbsent(name)) return this.#read<T>(name, kind);
    this.#missing(name);
    return null;
  }

  #nullable<T>(name: string, kind: Kind): T | null {
    const value = this.#values[name];
    return value === undefined || value === null ? null : this.#read<T>(name, kind);
  }

  #defaulted<T>(name: string, kind: Kind, otherwise: T): T {
    return this.#isAbsent(name) ? otherwise : (this.#read<T>(name, kind) ?? otherwise);
  }

  #read<T>(name: string, kind: Kind): T | null {
    const found = READERS[kind](this.#values[name]);
    if ("value" in found) return found.value as T;
    this.#wrong(name, ...found.wrong);
    return null;
  }

  /** Reports each wrong entry by its index. */
  #list<T>(name: string, kind: Kind): readonly T[] | null {
    const value = this.#values[name];
    if (value === undefined || value === null) return null;
    if (!Array.isArray(value)) {
      this.#wrong(name, "list_type", "Input should be a valid list");
      return null;
    }
    return value.flatMap((entry: unknown, index) => {
      const found = READERS[kind](entry);
      if ("value" in found) return [found.value as T];
      const [type, msg] = found.wrong;
      this.#problems.push({ type, loc: ["body", name, index], msg, input: entry });
      return [];
    });
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

function bodyProblem(type: string, msg: string, input: unknown): ValidationProblem {
  return new ValidationProblem([{ type, loc: ["body"], msg, input }]);
}
