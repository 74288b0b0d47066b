/**
 * Values from JSON schemas, drawn from a seed: mostly valid ones, and valid ones with a mistake. A field's name
 * suggests a useful value, so that a request often has an effect in a sandbox and does not only pass its schema.
 */

export type Schema = Readonly<Record<string, unknown>>;

export class Chance {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0 || 1;
  }

  /** From 0 (included) to 1 (excluded). */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  }

  below(count: number): number {
    return Math.floor(this.next() * count);
  }

  pick<T>(from: readonly T[]): T {
    return from[this.below(from.length)] as T;
  }

  chance(share: number): boolean {
    return this.next() < share;
  }
}

const ROOT = "/mnt/user-data";
const PATHS = [
  `${ROOT}/workspace/a.txt`,
  `${ROOT}/workspace/dir/b.txt`,
  `${ROOT}/workspace/dir`,
  `${ROOT}/outputs/report.md`,
  `${ROOT}/uploads/file-1`,
  `${ROOT}/workspace`,
  ROOT,
  "/tmp/x",
  "/",
  "/etc/passwd",
  `${ROOT}/workspace/none`,
];
const BY_NAME: Readonly<Record<string, readonly unknown[]>> = {
  thread: ["t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7"],
  to: ["b0", "b1", "b2", "t1", `${ROOT}/workspace/c.txt`, `${ROOT}/workspace/dir/d`, `${ROOT}/outputs/report.md`],
  execId: ["e0", "e1", "e2", "e3"],
  sessionId: ["s0", "s1"],
  terminalId: ["p0", "p1"],
  filename: ["file-1", "file-2", "file-3"],
  "*": ["mnt/user-data/outputs/report.md", "report.md", "mnt/user-data/uploads/file-1", "none.txt"],
  path: PATHS,
  from: PATHS,
  cwd: PATHS,
  command: [
    "echo hello",
    "cat a.txt",
    "ls -la",
    "echo x > a.txt; cat a.txt",
    "exit 3",
    "printf out; printf err >&2",
    "cat",
  ],
  argv: [["echo", "hi"], ["cat", "-"], ["ls"]],
  pattern: ["hello", "*.txt", "**", "x|y", "out", "("],
  glob: ["*.txt", "**/*.md"],
  env: [{ NAME: "value" }, {}],
  stdin: ["typed\n", ""],
  data: ["typed\n", ""],
  stdinBase64: ["aGVsbG8=", ""],
  base64: ["aGVsbG8=", ""],
  timeoutMs: [1, 50, 200],
  ttlMs: [1_000, 5_000, 60_000],
  expected_sha256: ["0".repeat(64)],
  depth: [1, 2, 5],
  mode: ["644", "755"],
  port: [3_000, 8_080],
  signal: ["SIGTERM", "SIGKILL", "SIGINT"],
  after: ["x-1"],
};

const WRONG: readonly unknown[] = [
  null,
  "",
  "x",
  -1,
  0,
  1.5,
  1e21,
  true,
  [],
  {},
  [[]],
  { $ref: "x" },
  "\0",
  "../..",
  "🎈",
  "a".repeat(5_000),
];

export function generate(
  chance: Chance,
  schema: Schema,
  definitions: Readonly<Record<string, Schema>>,
  name = "",
): unknown {
  const known = BY_NAME[name];
  if (known !== undefined) return chance.pick(known);
  const reference = schema.$ref;
  if (typeof reference === "string") {
    const target = definitions[reference.slice(reference.lastIndexOf("/") + 1)];
    return target === undefined ? null : generate(chance, target, definitions, name);
  }
  const choices = (schema.anyOf ?? schema.oneOf) as readonly Schema[] | undefined;
  if (choices !== undefined) return generate(chance, chance.pick(choices), definitions, name);
  if (Array.isArray(schema.enum)) return chance.pick(schema.enum);
  if ("const" in schema) return schema.const;
  const type = Array.isArray(schema.type) ? chance.pick(schema.type as string[]) : schema.type;
  switch (type) {
    case "object":
      return object(chance, schema, definitions);
    case "array":
      return [generate(chance, (schema.items ?? {}) as Schema, definitions, name)];
    case "integer":
    case "number":
      return within(chance, schema);
    case "boolean":
      return chance.chance(0.5);
    case "null":
      return null;
    default:
      return chance.pick(["text", "a", "b-1"]);
  }
}

/** A valid value with a mistake in it. */
export function spoil(chance: Chance, value: unknown): unknown {
  if (value !== null && typeof value === "object" && !Array.isArray(value) && chance.chance(0.8)) {
    const entries = Object.entries(value);
    const kind = chance.below(3);
    if (kind === 0 || entries.length === 0)
      return { ...value, [chance.pick(["extra", "__proto__", "constructor", ""])]: chance.pick(WRONG) };
    const [name] = chance.pick(entries);
    if (kind === 1) return Object.fromEntries(entries.filter(([key]) => key !== name));
    return { ...value, [name]: chance.pick(WRONG) };
  }
  return chance.pick(WRONG);
}

export function wrongText(chance: Chance): string {
  return chance.pick(["..", "a.b", "%00", "x".repeat(300), "..%2f..", "🎈", "a b", "-1", "0", "%ff", "'\"<>", "null"]);
}

function object(
  chance: Chance,
  schema: Schema,
  definitions: Readonly<Record<string, Schema>>,
): Record<string, unknown> {
  const required = new Set((schema.required as readonly string[] | undefined) ?? []);
  const made: Record<string, unknown> = {};
  for (const [name, property] of Object.entries((schema.properties ?? {}) as Record<string, Schema>))
    if (required.has(name) || chance.chance(0.25)) made[name] = generate(chance, property, definitions, name);
  // Mutually exclusive fields are mostly sent one at a time.
  if ("argv" in made && "command" in made) delete made[chance.pick(["argv", "command"])];
  if ("execId" in made && "command" in made && chance.chance(0.7)) delete made.execId;
  if ("properties" in schema && "argv" in (schema.properties as object) && !("argv" in made) && !("command" in made))
    made.command = chance.pick(BY_NAME.command ?? []);
  if ("stdin" in made && "stdinBase64" in made) delete made.stdin;
  if ("data" in made && "base64" in made) delete made.data;
  return made;
}

function within(chance: Chance, { minimum = 0, maximum = 100 }: Schema): number {
  const low = Number(minimum);
  const high = Math.min(Number(maximum), low + 100);
  return low + chance.below(high - low + 1);
}
