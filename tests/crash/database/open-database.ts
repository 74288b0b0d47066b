/** The databases that a run can have below its store, by the store's name. A server is loaded only where it is used. */

import { join } from "node:path";
import type { Database } from "./database.ts";
import { SqliteFile } from "./sqlite-file.ts";

const DATABASES = {
  sqlite: async (directory: string): Promise<Database> => new SqliteFile(join(directory, "store")),
  postgres: async (): Promise<Database> => (await import("./postgres-database.ts")).PostgresDatabase.start(),
  redis: async (): Promise<Database> => (await import("./redis-database.ts")).RedisDatabase.start(),
} as const;

export type StoreName = keyof typeof DATABASES;

export function parseStoreName(text: string): StoreName {
  if (Object.hasOwn(DATABASES, text)) return text as StoreName;
  throw new Error(`--store takes one of ${Object.keys(DATABASES).join(", ")}, not ${text}`);
}

/** `directory`: of the run. A file is made in it. */
export function openDatabase(name: StoreName, directory: string): Promise<Database> {
  return DATABASES[name](directory);
}
