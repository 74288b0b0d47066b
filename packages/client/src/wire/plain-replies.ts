/**
 * Replies that every command gets, checked by hand: zod and the contract's schemas take longer to load than the rest of
 * `sandlot exec` takes through a gateway. The schemas stay authoritative: a reply that these checks do not know is
 * parsed by its schema, which accepts or refuses it. A test compares both.
 */

import { execOutputSchema, followEndSchema, leaseSchema, spawnedExecSchema } from "@sandlot/contract";
import type { Reader } from "./errors.ts";

type Check = (value: unknown) => boolean;

const text: Check = (value) => typeof value === "string";
const number: Check = (value) => Number.isFinite(value);
const truth: Check = (value) => typeof value === "boolean";
const integer: Check = (value) => Number.isSafeInteger(value);
const count: Check = (value) => integer(value) && (value as number) >= 0;
const texts: Check = (value) => Array.isArray(value) && value.every(text);
const orNull =
  (check: Check): Check =>
  (value) =>
    value === null || check(value);
const either =
  (one: Check, other: Check): Check =>
  (value) =>
    one(value) || other(value);
const oneOf =
  (...names: readonly string[]): Check =>
  (value) =>
    names.includes(value as string);

/** These keys and no others. */
function fields(checks: Readonly<Record<string, Check>>): Check {
  const wanted = Object.entries(checks);
  return (value) => {
    if (typeof value !== "object" || value === null || Array.isArray(value)) return false;
    const given = value as Readonly<Record<string, unknown>>;
    return Object.keys(given).length === wanted.length && wanted.every(([name, check]) => check(given[name]));
  };
}

const recovery = { kind: oneOf("same", "restored", "empty"), lost: texts, survived: texts };
const recoveredCheckpoint = fields({ id: text, label: orNull(text), takenAt: number, differs: orNull(truth) });

/** The schema comes as a function: accessing it loads it. */
function plain<Value>(check: Check, schema: () => Reader<Value>): Reader<Value> {
  return { parse: (data) => (check(data) ? (data as Value) : schema().parse(data)) };
}

export const leaseReply = plain(
  fields({
    leaseId: text,
    sandboxId: text,
    generation: integer,
    expiresAt: number,
    recovery: either(fields(recovery), fields({ ...recovery, checkpoint: recoveredCheckpoint })),
  }),
  () => leaseSchema,
);

export const backgroundExecReply = plain(fields({ execId: text, pid: orNull(integer) }), () => spawnedExecSchema);

export const execOutputData = plain(
  fields({ stream: oneOf("stdout", "stderr"), offset: count, base64: text }),
  () => execOutputSchema,
);

export const execEndData = plain(
  fields({
    execId: text,
    status: oneOf("completed", "timed_out", "killed", "lost"),
    exitCode: orNull(integer),
    signal: orNull(text),
    stdoutBytes: count,
    stderrBytes: count,
    durationMs: (value) => number(value) && (value as number) >= 0,
  }),
  () => followEndSchema,
);
