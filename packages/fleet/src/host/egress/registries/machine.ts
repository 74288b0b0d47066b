/**
 * The machine's configuration of package tools, read as data: nothing in it is executed, and no working directory is
 * looked at, because a project there may name any registry.
 */

import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";

export interface Machine {
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly home: string;
  /** `null` when the file is missing or cannot be read. */
  read(path: string): string | null;
  /** What a tool prints, run in an empty directory with no configuration; `null` when it cannot be run in time. */
  ask(program: string, args: readonly string[], environment: Readonly<Record<string, string>>): Promise<Asked | null>;
}

interface Asked {
  readonly stdout: string;
  readonly stderr: string;
}

const FILE_MAX_BYTES = 1_024 * 1_024;
const ASK_TIMEOUT_MS = 15_000;

export function thisMachine(environment: Machine["environment"] = process.env): Machine {
  const read = (path: string): string | null => {
    try {
      const text = readFileSync(path, "utf8");
      return text.length > FILE_MAX_BYTES ? null : text;
    } catch {
      return null;
    }
  };
  return { environment, home: environment.HOME || homedir(), read, ask: (...asked) => ask(environment, ...asked) };
}

/** The tool gets its own `HOME`, the path of programs, and nothing else of this process. */
async function ask(
  own: Machine["environment"],
  program: string,
  args: readonly string[],
  environment: Readonly<Record<string, string>>,
): Promise<Asked | null> {
  const cwd = await mkdtemp(join(tmpdir(), "sandlot-ask-"));
  const kept = ["PATH", "PYENV_ROOT", "RUSTUP_HOME", "GOROOT"].flatMap((name) => {
    const value = own[name];
    return value === undefined ? [] : [[name, value] as const];
  });
  // rustup finds its toolchains below the real home.
  const rustup =
    own.RUSTUP_HOME === undefined && own.HOME !== undefined ? { RUSTUP_HOME: join(own.HOME, ".rustup") } : {};
  const env = { ...Object.fromEntries(kept), ...rustup, HOME: cwd, LC_ALL: "C", ...environment };
  try {
    return await new Promise((resolve) => {
      execFile(
        program,
        [...args],
        { cwd, env, timeout: ASK_TIMEOUT_MS, killSignal: "SIGKILL", maxBuffer: FILE_MAX_BYTES },
        (error, stdout, stderr) => {
          const couldNotRun = error !== null && (error.killed === true || typeof error.code === "string");
          resolve(couldNotRun ? null : { stdout, stderr });
        },
      );
    });
  } finally {
    await rm(cwd, { recursive: true, force: true });
  }
}
