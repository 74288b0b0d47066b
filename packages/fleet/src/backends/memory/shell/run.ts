/**
 * Starts a command for `exec`: a string goes through the shell, an array runs without one.
 *
 * `just-bash` was considered. It prints when a command has ended, runs nothing in the background and applies its own
 * limits before a timeout; the backend suite checks all three. It also brings 49 packages.
 */

import type { RunCommand } from "../exec/exec-table.ts";
import { asShell, runShell } from "./interpreter.ts";
import { runArgv } from "./simple-command.ts";
import { ShellState } from "./state.ts";

export const runInOwnShell: RunCommand = async (process, command, { cwd, environment, streams }) => {
  const state = new ShellState(process, cwd, environment);
  if (typeof command === "string") return runShell(state, command, streams);
  return asShell(state, streams, () => runArgv(state, command, streams));
};
