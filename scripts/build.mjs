/**
 * Builds the packages when their sources are not the ones last built. Staleness is decided by content, not by file
 * times, so a fresh checkout, a branch switch and a copied tree all work.
 */
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { childEnvironment, ROOT, repositoryNode, run } from "./runtime.mjs";

const PACKAGES = ["packages/contract", "packages/sandboxd", "packages/client", "packages/fleet"];
/**
 * The daemon is one file, and the command line a few: they are bundled, not only compiled. So is the dashboard, which
 * the bundle of `sandlot` contains.
 */
const BUNDLES = [
  { script: "packages/dashboard/bundle.mjs", output: "packages/dashboard/dist/modules.json" },
  { script: "packages/sandboxd/bundle.mjs", output: "packages/sandboxd/dist/sandboxd.cjs" },
  { script: "packages/fleet/bundle.mjs", output: "packages/fleet/dist/bundle/index.js" },
];
/** Describes the fields of published types. */
const FIELD_COMMENTS = join(ROOT, "scripts/field-comments.mjs");
const STAMP = join(ROOT, ".cache", "build.json");

/** `withTypes`: also the declarations, which running the programs does not need. */
export function isBuilt({ withTypes = true } = {}) {
  if (!existsSync(STAMP) || BUNDLES.some(({ output }) => !existsSync(join(ROOT, output)))) return false;
  const built = JSON.parse(readFileSync(STAMP, "utf8"));
  if (built.sources !== hashOfSources()) return false;
  return !withTypes || (built.withTypes && PACKAGES.every((folder) => missingOutputs(folder).length === 0));
}

/** Returns the exit code of the first failing part. `runPart` runs one, as `run` does. */
export async function build({ withTypes = true, runPart = run } = {}) {
  const sources = hashOfSources();
  if (withTypes) {
    const code = await compile(runPart);
    if (code !== 0) return code;
    const commented = await runPart(repositoryNode(), [FIELD_COMMENTS], { env: childEnvironment() });
    if (commented !== 0) return commented;
  }
  for (const { script } of BUNDLES) {
    const bundled = await runPart(repositoryNode(), [join(ROOT, script)], { env: childEnvironment() });
    if (bundled !== 0) return bundled;
  }
  for (const folder of PACKAGES) removeOrphans(folder);
  mkdirSync(dirname(STAMP), { recursive: true });
  writeFileSync(STAMP, JSON.stringify({ sources, withTypes }));
  return 0;
}

/** Checks the types and writes the declarations. */
function compile(runPart) {
  // The compiler trusts its own record of its outputs; where outputs are gone, that record has to go too.
  for (const folder of PACKAGES) {
    if (missingOutputs(folder).length > 0) rmSync(join(ROOT, folder, "dist", "tsconfig.tsbuildinfo"), { force: true });
  }
  const tsc = join(ROOT, "node_modules", "typescript", "bin", "tsc");
  return runPart(repositoryNode(), [tsc, "-b"], { env: childEnvironment() });
}

function hashOfSources() {
  const hash = createHash("sha256");
  const inputs = ["package-lock.json", "tsconfig.json", "tsconfig.base.json", ...BUNDLES.map(({ script }) => script)];
  inputs.push("packages/sandboxd/compile.mjs", "scripts/field-comments.mjs");
  for (const folder of PACKAGES) {
    inputs.push(`${folder}/package.json`, `${folder}/tsconfig.json`, ...sourcesOf(folder));
  }
  inputs.push(...dashboardInputs());
  for (const path of inputs)
    hash
      .update(`${path}\0`)
      .update(readFileSync(join(ROOT, path)))
      .update("\0");
  return hash.digest("hex");
}

function sourcesOf(folder) {
  return filesBelow(join(ROOT, folder, "src"))
    .filter((path) => path.endsWith(".ts"))
    .map((path) => relative(ROOT, path).replaceAll("\\", "/"))
    .sort();
}

/** Everything that is in its files, and what makes them. */
function dashboardInputs() {
  const own = ["package.json", "tsconfig.json", "vite.config.ts", "index.html"];
  const sources = filesBelow(join(ROOT, "packages/dashboard/src")).map((path) => relative(ROOT, path));
  return [
    ...own.map((name) => `packages/dashboard/${name}`),
    ...sources.map((path) => path.replaceAll("\\", "/")).sort(),
  ];
}

function missingOutputs(folder) {
  return sourcesOf(folder).filter((source) => !existsSync(join(ROOT, outputOf(source))));
}

function outputOf(source) {
  return source.replace("/src/", "/dist/").replace(/\.ts$/, ".d.ts");
}

/** The compiler never deletes: the outputs of a removed source would still be importable, and published. */
function removeOrphans(folder) {
  const kept = new Set(sourcesOf(folder).map((source) => join(ROOT, outputOf(source))));
  const bundle = join(ROOT, folder, "dist", "bundle");
  for (const path of filesBelow(join(ROOT, folder, "dist"))) {
    const output = path.replace(/(\.d\.ts|\.js)(\.map)?$/, ".d.ts");
    if (output.endsWith(".d.ts") && !kept.has(output) && !path.startsWith(bundle)) rmSync(path);
  }
}

function filesBelow(folder) {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    return entry.isDirectory() ? filesBelow(path) : [path];
  });
}
