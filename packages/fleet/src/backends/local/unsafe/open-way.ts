/**
 * A root fleet's sandboxes run as another account, which without namespaces needs access to the host's paths. The fleet
 * opens its own home to others for passing only; any other closed directory is left for a person to change.
 */

import { chmodSync, realpathSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { SandlotError } from "@sandlot/contract";
import type { Account } from "../../../host/accounts/index.ts";

const OTHERS_MAY_PASS = 0o001;

/** Throws `isolation_unavailable` with the first directory that the account cannot pass on its way to one of `paths`. */
export function openWay(paths: readonly string[], home: string, account: Account): void {
  const own = realpathSync(home);
  for (const directory of new Set(paths.flatMap((path) => directoriesAbove(realpathSync(path))))) {
    if (mayPass(directory, account)) continue;
    if (directory !== own) throw closed(directory, account.uid);
    chmodSync(directory, (statSync(directory).mode & 0o7777) | OTHERS_MAY_PASS);
  }
}

/** The first directory that the account cannot pass on its way to the path. */
export function closedDirectory(path: string, account: Account): string | null {
  return directoriesAbove(realpathSync(path)).find((directory) => !mayPass(directory, account)) ?? null;
}

function mayPass(directory: string, { uid, gid }: Account): boolean {
  const found = statSync(directory);
  const bit = found.uid === uid ? 0o100 : found.gid === gid ? 0o010 : OTHERS_MAY_PASS;
  return (found.mode & bit) !== 0;
}

/** From the top down. */
function directoriesAbove(path: string): readonly string[] {
  const directory = dirname(path);
  return directory === path ? [] : [...directoriesAbove(directory), directory];
}

function closed(directory: string, uid: number): SandlotError {
  return new SandlotError("isolation_unavailable", {
    backend: "local",
    problem: `the account of sandboxes (uid ${uid}) cannot pass ${directory}`,
    fix: `let others pass it (chmod o+x ${directory}), or set SANDLOT_HOME to a place that everybody may pass, such as /var/lib/sandlot`,
  });
}
