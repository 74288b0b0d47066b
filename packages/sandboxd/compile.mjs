/**
 * Makes `sandboxd.compiled`: the daemon's text with V8's code for what a sandbox needs until its first command has ended. For
 * that a daemon runs here and answers the calls of a first use: V8 compiles functions when they are first called.
 *
 * It serves the Node that makes it, run with the daemon's flags (`src/supervision/start-compiled.ts` says what others do).
 */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { Script } from "node:vm";
import { SANDBOXD_NODE_FLAGS } from "./src/index.ts";

const THIS_FILE = fileURLToPath(import.meta.url);
const WRITTEN = "written";

/** Of a bundle, for the file beside it. */
export async function compile(bundle, node = process.execPath) {
  const directory = mkdtempSync(join(tmpdir(), "sandboxd-compile-"));
  const [socketPath, draft] = [join(directory, "s"), `${compiledFile(bundle)}.${process.pid}~`];
  const child = spawn(node, [...SANDBOXD_NODE_FLAGS, THIS_FILE, bundle, draft], {
    stdio: ["pipe", "inherit", "inherit", "pipe", "pipe"],
    env: { PATH: process.env.PATH ?? "", TMPDIR: directory },
  });
  const failed = once(child, "exit").then(([code]) => {
    throw new Error(`the daemon that is compiled ended with ${code}`);
  });
  failed.catch(() => {});
  try {
    const config = { sandboxId: "-", generation: 1, token: "-", listen: { path: socketPath }, ready: { fd: 3 } };
    child.stdin.end(JSON.stringify({ ...config, defaultCwd: "/" }));
    await Promise.race([once(child.stdio[3], "data"), failed]);
    await Promise.race([firstUse(socketPath), failed]);
    child.kill("SIGUSR2");
    await Promise.race([once(child.stdio[4], "data"), failed]);
    renameSync(draft, compiledFile(bundle));
  } finally {
    child.kill("SIGKILL");
    for (const path of [directory, draft]) rmSync(path, { recursive: true, force: true });
  }
}

export function compiledFile(bundle) {
  return join(dirname(bundle), "sandboxd.compiled");
}

/** What a fleet asks of a new sandbox. */
async function firstUse(socketPath) {
  const headers = { "x-sandlot-sandbox": "-", "x-sandlot-generation": "1", "x-sandlot-token": "-" };
  const hold = request({ socketPath, path: "/sandlot/hold", headers }).end();
  const [held] = await once(hold, "response");
  if (held.statusCode !== 200) throw new Error(`hold: ${held.statusCode}`);
  for (const [execId, command] of Object.entries({ words: ["/bin/true"], shell: "true" })) {
    const call = request({ socketPath, method: "POST", path: "/sandlot/exec", headers });
    call.end(JSON.stringify({ execId, command }));
    const [answer] = await once(call, "response");
    const text = Buffer.concat(await answer.toArray()).toString();
    if (!text.includes('"exitCode":0')) throw new Error(`${command}: ${text}`);
  }
  held.destroy();
}

/** The daemon itself runs in this process. On USR2 what was compiled of it is written. */
function run(bundle, output) {
  const parameters = "exports, require, module, __filename, __dirname";
  const source = Buffer.from(`(function (${parameters}) {${readFileSync(bundle, "latin1")}\n})`, "latin1");
  const script = new Script(source.toString("latin1"), { filename: bundle });
  process.argv = [process.execPath, bundle];
  const module = { exports: {} };
  script.runInThisContext()(module.exports, createRequire(bundle), module, bundle, dirname(bundle));
  process.on("SIGUSR2", () => {
    const length = Buffer.alloc(4);
    length.writeUInt32LE(source.length);
    writeFileSync(output, Buffer.concat([length, source, script.createCachedData()]));
    writeFileSync(4, WRITTEN);
  });
}

if (process.argv[1] === THIS_FILE) run(process.argv[2], process.argv[3]);
