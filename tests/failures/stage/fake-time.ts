/** libfaketime of Debian, which moves the clock of one process. It is fetched, not installed. */

import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { ROOT } from "../../../scripts/runtime.mjs";

const FOLDER = join(ROOT, ".cache", "faketime");
const INSTALLED = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";

export function findFakeTime(): string {
  if (existsSync(INSTALLED)) return INSTALLED;
  const fetched = join(FOLDER, INSTALLED);
  if (existsSync(fetched)) return fetched;
  mkdirSync(FOLDER, { recursive: true });
  execFileSync("apt-get", ["download", "libfaketime"], { cwd: FOLDER, stdio: "pipe" });
  const [archive] = readdirSync(FOLDER).filter((name) => name.endsWith(".deb"));
  if (archive === undefined) throw new Error("apt-get download libfaketime has left no package");
  execFileSync("dpkg-deb", ["-x", archive, "."], { cwd: FOLDER });
  return fetched;
}
