/**
 * Starts a program in its own session, with a terminal as its controlling one. Node can create the session but not set
 * the terminal; `setsid` does both. The native part could fork, too, but its child would inherit every other terminal.
 */

import { closeSync, constants, openSync } from "node:fs";
import { SandlotError } from "@sandlot/contract";
import { asCommand } from "../exec/as-command.ts";
import { SEARCH_PATH } from "../exec/fifo-pool.ts";
import { maskedStdio } from "../exec/masked-descriptors.ts";
import { tagNextChild } from "../exec/process-tag.ts";
import { type StartedProcess, startProcess } from "../processes/start-process.ts";
import { noTerminals } from "./pty.ts";

/** Throws when it cannot be started at all. A missing program ends with 127. */
export function startProgram(
  command: readonly string[],
  terminalFd: number,
  cwd: string,
  env: Readonly<Record<string, string>>,
  key: string,
): StartedProcess {
  const setsid = findProgram("setsid");
  if (setsid === null) throw noTerminals("a terminal, for the program setsid");
  try {
    const stdio = maskedStdio([terminalFd, terminalFd, terminalFd]);
    tagNextChild(key);
    return asCommand(() => startProcess(setsid, ["-c", ...command], { cwd, env, stdio }));
  } catch (error) {
    const problem = (error as Error).message;
    throw new SandlotError("invalid_request", { field: "command", problem: `it cannot be started: ${problem}` });
  }
}

function findProgram(name: string): string | null {
  for (const directory of SEARCH_PATH.split(":")) {
    try {
      closeSync(openSync(`${directory}/${name}`, constants.O_RDONLY));
      return `${directory}/${name}`;
    } catch {
      // Not in this directory.
    }
  }
  return null;
}
