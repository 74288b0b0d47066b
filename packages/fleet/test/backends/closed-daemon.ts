/**
 * What a command can open of the processes that run its sandbox, for the tests of every backend. The same probe of one
 * of the command's own processes shows what is open without protection.
 */

import type { Sandbox } from "@sandlot/contract";
import { expect } from "vitest";

/** Prints `own`, `first` or `daemon`, and the entries it could open; `seen` names the probed ones. */
export const LOOK = `
look() {
  for file in mem environ maps; do ( : <"/proc/$1/$file" ) 2>/dev/null && echo "$2 $file"; done
  ( : <>"/proc/$1/mem" ) 2>/dev/null && echo "$2 mem, for writing"
  for file in coredump_filter oom_score_adj; do ( : >>"/proc/$1/$file" ) 2>/dev/null && echo "$2 $file, for writing"; done
  ls "/proc/$1/fd" >/dev/null 2>&1 && echo "$2 fd"
  for link in exe cwd root; do readlink "/proc/$1/$link" >/dev/null 2>&1 && echo "$2 $link"; done
}
sleep 60 & own=$!
look "$own" own
kill "$own"
for directory in /proc/[0-9]*; do
  pid=\${directory#/proc/}
  read -r name 2>/dev/null <"$directory/comm" || continue
  [ "$pid" != 1 ] && [ "$name" != sandboxd ] && continue
  echo "seen $([ "$pid" = 1 ] && echo first || echo daemon)"
  look "$pid" "$([ "$pid" = 1 ] && echo first || echo daemon)"
done
true
`;

const ALL = [
  "mem",
  "environ",
  "maps",
  "mem, for writing",
  "coredump_filter, for writing",
  "oom_score_adj, for writing",
];
const OPEN = [...ALL, "fd", "exe", "cwd", "root"];

/** Fails when a command can read or write any part of the daemon or of the first process. */
export async function expectClosedDaemon(sandbox: Sandbox): Promise<void> {
  expectClosed(await whatOpens(sandbox));
}

/** `lines` are the output of the probe. */
export function expectClosed(lines: readonly string[]): void {
  expect(lines.filter((line) => line.startsWith("own "))).toEqual(OPEN.map((what) => `own ${what}`));
  expect(lines.filter((line) => line.startsWith("seen ")).sort()).toEqual(["seen daemon", "seen first"]);
  expect(lines.filter((line) => !/^(own|seen) /.test(line))).toEqual([]);
}

/** `own`, `first` or `daemon`, and the entries it could open. */
export async function whatOpens(sandbox: Sandbox): Promise<readonly string[]> {
  const { exitCode, stdout, stderr } = await sandbox.exec(LOOK);
  if (exitCode !== 0) throw new Error(`the look could not be run: ${exitCode} ${stderr}`);
  return stdout.trim().split("\n");
}
