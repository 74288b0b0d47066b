/**
 * Durations, sizes and counts in a configuration, with error texts. Durations and sizes may be numbers (milliseconds,
 * bytes) or written with units (`10m`, `2GiB`); the result is a number.
 */

import { z } from "zod";
import { DURATION_PATTERN, parseDuration, parseSize, SIZE_PATTERN } from "../../world/units.ts";

/** The longest delay of a Node timer (24.8 days). A longer one would fire at once. */
export const DURATION_MAX_MS = 2_147_483_647;
/** Far beyond any machine; catches a size typed into a count. */
export const COUNT_MAX = 1_000_000;

/** A number, or its written form. */
export type Written = z.ZodType<number, number | string>;

const WRITTEN = new WeakMap<z.core.$ZodType, { readonly inner: z.core.$ZodType; readonly pattern: string }>();

function written(inner: z.ZodType<number, number>, kind: "duration" | "size"): Written {
  const parse = kind === "duration" ? parseDuration : parseSize;
  const example = kind === "duration" ? "500ms, 30s, 10m or 1h" : "512MiB, 2GiB or 500MB";
  const read = (value: unknown, context: z.RefinementCtx) => {
    if (typeof value !== "string") return value;
    const parsed = parse(value.trim());
    if (parsed !== null) return parsed;
    context.addIssue({
      code: "custom",
      message: `must be a ${kind} such as ${example}, but is ${JSON.stringify(value.slice(0, 60))}`,
    });
    return z.NEVER;
  };
  const schema = z.preprocess(read, inner) as unknown as Written;
  WRITTEN.set(schema, { inner, pattern: kind === "duration" ? DURATION_PATTERN : SIZE_PATTERN });
  return schema;
}

/** For `z.toJSONSchema`: how editors see a written amount. */
export function describeWritten(context: { zodSchema: z.core.$ZodType; jsonSchema: Record<string, unknown> }): void {
  const { zodSchema, jsonSchema } = context;
  // zod cannot derive the default of a schema that reads strings.
  if (zodSchema instanceof z.ZodDefault) jsonSchema.default = zodSchema.def.defaultValue;
  const known = WRITTEN.get(bare(zodSchema));
  if (known === undefined) return;
  const { $schema: _, ...number } = z.toJSONSchema(known.inner);
  for (const key of Object.keys(number)) delete jsonSchema[key];
  jsonSchema.anyOf = [number, { type: "string", pattern: known.pattern }];
}

function bare(schema: z.core.$ZodType): z.core.$ZodType {
  return schema instanceof z.ZodDefault || schema instanceof z.ZodOptional ? bare(schema.unwrap()) : schema;
}

const duration = z.int().max(DURATION_MAX_MS, `must be at most ${DURATION_MAX_MS} ms (24.8 days)`);
export const size = written(z.int().min(1, "must be at least 1 byte"), "size");
export const count = z.int().max(COUNT_MAX, `must be at most ${COUNT_MAX}`);

/** A duration that can be switched off. */
export function durationOrOff(zeroMeans: string, maxMs = DURATION_MAX_MS): Written {
  const inner = duration.min(0, `must not be negative; 0 means ${zeroMeans}`);
  return written(maxMs === DURATION_MAX_MS ? inner : inner.max(maxMs, `must be at most ${maxMs} ms`), "duration");
}

/** A duration that cannot be 0, and why. */
export function durationOverZero(because: string): Written {
  return durationFrom(1, because);
}

/** A duration with a lower limit, and why. */
export function durationFrom(minMs: number, because: string): Written {
  return written(duration.min(minMs, `must be at least ${minMs} ms: ${because}`), "duration");
}
