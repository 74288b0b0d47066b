/** A bare `node:http` server on a unix socket: the minimum for every daemon written for Node. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { type IncomingMessage, request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";

const SERVER = `
const server = require("node:http").createServer((_, response) => response.end("ok"));
server.listen(process.env.SOCKET, () => process.stdout.write("ready\\n"));
`;

export type BareServer = ReturnType<typeof startBareServer>;

/** `wrap` puts a program before Node, such as bwrap with its options. `ready` resolves when it listens. */
export function startBareServer(wrap: (directory: string) => readonly string[] = () => []) {
  const directory = mkdtempSync(join(tmpdir(), "bare-"));
  const socketPath = join(directory, "s");
  const [program = process.execPath, ...args] = [...wrap(directory), process.execPath, "-e", SERVER];
  const child = spawn(program, args, { env: { SOCKET: socketPath }, stdio: ["ignore", "pipe", "inherit"] });
  const ended = once(child, "close");
  return {
    ready: once(child.stdout, "data").then(() => undefined),
    async answer() {
      const [response] = (await once(request({ socketPath }).end(), "response")) as [IncomingMessage];
      await once(response.resume(), "end");
    },
    async end() {
      child.kill("SIGKILL");
      await ended;
      rmSync(directory, { recursive: true, force: true });
    },
  };
}
