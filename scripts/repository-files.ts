/** The files of the checkout as paths with `/`, relative to its root, without ignored ones. */
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { ROOT } from "./runtime.mjs";

/** By name, without git: the checks also run in an unpacked archive. */
const IGNORED = new Set([".git", ".cache", "node_modules", "dist", "coverage"]);

export function repositoryFiles(folder = ""): string[] {
  return readdirSync(join(ROOT, folder), { withFileTypes: true }).flatMap((entry) => {
    const path = folder === "" ? entry.name : `${folder}/${entry.name}`;
    if (IGNORED.has(entry.name)) return [];
    if (entry.isDirectory()) return repositoryFiles(path);
    return entry.isFile() && !/\.(tgz|tsbuildinfo)$/.test(entry.name) ? [path] : [];
  });
}
