/** A copy of this repository as a fresh clone has it, in a path with a space and a letter beyond ASCII. Goes with the test. */

import { cpSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { onTestFinished } from "vitest";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const FILES = [
  ".npmrc",
  "package.json",
  "package-lock.json",
  "tsconfig.json",
  "tsconfig.base.json",
  "scripts",
  "packages",
];

export function freshCheckout(): string {
  const checkout = mkdtempSync(join(tmpdir(), "sandlot-clone é "));
  onTestFinished(() => rmSync(checkout, { recursive: true, force: true, maxRetries: 5 }));
  const isWanted = (path: string) => !/\/(dist|test|node_modules)$/.test(path);
  for (const name of FILES) cpSync(join(ROOT, name), join(checkout, name), { recursive: true, filter: isWanted });
  return checkout;
}
