/** The checks of `sandlot doctor` for the location of the SQLite store. */

import { existsSync } from "node:fs";
import { dirname } from "node:path";
import type { Finding } from "../../backend/doctor/finding.ts";
import type { SqliteSettings } from "./entry.ts";
import { sharedFileSystem } from "./file-system.ts";

export function sqliteFinding({ path }: SqliteSettings, fileSystemOf?: (path: string) => number): Finding {
  const detail = `sqlite at ${path}`;
  const shared = sharedFileSystem(nearestExisting(dirname(path)), fileSystemOf);
  if (shared === null) return { name: "store", status: "ok", detail };
  const fix = "set store.path to a local disk; a store on a file system of several hosts is refused";
  return { name: "store", status: "warn", detail: `${detail}, which is on ${shared}`, fix };
}

function nearestExisting(path: string): string {
  return existsSync(path) || dirname(path) === path ? path : nearestExisting(dirname(path));
}
