/**
 * Named pipes: made by a small program, because Node has no call for it, and read like any stream.
 */

import { execFile } from "node:child_process";
import { constants, openSync } from "node:fs";
import { Socket } from "node:net";
import { promisify } from "node:util";

const run = promisify(execFile);

export async function makePipes(paths: readonly string[]): Promise<void> {
  await run("mkfifo", ["-m", "600", ...paths]);
}

/** Ends when nobody holds it for writing any more. Does not keep this process alive. */
export function listenToPipe(path: string): Socket {
  const fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  const socket = new Socket({ fd, readable: true, writable: false });
  socket.unref();
  socket.on("error", () => {});
  return socket;
}

/** Whoever is given this one never writes into the void: it holds the reading end as well. */
export function openBothEnds(path: string): number {
  return openSync(path, constants.O_RDWR | constants.O_NONBLOCK);
}
