/**
 * The shape of `Sandbox`: what each of its methods returns. Every wrapper of a sandbox is built from this one table.
 *
 * A new method of `Sandbox`, or of one of its parts, does not compile until its kind stands here. The compiler also
 * checks the kind.
 *
 *   value      a property that never changes
 *   promise    one response
 *   terminal   one response: a connection that stays in use
 *   stream     many responses; begins when it is iterated
 *   an object  a part, with methods of its own
 */

import type { Sandbox, SandlotError, Terminal } from "@sandlot/contract";

type MethodKind<Answer> =
  Answer extends Promise<Terminal>
    ? "terminal"
    : Answer extends Promise<unknown>
      ? "promise"
      : Answer extends AsyncIterable<unknown>
        ? "stream"
        : never;

type KindOf<Member> = Member extends (...input: never[]) => infer Answer
  ? MethodKind<Answer>
  : Member extends string | number
    ? "value"
    : ShapeOf<Member>;

export type ShapeOf<T> = { readonly [Name in keyof T]: KindOf<T[Name]> };

/** Any shape, for code that walks over its members. */
export interface AnyShape {
  readonly [name: string]: "value" | "promise" | "terminal" | "stream" | AnyShape;
}
type Kind = AnyShape[string];

type Method = (...input: readonly unknown[]) => unknown;

export const SANDBOX_SHAPE = {
  id: "value",
  generation: "value",
  exec: "promise",
  spawn: "promise",
  processes: "promise",
  usage: "promise",
  execs: {
    list: "promise",
    follow: "stream",
    output: "promise",
    signal: "promise",
    kill: "promise",
    writeStdin: "promise",
    waitForOutput: "promise",
  },
  files: {
    read: "promise",
    readText: "promise",
    download: "stream",
    write: "promise",
    upload: "promise",
    append: "promise",
    mkdir: "promise",
    rename: "promise",
    remove: "promise",
    stat: "promise",
    list: "promise",
    glob: "promise",
    grep: "promise",
    watch: "stream",
  },
  sessions: { open: "promise", exec: "promise", output: "promise", list: "promise", close: "promise" },
  terminals: { open: "terminal", attach: "terminal", list: "promise", close: "promise" },
  ports: { list: "promise", waitFor: "promise" },
} as const satisfies ShapeOf<Sandbox>;

export function memberOf<Name extends string>(target: object, name: Name): unknown {
  return (target as Readonly<Record<Name, unknown>>)[name];
}

/** Calls a method by its name. */
export function callMethod<Name extends string>(target: object, name: Name, input: readonly unknown[]): unknown {
  return (target as Readonly<Record<Name, Method>>)[name](...input);
}

/** The same sandbox, or part of one, with some members replaced. Everything else is the target's own. */
export function overridden<T extends object>(shape: ShapeOf<T>, target: T, overrides: Partial<T>): T {
  return built(shape, overrides, (name, kind) =>
    isMethod(kind) ? (...input: readonly unknown[]) => callMethod(target, name, input) : target[name],
  );
}

/** A part that a backend lacks: every use fails with `missing`, except for the members in `overrides`. */
export function unsupported<T extends object>(
  shape: ShapeOf<T>,
  missing: () => SandlotError,
  overrides: Partial<T>,
): T {
  return built(shape, overrides, (_, kind) =>
    kind === "stream" ? () => failedStream(missing) : () => Promise.reject(missing()),
  );
}

/** A stream that fails when it is read. */
export function failedStream(problem: () => SandlotError): AsyncIterable<never> {
  return { [Symbol.asyncIterator]: () => ({ next: () => Promise.reject(problem()) }) };
}

function isMethod(kind: Kind): boolean {
  return typeof kind === "string" && kind !== "value";
}

function built<T extends object>(
  shape: ShapeOf<T>,
  overrides: Partial<T>,
  memberOf: (name: keyof T & string, kind: Kind) => unknown,
): T {
  const kinds = Object.entries(shape) as [keyof T & string, Kind][];
  const members = kinds.map(([name, kind]) => [name, memberOf(name, kind)]);
  return { ...Object.fromEntries(members), ...overrides } as unknown as T;
}
