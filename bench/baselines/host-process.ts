/** Node's own ways to start things on the host: the floor of every sandbox on it. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** A new process with its output collected, as an exec has it. */
export async function spawnTrue(): Promise<void> {
  const child = spawn("/bin/true", [], { stdio: ["ignore", "pipe", "pipe"] });
  child.stdout.resume();
  child.stderr.resume();
  const [code] = await once(child, "close");
  if (code !== 0) throw new Error(`/bin/true ended with ${code}`);
}

const SERVER = `
const server = require("node:http").createServer((_, response) => response.end("ok"));
server.listen(process.env.SOCKET, () => process.stdout.write("ready\\n"));
`;

export interface BareServer {
  /** Resolves when it has said that it listens. */
  ready: Promise<void>;
  answer(): Promise<void>;
  end(): Promise<void>;
}

/** A bare `node:http` server on a unix socket; `wrap` puts a program before Node, such as bwrap with its options. */
export function startBareServer(wrap: (directory: string) => readonly string[] = () => []): BareServer {
  const directory = mkdtempSync(join(tmpdir(), "bare-"));
  const socket = join(directory, "s");
  const [program = process.execPath, ...args] = [...wrap(directory), process.execPath, "-e", SERVER];
  const child = spawn(program, args, { env: { SOCKET: socket }, stdio: ["ignore", "pipe", "inherit"] });
  const ended = once(child, "close");
  return {
    ready: once(child.stdout, "data").then(() => undefined),
    answer: () => ask(socket),
    end: async () => {
      child.kill("SIGKILL");
      await ended;
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

function ask(socketPath: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const asked = request({ socketPath, path: "/" }, (response) => {
      response.resume();
      response.once("end", () => resolve());
    });
    asked.once("error", reject);
    asked.end();
  });
}
