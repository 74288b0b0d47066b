/**
 * Builds Sandlot's own sandbox image without a registry: `docker build images/sandbox` uses published images; this
 * script uses mmdebstrap with Debian's packages, and the Node that the lockfile pins.
 *
 *   node images/build.mjs                                       into the engine of `docker`, as sandlot/sandbox:1
 *   node images/build.mjs --tag mine:1 --host unix:///path      another name, another engine
 *   node images/build.mjs --program podman                      into Podman
 *   node images/build.mjs --archive sandbox.tar                 only the archive, to be imported elsewhere
 *   node images/build.mjs --aio                                 also sandlot/aio:1, with the AIO API (`aio/`)
 *
 * Invariants
 * - The image's content is defined in `sandbox/` alone: packages, steps, and how a container is started.
 * - An archive is kept in `.cache/` under a name derived from its content, and appears complete.
 */
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { pinnedNode, ROOT } from "../scripts/runtime.mjs";

export const SOURCES = fileURLToPath(new URL("sandbox/", import.meta.url));
const CACHE = join(ROOT, ".cache");
const CACHED = "sandbox-image-";
const TAG = "sandlot/sandbox:1";
const AIO_TAG = "sandlot/aio:1";
/** The instructions of a Dockerfile that `docker import` understands. */
const CHANGES = new Set(["ENV", "USER", "WORKDIR", "CMD", "ENTRYPOINT", "EXPOSE", "LABEL", "VOLUME", "STOPSIGNAL"]);

/** Names of Debian's packages, in the order of the list. */
export function packages() {
  return source("packages.txt")
    .split("\n")
    .map((line) => line.replace(/#.*/, "").trim())
    .filter((name) => name !== "");
}

/** The Dockerfile's defaults, and the instructions of its last stage that say how a container is started. */
export function recipe() {
  const lines = source("Dockerfile")
    .replace(/\\\n/g, " ")
    .split("\n")
    .filter((line) => /^[A-Z]+ /.test(line));
  const defaults = Object.fromEntries(
    lines.flatMap((line) => [/^ARG (\w+)=(\S+)$/.exec(line)?.slice(1, 3) ?? []].filter((found) => found.length > 0)),
  );
  const lastStage = lines.slice(lines.findLastIndex((line) => line.startsWith("FROM ")) + 1);
  const changes = lastStage.filter((line) => CHANGES.has(line.split(" ", 1)[0] ?? ""));
  return { debian: defaults.DEBIAN ?? "", nodeVersion: defaults.NODE_VERSION ?? "", lastStage, changes };
}

/** The archive of the image's files, built if it is missing. */
export function archive() {
  const node = pinnedNode();
  if (node === undefined || !existsSync(node))
    throw new Error("the repository has no Node for this platform: npm install");
  const npm = npmDirectory();
  const kept = join(CACHE, `${CACHED}${keyOf(npm)}.tar`);
  if (existsSync(kept)) return kept;
  mkdirSync(CACHE, { recursive: true });
  const coming = `${kept}.${process.pid}.tar`;
  process.stderr.write("making the sandbox image (a minute or two, once)\n");
  try {
    run("mmdebstrap", bootstrapArguments(node, npm, coming));
    for (const old of readdirSync(CACHE).filter((name) => name.startsWith(CACHED) && name.endsWith(".tar")))
      if (join(CACHE, old) !== coming) rmSync(join(CACHE, old), { force: true });
    renameSync(coming, kept);
  } finally {
    rmSync(coming, { force: true });
  }
  return kept;
}

/**
 * Imports the image into an engine. `host` is its address, `null` for the one that the program finds by itself.
 * @param {{ program?: string, host?: string | null, tag?: string }} where
 */
export function importInto({ program = "docker", host = null, tag = TAG }) {
  const changes = recipe().changes.flatMap((change) => ["--change", change]);
  const where = host === null ? [] : [program === "podman" ? "--url" : "--host", host];
  run(program, [...where, "import", ...changes, archive(), tag]);
}

/** The files that the Dockerfile of the AIO image copies. */
const AIO_FILES = ["Dockerfile", "start.sh", "configuration.cjs"];
const DAEMON = "packages/sandboxd/dist";
const DAEMON_FILES = ["sandboxd.cjs", "supervisor.sh", "pty.node", "koffi.node"];

/**
 * Makes the image that serves the AIO API, on top of an image that the engine has. `daemon` is the folder of a built one.
 * @param {{ program?: string, host?: string | null, base?: string, tag?: string, daemon?: string }} where
 */
export function buildAio({ program = "docker", host = null, base = TAG, tag = AIO_TAG, daemon = join(ROOT, DAEMON) }) {
  const context = mkdtempSync(join(tmpdir(), "sandlot-aio-"));
  try {
    for (const folder of [DAEMON, "images/aio"]) mkdirSync(join(context, folder), { recursive: true });
    for (const name of AIO_FILES) copyFileSync(join(ROOT, "images/aio", name), join(context, "images/aio", name));
    for (const name of DAEMON_FILES) {
      if (!existsSync(join(daemon, name))) throw new Error(`${join(daemon, name)} is missing: npm run build`);
      copyFileSync(join(daemon, name), join(context, DAEMON, name));
    }
    const where = host === null ? [] : [program === "podman" ? "--url" : "--host", host];
    const dockerfile = join(context, "images/aio/Dockerfile");
    const network = program === "podman" ? [] : ["--network", "none"];
    const args = ["build", ...network, "--build-arg", `BASE=${base}`, "--tag", tag, "--file", dockerfile, context];
    run(program, [...where, ...args]);
  } finally {
    rmSync(context, { recursive: true, force: true });
  }
}

export function bootstrapArguments(node, npm, target) {
  const { debian } = recipe();
  const setup = join(SOURCES, "setup.sh");
  return [
    ...["--variant=minbase", `--include=${packages().join(",")}`],
    ...[`--customize-hook=mkdir -p "$1/usr/local/lib/node_modules"`],
    ...[`--customize-hook=cp '${node}' "$1/usr/local/bin/node"`],
    ...[`--customize-hook=cp -RL '${npm}' "$1/usr/local/lib/node_modules/npm"`],
    ...[`--customize-hook=chown -R 0:0 "$1/usr/local"`, `--customize-hook=cp '${setup}' "$1/opt/setup.sh"`],
    ...['--customize-hook=chroot "$1" sh /opt/setup.sh'],
    ...[debian, target],
  ];
}

/** The npm that the machine's Node came with: the package of Node has none. */
function npmDirectory() {
  const { stdout } = spawnSync("/bin/sh", ["-c", "command -v npm"], { encoding: "utf8" });
  if (stdout.trim() === "") throw new Error("npm is not installed");
  const directory = dirname(dirname(realpathSync(stdout.trim())));
  if (!existsSync(join(directory, "bin/npm-cli.js"))) throw new Error(`there is no npm in ${directory}`);
  return directory;
}

function keyOf(npm) {
  const hash = createHash("sha256");
  for (const name of ["packages.txt", "setup.sh", "Dockerfile"]) hash.update(`${name}\n${source(name)}\n`);
  hash.update(readFileSync(fileURLToPath(import.meta.url)));
  hash.update(readFileSync(join(npm, "package.json")));
  return hash.digest("hex").slice(0, 16);
}

function source(name) {
  return readFileSync(join(SOURCES, name), "utf8");
}

function run(program, args) {
  const { status, stderr, error } = spawnSync(program, args, { stdio: ["ignore", "ignore", "pipe"], encoding: "utf8" });
  if (error !== undefined) throw new Error(`${program} could not be run: ${error.message}`);
  if (status !== 0) throw new Error(`${program} failed: ${stderr.slice(-2_000)}`);
}

function main() {
  const text = { type: "string" };
  const { values } = parseArgs({
    options: { tag: text, host: text, program: text, archive: text, aio: { type: "boolean" } },
  });
  if (values.archive !== undefined) {
    copyFileSync(archive(), values.archive);
    process.stdout.write(`${values.archive}\n`);
    return;
  }
  const { program = "docker", host = null, tag = TAG } = values;
  importInto({ program, host, tag });
  process.stdout.write(`${tag}\n`);
  if (values.aio !== true) return;
  buildAio({ program, host, base: tag });
  process.stdout.write(`${AIO_TAG}\n`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) main();
