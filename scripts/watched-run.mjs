/**
 * Runs a command and ends it when it makes no progress, regardless of its total time: a slow machine is no failure, a
 * hang is. Progress is output, or a change of `progressFile`, into which the command writes its current work.
 *
 * The command gets its own process group, so that its children end with it.
 */
import { spawn } from "node:child_process";
import { readFileSync, statSync } from "node:fs";
import { constants } from "node:os";
import { ROOT } from "./runtime.mjs";

/** No step of the tests is silent for this long on a working machine. */
export const STALL_MS = 5 * 60_000;
/** How long a hanging command may take to clean up. */
const GRACE_MS = 10_000;
const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"];

/**
 * Resolves with the exit code as a shell would report it, and with what hung, if the command was ended for that: the
 * lines of `progressFile`, or an empty list.
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
      // The command's leftovers would hold its output open.
      end("SIGKILL");
      resolve({ code, stalled });
    };
    child.once("error", (error) => {
      console.error(`${command}: ${error.message}`);
      finish(127);
    });
    child.once("exit", (code, signal) => {
      const exitCode = code ?? 128 + (constants.signals[signal] ?? 0);
      // Its last lines may still arrive; other holders of the pipes may never close them.
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
