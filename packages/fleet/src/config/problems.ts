/**
 * Problems of a configuration as text: where, what, and the probable intention. The message has the first problem and
 * the number of others; the details have all of them.
 */

import { type ConfigProblem, isSandlotError, nearest, SandlotError } from "@sandlot/contract";
import { z } from "zod";

export type Problem = ConfigProblem;

/** The text for an unknown key. The key is wrong then, not its value. */
export const UNKNOWN_KEY = "this key does not exist";

type Path = readonly PropertyKey[];

/** Throws `config_invalid` with all problems, if there are any. */
export function refuse(problems: readonly Problem[], file?: string): void {
  const [first, ...others] = problems;
  if (first === undefined) return;
  const { path, problem, suggestion, line, column } = first;
  const at = line === undefined ? "" : ` (${file}, line ${line}, column ${column})`;
  const more =
    others.length === 0 ? "" : ` (and ${others.length} more ${others.length === 1 ? "problem" : "problems"})`;
  throw new SandlotError("config_invalid", {
    path,
    problem: `${problem}${at}${more}`,
    ...(suggestion === undefined ? {} : { suggestion }),
    ...(others.length === 0 && line === undefined ? {} : { problems }),
  });
}

/** All problems that `check` throws. Any other error is rethrown. */
export function problemsFrom(check: () => unknown): readonly Problem[] {
  try {
    check();
    return [];
  } catch (error) {
    if (!isSandlotError(error, "config_invalid")) throw error;
    const { path, problem, suggestion, problems } = error.details;
    return problems ?? [{ path, problem, ...(suggestion === undefined ? {} : { suggestion }) }];
  }
}

/** One problem per mistake. Unknown keys come first: a mistyped key often explains a missing one. */
export function problemsOf(issues: readonly z.core.$ZodIssue[], schema: z.core.$ZodType, input: unknown): Problem[] {
  const unknown: Problem[] = [];
  const wrong: Problem[] = [];
  for (const issue of issues) {
    if (issue.code === "unrecognized_keys")
      unknown.push(...issue.keys.map((key) => unknownKey(schema, issue.path, key)));
    else wrong.push({ path: showPath(issue.path), ...wrongValue(issue, valueAt(input, issue.path)) });
  }
  return [...unknown, ...wrong];
}

/** `blueprints.default.mounts[0].hostPath`; a part that is no plain word is quoted. */
export function showPath(path: Path): string {
  let shown = "";
  for (const part of path) {
    if (typeof part === "number") shown += `[${part}]`;
    else if (/^[A-Za-z_$][\w$-]*$/.test(String(part))) shown += shown === "" ? String(part) : `.${String(part)}`;
    else shown += `[${JSON.stringify(String(part))}]`;
  }
  return shown;
}

function unknownKey(schema: z.core.$ZodType, parent: Path, key: string): Problem {
  const siblings = keysOf(schemaAt(schema, parent));
  const suggestion = nearest(key, siblings) ?? elsewhere(schema, key);
  return { path: showPath([...parent, key]), problem: UNKNOWN_KEY, ...(suggestion && { suggestion }) };
}

/** A valid key in the wrong place: `maxPerUser` beside `limits`. */
function elsewhere(schema: z.core.$ZodType, key: string): string | undefined {
  for (const parent of keysOf(schema)) {
    if (keysOf(schemaAt(schema, [parent])).includes(key)) return showPath([parent, key]);
  }
  return undefined;
}

function wrongValue(issue: z.core.$ZodIssue, value: unknown): Omit<Problem, "path"> {
  switch (issue.code) {
    case "invalid_type":
      return { problem: `must be ${EXPECTED[issue.expected] ?? issue.expected}, but is ${kindOf(value)}` };
    case "invalid_value": {
      const choices = issue.values.map(String);
      const suggestion = typeof value === "string" ? nearest(value, choices) : undefined;
      const problem = `must be ${choices.length === 1 ? "" : "one of "}${choices.join(", ")}, but is ${show(value)}`;
      return { problem, ...(suggestion && { suggestion }) };
    }
    case "invalid_key":
      return { problem: issue.issues[0]?.message ?? issue.message };
    case "too_small":
    case "too_big":
      return { problem: typeof value === "number" ? `${issue.message} (it is ${value})` : issue.message };
    case "invalid_format":
      return { problem: `${issue.message} (it is ${show(value)})` };
    default:
      return { problem: issue.message };
  }
}

/** zod's type names, as words. */
const EXPECTED: Readonly<Record<string, string>> = {
  string: "a string",
  number: "a number",
  int: "a whole number",
  boolean: "true or false",
  object: "an object",
  record: "an object",
  array: "a list",
};

/** Describes the kind of a value without showing it: it may be a secret in the wrong place. */
function kindOf(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "a list";
  if (typeof value === "number") return Number.isFinite(value) ? `the number ${value}` : `${value}`;
  return (
    { string: "a string", boolean: `${value}`, object: "an object", undefined: "missing" }[String(typeof value)] ??
    `a ${typeof value}`
  );
}

function show(value: unknown): string {
  if (typeof value !== "string") return kindOf(value);
  return JSON.stringify(value.length > 60 ? `${value.slice(0, 57)}...` : value);
}

function valueAt(input: unknown, path: Path): unknown {
  let value = input;
  for (const key of path) {
    if (value === null || typeof value !== "object") return undefined;
    value = Reflect.get(value, key);
  }
  return value;
}

/** The schema below a path, through records, lists and defaults. */
function schemaAt(schema: z.core.$ZodType | undefined, path: Path): z.core.$ZodType | undefined {
  const inner = unwrapped(schema);
  const [key, ...rest] = path;
  if (key === undefined) return inner;
  if (inner instanceof z.ZodObject) return schemaAt(inner.shape[String(key)], rest);
  if (inner instanceof z.ZodRecord) return schemaAt(inner.valueType, rest);
  if (inner instanceof z.ZodArray) return schemaAt(inner.element, rest);
  return undefined;
}

function unwrapped(schema: z.core.$ZodType | undefined): z.core.$ZodType | undefined {
  const wraps =
    schema instanceof z.ZodOptional ||
    schema instanceof z.ZodDefault ||
    schema instanceof z.ZodPrefault ||
    schema instanceof z.ZodReadonly;
  return wraps ? unwrapped(schema.unwrap()) : schema;
}

function keysOf(schema: z.core.$ZodType | undefined): string[] {
  const inner = unwrapped(schema);
  return inner instanceof z.ZodObject ? Object.keys(inner.shape) : [];
}
