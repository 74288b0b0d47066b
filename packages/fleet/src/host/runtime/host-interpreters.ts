/**
 * The interpreters of this host that sandboxes see, with their versions. After an upgrade the text differs, because
 * compiled packages of the earlier version would not load.
 */

import { execFile } from "node:child_process";
import { stat } from "node:fs/promises";

const PROGRAMS = ["/usr/bin/python3", "/usr/bin/node", "/usr/bin/ruby", "/usr/bin/perl"];
const PATIENCE_MS = 5_000;

/** Versions by program, as of the file that the program was then. */
const known = new Map<string, { readonly file: string; readonly version: string }>();

/** A missing one is a fact, too. `programs` are others in tests. */
export async function hostInterpreters(programs: readonly string[] = PROGRAMS): Promise<string> {
  const versions = await Promise.all(programs.map(async (program) => `${program} ${await versionOf(program)}`));
  return [`node ${process.version}`, ...versions].join("\n");
}

async function versionOf(program: string): Promise<string> {
  const found = await stat(program, { bigint: true }).catch(() => null);
  if (found === null) return "absent";
  const file = [found.dev, found.ino, found.size, found.mtimeNs, found.ctimeNs].join();
  const seen = known.get(program);
  if (seen?.file === file) return seen.version;
  const version = await askVersion(program);
  known.set(program, { file, version });
  return version;
}

function askVersion(program: string): Promise<string> {
  return new Promise((resolve) =>
    execFile(program, ["--version"], { timeout: PATIENCE_MS, env: {} }, (error, stdout, stderr) =>
      resolve(error === null ? `${stdout}${stderr}`.trim() : "does not run"),
    ),
  );
}
