/**
 * Rules of this repository that no linter has:
 * - a source file is short enough to read, and the provider stays control flow only;
 * - time and randomness come in through the world, so that tests and the simulation decide them;
 * - a time becomes a date in one place, which takes any number: a sandbox may send one that is no date;
 * - no folder with a meaningless name;
 * - tests that need an engine or a browser are in the folders of `npm run test:engines`;
 * - every package carries the licence.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { repositoryFiles } from "./repository-files.ts";
import { ROOT } from "./runtime.mjs";

const MAX_LINES = 400;
/** Written from the schema of the configuration, so its length is that of the schema. */
const GENERATED_TYPE = "packages/fleet/src/config/fleet-config.ts";
const PROVIDER = "packages/fleet/src/provider.ts";
const PROVIDER_MAX_LINES = 300;
const EMPTY_NAMES = new Set(["utils", "common", "helpers", "managers", "services", "core"]);

/** Files that may use the system's time and randomness. A backend joins the list when its engine is real. */
const MAY_USE_SYSTEM_TIME = [
  "packages/fleet/src/world/system-world.ts",
  "packages/sandboxd/src/clock.ts",
  "packages/client/src/wire/clock.ts",
  "packages/fleet/src/backends/local/engine/start.ts", // Only waits for the rest of a pipe.
  "packages/dashboard/src/", // Runs in a browser, for a person.
  "packages/fleet/src/backends/kubernetes/trial/trial-programs.ts", // Texts that run in pods.
  "packages/fleet/src/cli/", // Interacts with a person in real time.
];
/** The folders of `npm run test:engines`, as in vitest.config.ts. */
const ENGINE_TESTS = /^packages\/(?:fleet\/test\/backends\/docker|[^/]+\/test\/engines)\//;
/** Modules that start an engine or a browser. */
const STARTS_ENGINES =
  /from "[^"]*(?:docker-test-engine\.mjs|\/docker\/(?:docker-harness|on-engine|podman-engine|using-engine)\.ts|support\/browser\.ts|postgres-server\.ts)"/;
const SYSTEM_TIME =
  /\b(Date\.now|Math\.random|performance\.now|set(?:Timeout|Interval|Immediate)|new Date\(\)|node:timers)/;

/** Make dates of times; in a browser in the words of its language. */
const MAKE_DATES = ["packages/contract/src/times.ts", "packages/dashboard/src/format.ts"];
const NEW_DATE = /\bnew Date\([^)]/;

const files = repositoryFiles();
const problems = [
  ...checkLengths(),
  ...checkTime(),
  ...checkDates(),
  ...checkFolders(),
  ...checkSuites(),
  ...checkLicences(),
];
for (const problem of problems) console.error(problem);
if (problems.length > 0) process.exitCode = 1;
else console.log(`repository: ${files.length} files, all rules hold`);

function* checkLengths(): Generator<string> {
  if (!files.includes(PROVIDER)) yield `${PROVIDER}: missing`;
  const isCounted = (file: string) => /\.tsx?$/.test(file) && !file.endsWith(".test.ts") && file !== GENERATED_TYPE;
  for (const path of files.filter(isCounted)) {
    const max = path === PROVIDER ? PROVIDER_MAX_LINES - 1 : MAX_LINES;
    const count = read(path).trimEnd().split("\n").length;
    if (count > max) yield `${path}: ${count} lines, at most ${max}`;
  }
}

function* checkTime(): Generator<string> {
  for (const path of files.filter((file) => /^packages\/[^/]+\/src\/.*\.tsx?$/.test(file))) {
    if (MAY_USE_SYSTEM_TIME.some((allowed) => path.startsWith(allowed))) continue;
    for (const [index, line] of withoutComments(read(path)).split("\n").entries()) {
      const found = SYSTEM_TIME.exec(line);
      if (found) yield `${path}:${index + 1}: ${found[0]}; take it from the world`;
    }
  }
}

function* checkDates(): Generator<string> {
  for (const path of files.filter(
    (file) => /^packages\/[^/]+\/src\/.*\.tsx?$/.test(file) && !MAKE_DATES.includes(file),
  ))
    for (const [index, line] of withoutComments(read(path)).split("\n").entries())
      if (NEW_DATE.test(line))
        yield `${path}:${index + 1}: new Date(); use dateOf, isoTime or httpTime of the contract`;
}

function* checkFolders(): Generator<string> {
  const folders = new Set(
    files.flatMap((path) =>
      path
        .split("/")
        .slice(0, -1)
        .map((_, depth, all) => all.slice(0, depth + 1).join("/")),
    ),
  );
  for (const folder of folders) {
    const name = folder.slice(folder.lastIndexOf("/") + 1);
    if (EMPTY_NAMES.has(name)) yield `${folder}/: a name that says nothing; call it by what is in it`;
  }
}

function* checkSuites(): Generator<string> {
  for (const path of files.filter((file) => file.endsWith(".test.ts") && !ENGINE_TESTS.test(file)))
    if (STARTS_ENGINES.test(read(path)))
      yield `${path}: takes an engine or a browser; move it to a folder test/engines/`;
}

function* checkLicences(): Generator<string> {
  for (const manifest of files.filter((file) => /^packages\/[^/]+\/package\.json$/.test(file))) {
    const licence = manifest.replace("package.json", "LICENSE");
    if (!files.includes(licence) || read(licence) !== read("LICENSE")) yield `${licence}: not a copy of LICENSE`;
  }
}

/** Blanks comments out and keeps the line numbers. */
function withoutComments(source: string): string {
  return source
    .replace(/\/\*[\s\S]*?\*\//g, (comment) => comment.replace(/[^\n]/g, " "))
    .replace(/(^|\s)\/\/.*$/gm, "$1");
}

function read(path: string): string {
  return readFileSync(join(ROOT, path), "utf8");
}
