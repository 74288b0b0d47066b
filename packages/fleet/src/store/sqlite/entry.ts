/** The SQLite store in the registry. */

import { existsSync, statSync } from "node:fs";
import { join, resolve } from "node:path";
import { z } from "zod";
import type { StoreContext, StoreEntry } from "../entry.ts";

export interface SqliteSettings {
  readonly type: "sqlite";
  readonly path: string;
}

/** Below `home`, so that a fleet is moved, backed up or deleted as one directory. */
const FILE_NAME = "fleet.db";

export const SQLITE_STORE = {
  name: "sqlite",
  about: "a file that the processes of one host share",
  keys: {
    path: z
      .string()
      .optional()
      .describe("The SQLite file. Default: fleet.db in `home` (fleet-memory.db with the memory backend)."),
  },
  resolve: ({ path }, context) => ({ type: "sqlite", path: resolvePath(path, context) }),
  describe: ({ path }) => `sqlite at ${path}`,
  async open({ path }, world) {
    const { openSqliteStore } = await import("./sqlite-store.ts");
    return openSqliteStore({ path, world });
  },
  exists: ({ path }) => existsSync(path),
  sizeBytes: async ({ path }) => sizeOf(path) + sizeOf(`${path}-wal`),
  async doctor(settings) {
    const { sqliteFinding } = await import("./doctor.ts");
    return [sqliteFinding(settings)];
  },
} as const satisfies StoreEntry<{ readonly path?: string | undefined }, SqliteSettings>;

function resolvePath(path: string | undefined, context: StoreContext): string {
  const { home, backend } = context;
  // Sandboxes that ended with their process are gone: a backend with lasting sandboxes must never find their records.
  if (path === undefined)
    return checkedFile(join(home, backend.endsWithProcess ? `fleet-${backend.name}.db` : FILE_NAME), context);
  if (path === ":memory:")
    context.tell("path", { problem: "must be a file; for a store in memory set store.type to memory" });
  else {
    const wrong = context.checkPath(path);
    if (wrong === undefined) checkedFile(path, context);
    else context.tell("path", wrong);
  }
  return resolve(path);
}

function checkedFile(path: string, { home, tell }: StoreContext): string {
  if (/[\\/]$/.test(path) || resolve(path) === home || isDirectory(path))
    tell("path", { problem: `must be a file, but ${path} is a directory`, suggestion: join(path, FILE_NAME) });
  return path;
}

function sizeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0;
}

/** Opening the path later refuses one that cannot be read. */
function isDirectory(path: string): boolean {
  try {
    return statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
  } catch {
    return false;
  }
}
