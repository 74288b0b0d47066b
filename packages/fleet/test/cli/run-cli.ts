/** The command line as a child process: the build where it matches the present source; otherwise from source. */

import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { isBuilt } from "../../../../scripts/build.mjs";

const place = isBuilt({ withTypes: false }) ? "../../bin/sandlot.mjs" : "../../src/cli/main.ts";
export const MAIN = fileURLToPath(new URL(place, import.meta.url));
/** The compile cache is in the checkout, not in the home of the person who runs the tests. */
export const CACHE = { XDG_CACHE_HOME: fileURLToPath(new URL("../../../../.cache", import.meta.url)) };

export interface Ended {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

export function runCli(args: readonly string[], environment: NodeJS.ProcessEnv = {}): Promise<Ended> {
  return runScript(MAIN, args, { environment });
}

/** `onOutput` gets everything printed so far, and a function to send a signal. */
export function runScript(
  script: string,
  args: readonly string[],
  options: {
    readonly environment?: NodeJS.ProcessEnv;
    readonly onOutput?: (stdout: string, kill: (signal: NodeJS.Signals) => void) => void;
  } = {},
): Promise<Ended> {
  const { SANDLOT_HOME: _, SANDLOT_CONFIG: __, SANDLOT_URL: ___, ...inherited } = process.env;
  const child = spawn(process.execPath, ["--conditions=sandlot-source", script, ...args], {
    env: { ...inherited, ...CACHE, NO_COLOR: "1", ...options.environment },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let stdout = "";
  let stderr = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    stdout += text;
    options.onOutput?.(stdout, (signal) => child.kill(signal));
  });
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    stderr += text;
  });
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code, signal) => resolve({ code, signal, stdout, stderr }));
  });
}
