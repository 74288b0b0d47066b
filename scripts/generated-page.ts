/** What the generators of documents share: they write a page, or with `--check` tell whether it is up to date. */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ROOT } from "./runtime.mjs";

export function writeOrCheck(page: string, text: string, summary: string, command: string): void {
  const path = join(ROOT, page);
  if (!process.argv.includes("--check")) {
    writeFileSync(path, text);
    console.log(`wrote ${page}: ${summary}`);
  } else if (existsSync(path) && readFileSync(path, "utf8") === text) {
    console.log(`${page} is up to date`);
  } else {
    console.error(`${page} is out of date; run \`${command}\``);
    process.exitCode = 1;
  }
}
