/**
 * The path of a fleet's state. A separate file: a command that uses a gateway needs only this part of the
 * configuration.
 */

import { type Stats, statSync } from "node:fs";
import { userInfo } from "node:os";
import { isAbsolute, join, resolve } from "node:path";
import { type Problem, refuse } from "./problems.ts";
import type { Environment } from "./variables.ts";

/** The configured home, or the environment's. Throws `config_invalid`. */
export function homeOf(configured: string | undefined, environment: Environment): string {
  const problems: Problem[] = [];
  const home = resolveHome(configured, environment, problems);
  refuse(problems);
  return home;
}

/** Adds problems to `problems`; then the result must not be used. */
export function resolveHome(configured: string | undefined, environment: Environment, problems: Problem[]): string {
  const [text, name] = configured === undefined ? [environment.SANDLOT_HOME, "$SANDLOT_HOME "] : [configured, ""];
  // An empty variable counts as unset, as in shells.
  if (text === undefined || (configured === undefined && text === "")) return derivedHome(environment, problems);
  const wrong = pathProblem(text, environment);
  if (wrong !== undefined) problems.push({ ...wrong, path: "home", problem: `${name}${wrong.problem}` });
  else if (look(text)?.isDirectory() === false)
    problems.push({ path: "home", problem: `${name}must be a directory, but ${text} is a file` });
  return resolve(text);
}

/** The XDG specification says that a relative value is ignored. */
function derivedHome(environment: Environment, problems: Problem[]): string {
  const configured = environment.XDG_STATE_HOME;
  if (configured !== undefined && isAbsolute(configured)) return join(configured, "sandlot");
  const home = userHome(environment);
  if (home === null)
    problems.push({ path: "home", problem: "must be set: $HOME is no absolute path, and this user has no directory" });
  return join(home ?? "/", ".local", "state", "sandlot");
}

/** From the system's user entry when the environment has none or a relative one, which depends on the directory. */
function userHome(environment: Environment): string | null {
  if (environment.HOME !== undefined && isAbsolute(environment.HOME)) return environment.HOME;
  try {
    const { homedir } = userInfo();
    return isAbsolute(homedir) ? homedir : null;
  } catch {
    return null; // A uid without an entry.
  }
}

/** The problem of a path by itself. */
export function pathProblem(text: string, environment: Environment): Omit<Problem, "path"> | undefined {
  if (text.includes("\0")) return { problem: "must not contain a NUL byte" };
  if (isAbsolute(text)) return undefined;
  if (text === "") return { problem: "must be an absolute path, but is empty" };
  const [first, ...rest] = text.split("/");
  const suggestion = first === "~" ? join(userHome(environment) ?? "/", ...rest) : resolve(text);
  return { problem: `must be an absolute path (it is ${JSON.stringify(text)})`, suggestion };
}

/** The present file. `undefined` if there is none or it cannot be read: opening it reports that. */
function look(path: string): Stats | undefined {
  try {
    return statSync(path, { throwIfNoEntry: false });
  } catch {
    return undefined;
  }
}
