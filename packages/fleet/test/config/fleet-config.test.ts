/** The generated type of a configuration: an editor shows the schema's description of every key. */

import { readFileSync } from "node:fs";
import { expect, expectTypeOf, test } from "vitest";
import { z } from "zod";
import { describeWritten } from "../../src/backend/config/amounts.ts";
import type { FleetConfig } from "../../src/config/fleet-config.ts";
import { fleetConfigSchema } from "../../src/config/schema.ts";

type DeepReadonly<T> = T extends object ? { readonly [Key in keyof T]: DeepReadonly<T[Key]> } : T;
type Input = DeepReadonly<z.input<typeof fleetConfigSchema>>;
/** An interface as the mapped type it is equal to, since interfaces and mapped types are never identical. */
type Plain<T> = T extends object ? { readonly [Key in keyof T]: Plain<T[Key]> } : T;

interface Schema {
  readonly description?: string;
  readonly properties?: Record<string, Schema>;
  readonly items?: Schema;
  readonly additionalProperties?: Schema | boolean;
}

test("the type is equal to what the schema takes", () => {
  expectTypeOf<Plain<FleetConfig>>().toEqualTypeOf<Input>();
  expectTypeOf<FleetConfig>().toExtend<Input>();
  expectTypeOf<Input>().toExtend<FleetConfig>();
});

test("every key at every depth has its description in the type", () => {
  const source = readFileSync(new URL("../../src/config/fleet-config.ts", import.meta.url), "utf8");
  const documented = new Map<string, string[]>();
  for (const [, comment, key] of source.matchAll(/ {2}\/\*\*((?:[^*]|\*(?!\/))*)\*\/\n {2}readonly (\w+)\??:/g)) {
    const words = (comment ?? "")
      .replaceAll(/\n {3}\* ?/g, " ")
      .replaceAll(/\s+/g, " ")
      .trim();
    documented.set(key ?? "", [...(documented.get(key ?? "") ?? []), words]);
  }
  let keys = 0;
  const walk = (schema: Schema): void => {
    for (const [key, value] of Object.entries(schema.properties ?? {})) {
      keys += 1;
      expect(value.description, `the schema describes ${key}`).toBeTypeOf("string");
      const description = String(value.description).replaceAll(/\s+/g, " ").trim();
      expect(
        documented.get(key)?.some((words) => words.startsWith(description)),
        `${key}: ${description}`,
      ).toBe(true);
      walk(value);
    }
    if (schema.items !== undefined) walk(schema.items);
    if (typeof schema.additionalProperties === "object") walk(schema.additionalProperties);
  };
  walk(z.toJSONSchema(fleetConfigSchema, { io: "input", unrepresentable: "any", override: describeWritten }) as Schema);
  expect(keys).toBeGreaterThan(60);
  expect([...documented.values()].flat()).toHaveLength(keys);
  expect(documented.get("idleTimeoutMs")?.[0]).toMatch(/Default: `600000`\.$/);
});
