/**
 * Prepares a checkout in any state, and then runs something:
 *
 *   node scripts/bootstrap.mjs [--no-build] [--for start|build|test|engines|long] [--then <script> <arguments>…]
 *
 * 1. system packages, where a part of the repository needs one;
 * 2. npm packages, when missing or not the ones of the lockfile; among them is the Node that everything else runs on.
 *    `npm start` installs what it builds and serves (`dependencies` of package.json and of the packages), everything
 *    else installs all;
 * 3. the build, when sources changed;
 * 4. the script after `--then`, on that Node, with our terminal and its exit code.
 *
 * When all is in place this costs a few file reads. Concurrent runs are fine: one prepares, the other waits. Runs on
 * Node 20 and up with nothing installed.
 */
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { build, isBuilt } from "./build.mjs";
import { installPackages, leavesSystemPackagesAlone } from "./debian-packages.mjs";
import { childEnvironment, NODE_FLOOR, npm, pinnedNode, ROOT, repositoryNode, run, withHeartbeat } from "./runtime.mjs";

/** Purposes that need what sandboxes of `npm start` need. */
const SERVED = ["start", "build", "test", "engines", "long"];
/** Purposes that test sandboxes, on any engine. */
const TESTED = ["test", "engines", "long"];
/** Purposes that test container engines and browsers. */
const WITH_ENGINES = ["engines", "long"];

/**
 * Debian packages that parts of the repository need. A package is present if `command` is in PATH, or `file` exists.
 * `for` lists the commands that check it: `npm start`, `npm test`, `npm run test:engines` and `npm run test:long`. An
 * engine's package is listed here when its backend arrives.
 */
const SYSTEM_PACKAGES = [
  {
    name: "bubblewrap",
    command: "bwrap",
    neededBy: "the local backend, which isolates sandboxes with it",
    for: SERVED,
  },
  { name: "slirp4netns", command: "slirp4netns", neededBy: "sandboxes with an open network", for: TESTED },
  { name: "iproute2", command: "ip", neededBy: "the tests of networks, in namespaces of their own", for: TESTED },
  { name: "curl", command: "curl", neededBy: "the tests of networks and of the HTTP guide", for: TESTED },
  { name: "git", command: "git", neededBy: "the tests of networks", for: TESTED },
  { name: "openssl", command: "openssl", neededBy: "the tests of certificates", for: TESTED },
  { name: "python3", command: "python3", neededBy: "the probes of the escape list", for: TESTED },
  { name: "python3-pip", command: "pip3", neededBy: "the test of generated clients", for: ["engines"] },
  { name: "python3-venv", file: "/usr/share/doc/python3-venv", neededBy: "the tests of installers", for: WITH_ENGINES },
  { name: "pipx", file: "/usr/bin/pipx", neededBy: "the same tests", for: WITH_ENGINES },
  // Sandboxes see only what is below /usr.
  { name: "cargo", file: "/usr/bin/cargo", neededBy: "the same tests", for: WITH_ENGINES },
  { name: "golang-go", command: "go", neededBy: "the same tests", for: WITH_ENGINES },
  { name: "perl", command: "perl", neededBy: "the servers that run inside sandboxes in the suite", for: TESTED },
  {
    name: "gcc",
    command: "gcc",
    neededBy: "the test that a compiler works inside sandboxes, and servers of tests with a clock of their own",
    for: TESTED,
  },
  { name: "libc6-dev", file: "/usr/include/stdio.h", neededBy: "the same tests", for: TESTED },
  { name: "zsh", command: "zsh", neededBy: "the test of the completion for it", for: ["test"] },
  { name: "fish", command: "fish", neededBy: "the test of the completion for it", for: ["test"] },
  {
    name: "ripgrep",
    command: "rg",
    neededBy: "the test that searching gives the same with and without it",
    for: TESTED,
  },
  { name: "procps", command: "pkill", neededBy: "the test that `pkill node` does not touch the daemon", for: TESTED },
  {
    name: "psmisc",
    command: "killall",
    neededBy: "the test that `killall node` does not touch the daemon",
    for: TESTED,
  },
  {
    name: "chromium",
    command: "chromium",
    neededBy: "the tests of the gateway from a real browser",
    for: WITH_ENGINES,
  },
  { name: "redis-server", command: "redis-server", neededBy: "the tests of the Redis store", for: WITH_ENGINES },
  { name: "redis-sentinel", command: "redis-sentinel", neededBy: "the same tests", for: WITH_ENGINES },
  { name: "docker.io", command: "dockerd", neededBy: "the tests of the docker backend", for: WITH_ENGINES },
  {
    name: "postgresql",
    file: "/usr/lib/postgresql",
    neededBy: "the tests of the PostgreSQL store, which start servers of their own",
    for: WITH_ENGINES,
  },
  { name: "mmdebstrap", command: "mmdebstrap", neededBy: "the image of these tests", for: WITH_ENGINES },
];

const CACHE = join(ROOT, ".cache");
const LOCK = join(CACHE, "bootstrap.lock");
const INSTALL_STAMP = join(ROOT, "node_modules", ".sandlot-install.json");
/** npm's own list of what it installed. */
const INSTALLED = join(ROOT, "node_modules", ".package-lock.json");
/** Exists from before an install until after it. */
const INSTALL_BEGUN = join(CACHE, "install-begun");
const LOCK_TOUCH_MS = 2_000;
/** A lock untouched for this long belongs to a killed process, or to its leftovers. */
const LOCK_STALE_MS = 15_000;

await main(process.argv.slice(2));

async function main(args) {
  const then = args.indexOf("--then");
  const options = then === -1 ? args : args.slice(0, then);
  const purpose = options.includes("--for") ? options[options.indexOf("--for") + 1] : "build";
  const wantBuild = !options.includes("--no-build");
  // Serving needs the programs; only users that build on the packages need their declarations.
  const wanted = { withTypes: purpose !== "start" };
  const packages = purpose === "start" ? "served" : "all";
  const isReady = () => isInstalled(packages) && (!wantBuild || isBuilt(wanted));

  ensureSystemPackages(purpose);
  if (!isReady()) {
    await withLock(async () => {
      if (!isInstalled(packages)) await install(packages);
      if (wantBuild && !isBuilt(wanted)) await buildOrExit(wanted);
    });
  }
  // A script of npm ends with npm, however that ends.
  const endWithParent = process.env.npm_lifecycle_event !== undefined;
  if (then !== -1)
    process.exitCode = await run(nodeOrExit(), args.slice(then + 1), { env: childEnvironment(), endWithParent });
}

// --- system packages

function ensureSystemPackages(purpose) {
  const needed = SYSTEM_PACKAGES.filter((entry) => entry.for.includes(purpose));
  const missing = needed.filter(({ command, file }) => !(file === undefined ? isInPath(command) : existsSync(file)));
  if (missing.length === 0) return;
  for (const { name, neededBy } of missing) say(`missing system package ${name}, needed by ${neededBy}`);
  const names = missing.map(({ name }) => name);
  if (process.getuid?.() === 0 && isInPath("apt-get") && !leavesSystemPackagesAlone()) {
    say(`installing ${names.join(", ")} from Debian; SANDLOT_NO_SYSTEM_PACKAGES=1 goes on without`);
    if (installPackages(names, { stdio: "inherit" })) return;
  }
  say(`going on without; to install: sudo apt-get install -y ${names.join(" ")}`);
}

function isInPath(command) {
  return (process.env.PATH ?? "").split(delimiter).some((folder) => folder && existsSync(join(folder, command)));
}

// --- npm packages

/** `served`: the packages of `npm start`. All packages include them, so a smaller purpose leaves the others. */
function isInstalled(packages) {
  const stamp = readStamp();
  return (
    stamp?.manifests === hashOfManifests() &&
    (stamp.packages === "all" || packages === "served") &&
    existsSync(INSTALLED) &&
    hasPinnedNode()
  );
}

/** The result of the last complete install; `null` where there is none. */
function readStamp() {
  return existsSync(INSTALL_STAMP) ? JSON.parse(readFileSync(INSTALL_STAMP, "utf8")) : null;
}

/** Packages below node_modules, by npm's own list. */
function installedPackages() {
  if (!existsSync(INSTALLED)) return [];
  const { packages } = JSON.parse(readFileSync(INSTALLED, "utf8"));
  return Object.entries(packages).flatMap(([path, entry]) =>
    /node_modules\//.test(path) && !entry.link ? [entry] : [],
  );
}

function hashOfManifests() {
  const hash = createHash("sha256");
  for (const path of [
    "package-lock.json",
    "package.json",
    "packages/contract/package.json",
    "packages/sandboxd/package.json",
    "packages/client/package.json",
    "packages/fleet/package.json",
    "packages/dashboard/package.json",
  ]) {
    hash.update(readFileSync(join(ROOT, path))).update("\0");
  }
  return hash.digest("hex");
}

async function install(wanted) {
  const startedAt = Date.now();
  // npm takes the remains of an interrupted install for complete, so they are removed.
  if (existsSync(INSTALL_BEGUN)) removeInstalled();
  // A checkout with the packages of the tests keeps them, also after a change of the lockfile.
  const packages = installedPackages().some(({ dev }) => dev) ? "all" : wanted;
  say(`installing ${packages === "all" ? "all packages" : "the packages of what is served"} (up to a minute) …`);
  writeFileSync(INSTALL_BEGUN, "");
  rmSync(INSTALL_STAMP, { force: true });
  await npmInstall(packages);
  if (!hasPinnedNode()) {
    say("the packages are incomplete; installing them afresh …");
    removeInstalled();
    await npmInstall(packages);
  }
  writeFileSync(INSTALL_STAMP, JSON.stringify({ manifests: hashOfManifests(), packages }));
  rmSync(INSTALL_BEGUN);
  say(`${installedPackages().length} packages installed in ${seconds(startedAt)} s`);
}

async function npmInstall(packages) {
  // --no-save leaves the lockfile unchanged. Includes and omits are explicit, to override NODE_ENV and the user's
  // settings. Errors only, because Node 20 would warn about every package's `engines`.
  const development = packages === "all" ? "--include=dev" : "--omit=dev";
  const args = ["install", "--no-save", development, "--include=optional", "--loglevel=error"];
  const tell = (elapsed) => say(`still installing (${elapsed} s)`);
  // npm outlives this process when it is killed; until npm has ended, the lock is not free.
  const code = await withHeartbeat(10_000, tell, () =>
    npm(args, { onStart: (pid) => writeFileSync(LOCK, String(pid)) }),
  );
  if (code !== 0)
    fail(`npm install failed (${code}). It needs the package registry; try again when that is reachable.`);
}

function removeInstalled() {
  const folders = ["contract", "sandboxd", "client", "fleet", "dashboard"].map(
    (name) => `packages/${name}/node_modules`,
  );
  for (const folder of ["node_modules", ...folders]) {
    rmSync(join(ROOT, folder), { recursive: true, force: true, maxRetries: 5 });
  }
}

function hasPinnedNode() {
  const pinned = pinnedNode();
  return pinned === undefined || existsSync(pinned);
}

// --- build

async function buildOrExit(wanted) {
  nodeOrExit();
  say("building …");
  const startedAt = Date.now();
  const code = await build(wanted);
  if (code !== 0) fail("the build failed; the compiler's messages are above");
  say(`built in ${seconds(startedAt)} s`);
}

// --- one at a time

/**
 * The lock is a file that only one process can create. It holds the id of the working process (this one, or npm below
 * it) and is touched while this process lives.
 */
async function withLock(work) {
  mkdirSync(CACHE, { recursive: true });
  for (let told = false; !tryLock(); told = true) {
    if (!told) say("another process is preparing this checkout (.cache/bootstrap.lock); waiting for it …");
    removeStaleLock();
    await sleep(250);
  }
  const touching = setInterval(() => utimesSync(LOCK, new Date(), new Date()), LOCK_TOUCH_MS);
  const unlock = () => {
    clearInterval(touching);
    rmSync(LOCK, { force: true });
  };
  process.once("exit", unlock);
  try {
    await work();
  } finally {
    unlock();
    process.off("exit", unlock);
  }
}

function tryLock() {
  try {
    writeFileSync(LOCK, String(process.pid), { flag: "wx" });
    return true;
  } catch (error) {
    if (error.code === "EEXIST") return false;
    throw error;
  }
}

function removeStaleLock() {
  const touchedAt = statSync(LOCK, { throwIfNoEntry: false })?.mtimeMs;
  if (touchedAt === undefined || Date.now() - touchedAt < LOCK_STALE_MS) return;
  if (!isRunning(Number(readFileSync(LOCK, "utf8")))) rmSync(LOCK, { force: true });
}

function isRunning(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error.code === "EPERM";
  }
}

// --- output

function nodeOrExit() {
  const node = repositoryNode();
  if (node === undefined) {
    const platform = `${process.platform}-${process.arch}`;
    fail(
      `this needs Node ${NODE_FLOOR.join(".")} or newer: this is ${process.version}, and no package brought one for ${platform}`,
    );
  }
  return node;
}

function say(line) {
  console.error(`[sandlot] ${line}`);
}

function fail(line) {
  say(line);
  process.exit(1);
}

function seconds(since) {
  return ((Date.now() - since) / 1000).toFixed(1);
}
