/** The databases that a run can have below its store, by the store's name. */

import { join } from "node:path";
import type { Database } from "./database.ts";
import { SqliteFile } from "./sqlite-file.ts";

const DATABASES = {
  sqlite: async (directory: string): Promise<Database> => new SqliteFile(join(directory, "store")),
} as const;

export type StoreName = keyof typeof DATABASES;

export function parseStoreName(text: string): StoreName {
  if (Object.hasOwn(DATABASES, text)) return text as StoreName;
  throw new Error(`--store takes one of ${Object.keys(DATABASES).join(", ")}, not ${text}`);
}

/** `directory`: of the run. The database makes one of its own in it. */
export function openDatabase(name: StoreName, directory: string): Promise<Database> {
  return DATABASES[name](directory);
}
