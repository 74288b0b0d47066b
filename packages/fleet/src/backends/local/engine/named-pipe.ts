/**
 * Named pipes: Node has no call that makes them, so koffi or a small program does.
 */

import { execFile } from "node:child_process";
import { constants, openSync } from "node:fs";
import { Socket } from "node:net";
import { promisify } from "node:util";
import { systemCalls } from "../../../host/accounts/index.ts";

const run = promisify(execFile);

/** Starting a program would copy this process's page tables, and every create would wait for that. */
export async function makePipes(paths: readonly string[]): Promise<void> {
  const calls = systemCalls();
  if (calls === null) await run("mkfifo", ["-m", "600", ...paths]);
  else for (const path of paths) calls.makePipe(path, 0o600);
}

/** Ends when no process has it open for writing. Does not keep this process alive. */
export function listenToPipe(path: string): Socket {
  const fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  const socket = new Socket({ fd, readable: true, writable: false });
  socket.unref();
  socket.on("error", () => {});
  return socket;
}

/** Holds the reading end as well, so its holder's writes never fail for lack of a reader. */
export function openBothEnds(path: string): number {
  return openSync(path, constants.O_RDWR | constants.O_NONBLOCK);
}
