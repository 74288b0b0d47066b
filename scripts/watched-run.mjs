/**
 * Runs a command and ends it when it makes no progress, however long it takes as a whole: a slow machine is no failure, a
 * hang is. Progress is output, or a change of `progressFile`, into which the command writes what it is working on.
 *
 * The command gets a process group of its own, so that what it started ends with it.
 */
import { spawn } from "node:child_process";
import { readFileSync, statSync } from "node:fs";
import { constants } from "node:os";
import { ROOT } from "./runtime.mjs";

/** No step of the tests is silent for this long on a machine that still works. */
export const STALL_MS = 5 * 60_000;
/** How long a command that hangs may take to clean up. */
const GRACE_MS = 10_000;
const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"];

/**
 * Resolves with the exit code as a shell would report it, and with what hung, if the command was ended for that: the lines of
 * `progressFile`, or nothing but the fact.
 * @param {string} command
 * @param {readonly string[]} args
 * @param {{ env?: NodeJS.ProcessEnv, cwd?: string, shell?: boolean, stallMs?: number, progressFile?: string }} options
 * @returns {Promise<{ code: number, stalled: readonly string[] | null }>}
 */
export function runWatched(
  command,
  args,
  { env = process.env, cwd = ROOT, shell = false, stallMs = STALL_MS, progressFile = undefined } = {},
) {
  return new Promise((resolve) => {
    const isWindows = process.platform === "win32";
    const child = spawn(command, args, {
      ...{ env, cwd, shell, stdio: ["ignore", "pipe", "pipe"] },
      detached: !isWindows,
    });
    let movedAt = Date.now();
    let stalled = null;
    let killing;
    for (const [from, to] of [
      [child.stdout, process.stdout],
      [child.stderr, process.stderr],
    ]) {
      from.on("data", (chunk) => {
        movedAt = Date.now();
        to.write(chunk);
      });
    }
    const end = (signal) => {
      try {
        if (isWindows || child.pid === undefined) child.kill(signal);
        else process.kill(-child.pid, signal);
      } catch {
        // The whole group has ended.
      }
    };
    for (const signal of SIGNALS) process.on(signal, end);
    const look = () => {
      movedAt = Math.max(movedAt, changedAt(progressFile));
      if (stalled !== null || Date.now() - movedAt < stallMs) return;
      stalled = linesOf(progressFile);
      end("SIGTERM");
      killing = setTimeout(end, GRACE_MS, "SIGKILL");
    };
    const looking = setInterval(look, Math.min(stallMs / 4, 5_000));
    const finish = (code) => {
      clearInterval(looking);
      clearTimeout(killing);
      for (const signal of SIGNALS) process.off(signal, end);
      // What the command left running would hold its output open.
      end("SIGKILL");
      resolve({ code, stalled });
    };
    child.once("error", (error) => {
      console.error(`${command}: ${error.message}`);
      finish(127);
    });
    child.once("exit", (code, signal) => {
      const exitCode = code ?? 128 + (constants.signals[signal] ?? 0);
      // Its last lines may still be on their way; what else holds the pipes may never close them.
      const late = setTimeout(finish, GRACE_MS, exitCode);
      child.once("close", () => {
        clearTimeout(late);
        finish(exitCode);
      });
    });
  });
}

function changedAt(file) {
  return file === undefined ? 0 : (statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0);
}

function linesOf(file) {
  if (changedAt(file) === 0) return [];
  return readFileSync(file, "utf8")
    .split("\n")
    .filter((line) => line !== "");
}
