/**
 * Writes docs/specification-tests.md, or with `--check` tells whether it is up to date and every promise has a proof that exists.
 * Run with `node --conditions=sandlot-source scripts/generate-specification-tests.ts [--check]`.
 */
import { PAGE, problems, promisesOf, renderPage } from "../packages/fleet/test/docs/specification-page.ts";
import { writeOrCheck } from "./generated-page.ts";

const found = problems();
for (const problem of found) console.error(problem);
if (found.length > 0) process.exitCode = 1;
else writeOrCheck(PAGE, renderPage(), `${promisesOf("S").length} promises`, "npm run docs:tests");
