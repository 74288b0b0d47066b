/**
 * Writes the descriptions of the contract's schemas into its built declarations, as comments of the fields.
 *
 * A result's type is inferred from its schema, and the compiler drops comments inside an inferred type. `.describe()` is the one description
 * of a field: the API's documentation shows it, and with this also every editor.
 *
 *   node scripts/field-comments.mjs      part of the build, after the compiler
 */
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { ROOT } from "./runtime.mjs";

const DIST = join(ROOT, "packages/contract/dist");
const SCHEMA = /^(?:export )?declare const (\w+): .*ZodObject<\{$/;
const FIELD = /^(\s+)(?:readonly )?"?(\w+)"?\??: /;
/** A schema around the one that holds the fields. */
const WRAPPERS = ["innerType", "element"];

if (process.argv[1] === import.meta.filename) {
  const schemas = await import(pathToFileURL(join(DIST, "index.js")).href);
  let count = 0;
  for (const name of readdirSync(DIST, { recursive: true }).filter((file) => file.endsWith(".d.ts"))) {
    const path = join(DIST, name);
    const before = readFileSync(path, "utf8");
    const { text, added } = withFieldComments(before, schemas);
    if (text !== before) writeFileSync(path, text);
    count += added;
  }
  console.log(`field comments: ${count} added`);
}

/** Adds a comment above each field that has a description and no comment yet. `schemas` by the names of their constants. */
export function withFieldComments(text, schemas) {
  const lines = [];
  /** The object type that each open brace belongs to; `null` where there is no schema for it. */
  const open = [];
  let added = 0;
  for (const line of text.split("\n")) {
    const [, schema] = SCHEMA.exec(line) ?? [];
    if (schema !== undefined) open.push(objectIn(schemas[schema]));
    else if (open.length > 0) {
      if (/^\s*\}/.test(line)) open.pop();
      const [, indent, key] = FIELD.exec(line) ?? [];
      const field = key === undefined ? undefined : open.at(-1)?.shape[key];
      const description = field?.description;
      if (description !== undefined && !lines.at(-1)?.endsWith("*/")) {
        lines.push(`${indent}/** ${sentence(description)} */`);
        added += 1;
      }
      if (line.endsWith("{")) open.push(objectIn(field));
    }
    lines.push(line);
  }
  return { text: lines.join("\n"), added };
}

function objectIn(schema) {
  if (schema === undefined || schema === null) return null;
  if (schema.shape !== undefined) return schema;
  for (const wrapper of WRAPPERS) if (schema.def?.[wrapper] !== undefined) return objectIn(schema.def[wrapper]);
  return null;
}

/** A description must not end the comment that it stands in. */
function sentence(description) {
  return description.replaceAll("*/", "*\\/").replaceAll(/\s+/g, " ");
}
