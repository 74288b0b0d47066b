/** Prints every forbidden import between folders (`walls.ts`), and fails when there is one. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { repositoryFiles } from "./repository-files.ts";
import { ROOT } from "./runtime.mjs";
import { wallProblems } from "./walls.ts";

const files = repositoryFiles()
  .filter((path) => /^packages\/[^/]+\/src\/.*\.tsx?$/.test(path))
  .map((path) => ({ path, text: readFileSync(join(ROOT, path), "utf8") }));
const problems = wallProblems(files);
for (const problem of problems) console.error(problem);
if (problems.length > 0) process.exitCode = 1;
else console.log(`walls: ${files.length} files, no import through a wall, no cycle of rooms`);
