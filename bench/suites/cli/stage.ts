/** A home with one sandbox in it, the command line for it, and gateways over it. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { runProgram } from "../../measuring/program.ts";

const ROOT = join(import.meta.dirname, "../../..");
const LAUNCHER = join(ROOT, "packages/fleet/bin/sandlot.mjs");

export const THREAD = "bench";

export interface CliStage extends AsyncDisposable {
  readonly environment: NodeJS.ProcessEnv;
  readonly home: string;
  sandlot(...args: readonly string[]): readonly string[];
  /** Resolves when it listens. */
  serve(): Promise<ServedProcess>;
}

export interface ServedProcess {
  readonly url: string;
  readonly key: string;
  end(signal: NodeJS.Signals): Promise<void>;
}

export async function openCliStage(): Promise<CliStage> {
  if (!existsSync(join(ROOT, "packages/fleet/dist/bundle"))) throw new Error("It is not built: npm run build");
  const home = mkdtempSync(join(tmpdir(), "sandlot-bench-cli-"));
  // A blank that is made meanwhile would take a processor.
  writeFileSync(join(home, "sandlot.yaml"), "pool: {}\n");
  const { SANDLOT_URL: _, SANDLOT_CONFIG: _file, ...inherited } = process.env;
  const environment = { ...inherited, SANDLOT_HOME: home, XDG_CACHE_HOME: join(home, "cache") };
  const sandlot = (...args: readonly string[]) => [process.execPath, LAUNCHER, ...args];
  await runProgram(sandlot("exec", "--thread", THREAD, "--", "true"), environment);
  return {
    environment,
    home,
    sandlot,
    serve: () => serve(sandlot("serve", "--port", "0", "--json"), environment, home),
    async [Symbol.asyncDispose]() {
      await runProgram(sandlot("rm", "--thread", THREAD, "--purge", "--force"), environment);
      rmSync(home, { recursive: true, force: true });
    },
  };
}

async function serve(
  [program = "", ...args]: readonly string[],
  env: NodeJS.ProcessEnv,
  home: string,
): Promise<ServedProcess> {
  const child: ChildProcess = spawn(program, args, { env, stdio: ["ignore", "pipe", "inherit"] });
  const ended = once(child, "close");
  if (child.stdout === null) throw new Error("There is no output to read.");
  const [line] = (await Promise.race([once(child.stdout, "data"), ended.then(() => ["{}"])])) as [Buffer | string];
  const { listening } = JSON.parse(String(line)) as { listening?: string };
  if (listening === undefined) throw new Error("The gateway did not start.");
  return {
    url: listening,
    key: readFileSync(join(home, "operator.key"), "utf8").trim(),
    async end(signal) {
      child.kill(signal);
      await ended;
    },
  };
}
