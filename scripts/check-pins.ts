/**
 * Checks what an install may contain, against the manifests and the lockfile:
 * - exact versions everywhere, so that a checkout installs the same tomorrow (peers are ranges by nature);
 * - one version and one Node floor for all packages;
 * - `npm start` installs exactly what the packages are built from, in the versions that they name;
 * - no package with an install script, since package managers refuse to run them;
 * - a lockfile complete for every platform, with a hash for everything that this platform installs, and no file that
 *   says which registry packages came from.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { type LockEntry, unhashedProblems } from "./lockfile-hashes.ts";
import { repositoryFiles } from "./repository-files.ts";
import { NODE_FLOOR, ROOT } from "./runtime.mjs";

const ALLOWED_INSTALL_SCRIPTS = [
  // Optional natives and a notice below dockerode, the Feishu SDK and officeparser; each works without its script.
  "node_modules/cpu-features",
  "node_modules/protobufjs",
  "node_modules/ssh2",
  "node_modules/tesseract.js",
  // Its script only checks what its platform package already installed.
  "node_modules/esbuild",
];
/** Also with an alias: `npm:name@1.2.3`. */
const EXACT = /^(?:npm:(?:@[\w-]+\/)?[\w.-]+@)?\d+\.\d+\.\d+(-[\w.]+)?$/;
const REGISTRY_ADDRESS = /\bregistry\.[\w-]+\.\w+|^registry\s*=/m;

interface Manifest {
  readonly name: string;
  readonly version: string;
  readonly engines?: { readonly node?: string };
  readonly dependencies?: Record<string, string>;
  readonly devDependencies?: Record<string, string>;
  readonly optionalDependencies?: Record<string, string>;
  readonly peerDependencies?: Record<string, string>;
}

const problems = [...checkManifests(), ...checkServed(), ...checkLockfile(), ...checkAddresses()];
for (const problem of problems) console.error(problem);
if (problems.length > 0) process.exitCode = 1;
else console.log("pins: all exact, one version, no install scripts, lockfile complete");

function* checkManifests(): Generator<string> {
  const paths = repositoryFiles().filter(
    (path) => path === "package.json" || /^packages\/[^/]+\/package\.json$/.test(path),
  );
  const manifests = paths.map((path) => ({ path, manifest: readJson<Manifest>(path) }));
  const version = manifests[0]?.manifest.version;
  const own = new Set(manifests.map(({ manifest }) => manifest.name));
  const floor = `>=${NODE_FLOOR.slice(0, 2).join(".")}`;
  for (const { path, manifest } of manifests) {
    if (manifest.version !== version) yield `${path}: version ${manifest.version}, elsewhere ${version}`;
    if (manifest.engines?.node !== floor) yield `${path}: engines.node is ${manifest.engines?.node}, not ${floor}`;
    const wanted = { ...manifest.dependencies, ...manifest.devDependencies, ...manifest.optionalDependencies };
    for (const [name, range] of Object.entries(wanted)) {
      if (!EXACT.test(range)) yield `${path}: ${name} "${range}" is not an exact version`;
      if (own.has(name) && range !== version) yield `${path}: ${name} is ${range}, but this repository has ${version}`;
    }
  }
}

/**
 * A package's development packages are in its bundle, or only its tests use them. `npm start` installs no development
 * packages, so bundled packages are also in `dependencies` of the root: all but declarations and optional peers.
 */
function* checkServed(): Generator<string> {
  const { dependencies = {}, devDependencies = {} } = readJson<Manifest>("package.json");
  const bundled = ["packages/fleet", "packages/sandboxd"].flatMap((folder) => {
    const { devDependencies: own = {}, peerDependencies: peers = {} } = readJson<Manifest>(`${folder}/package.json`);
    return Object.entries(own).filter(([name]) => !name.startsWith("@types/") && !(name in peers));
  });
  for (const [name, version] of bundled)
    if (dependencies[name] !== version)
      yield `package.json: dependencies.${name} is ${dependencies[name]}, not ${version}`;
  const names = new Set(["esbuild", ...bundled.map(([name]) => name)]);
  for (const name of Object.keys(dependencies))
    if (!names.has(name)) yield `package.json: ${name} goes into no bundle; it belongs to devDependencies`;
  if ("esbuild" in devDependencies)
    yield "package.json: esbuild makes what npm start serves; it belongs to dependencies";
}

function* checkLockfile(): Generator<string> {
  const { packages } = readJson<{ packages: Record<string, LockEntry> }>("package-lock.json");
  const names = new Set(
    Object.keys(packages).map((path) => path.slice(path.lastIndexOf("node_modules/") + "node_modules/".length)),
  );
  yield* unhashedProblems(packages);
  for (const [path, entry] of Object.entries(packages)) {
    if (entry.resolved?.includes("://")) yield `package-lock.json: ${path} carries an address; run \`npm run lock\``;
    if (entry.hasInstallScript && !ALLOWED_INSTALL_SCRIPTS.includes(path)) {
      yield `package-lock.json: ${path} has an install script`;
    }
    for (const name of Object.keys(entry.optionalDependencies ?? {})) {
      if (!names.has(name)) yield `package-lock.json: ${name}, wanted by ${path}, is missing; run \`npm run lock\``;
    }
  }
}

function* checkAddresses(): Generator<string> {
  for (const path of repositoryFiles()) {
    if (REGISTRY_ADDRESS.test(readFileSync(join(ROOT, path), "utf8"))) yield `${path}: names a package registry`;
  }
}

function readJson<T>(path: string): T {
  return JSON.parse(readFileSync(join(ROOT, path), "utf8")) as T;
}
