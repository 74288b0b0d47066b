/**
 * The changes a later version makes to JSON: every object has one more field, and some words are new to this version.
 */

export type Json = null | boolean | number | string | readonly Json[] | { readonly [name: string]: Json };

export const LATER_FIELD = "laterField";
export const LATER_WORD = "later_word";

/** An error with a code that this version does not have. */
export const LATER_ERROR = {
  code: "later_code",
  message: "A later version says no.",
  retryable: false,
  details: { count: 3 },
  remedy: "Ask a later client.",
};

/** One more field in every object. Its value is a text, because some objects are maps of texts. */
export function grow(value: Json): Json {
  if (Array.isArray(value)) return value.map(grow);
  if (typeof value !== "object" || value === null) return value;
  const grown = Object.entries(value).map(([name, part]) => [name, grow(part)] as const);
  return { ...Object.fromEntries(grown), [LATER_FIELD]: "later" };
}

/** New words for the fields with these names. */
export function reword(value: Json, names: ReadonlySet<string>): Json {
  if (Array.isArray(value)) return value.map((part) => reword(part, names));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, part]) => [
      name,
      names.has(name) && typeof part === "string" ? LATER_WORD : reword(part, names),
    ]),
  );
}

/** A schema of the OpenAPI document. */
export interface Schema {
  readonly $ref?: string;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly items?: Schema;
  readonly anyOf?: readonly Schema[];
  readonly oneOf?: readonly Schema[];
  readonly "x-extensible-enum"?: readonly string[];
  readonly additionalProperties?: unknown;
}

/** New words wherever the schema allows more. */
export function rewordBy(value: Json, schema: Schema | undefined, schemas: Readonly<Record<string, Schema>>): Json {
  const name = schema?.$ref?.split("/").at(-1);
  if (name !== undefined) return rewordBy(value, schemas[name], schemas);
  if (schema === undefined || value === null) return value;
  if (typeof value === "string") return schema["x-extensible-enum"] === undefined ? value : LATER_WORD;
  if (Array.isArray(value)) return value.map((part) => rewordBy(part, schema.items, schemas));
  if (typeof value !== "object") return value;
  const choices = [...(schema.anyOf ?? []), ...(schema.oneOf ?? [])];
  const chosen = choices.reduce<Json>((known, choice) => rewordBy(known, choice, schemas), value);
  if (schema.properties === undefined) return chosen;
  return Object.fromEntries(
    Object.entries(chosen as { readonly [name: string]: Json }).map(([field, part]) => [
      field,
      rewordBy(part, schema.properties?.[field], schemas),
    ]),
  );
}
