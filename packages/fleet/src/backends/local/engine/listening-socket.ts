/**
 * The socket a daemon listens on, made outside its sandbox and passed in: the sandbox has the socket and never its
 * path. So it cannot remove the path or replace it by a link that leads the fleet elsewhere.
 *
 * The socket first has an unused name, because this process would accept connections until it closes the socket.
 * Closing removes that first name; the second one stays.
 */

import { linkSync } from "node:fs";
import { createServer, type Server } from "node:net";
import { SandlotError } from "@sandlot/contract";

export interface ListeningSocket {
  /** For the `stdio` of the process that takes it over. */
  readonly fd: number;
  /** Gives it the name that clients connect to. */
  publish(path: string): void;
  /** Closes it in this process. */
  close(): Promise<void>;
}

/** How many callers may wait while the daemon starts or is busy. */
const BACKLOG = 511;

export function makeListeningSocket(path: string): Promise<ListeningSocket> {
  return new Promise((resolve, reject) => {
    const server = createServer((socket) => socket.destroy());
    server.once("error", reject);
    server.listen({ path, backlog: BACKLOG, exclusive: true }, () => {
      server.unref();
      resolve({
        fd: descriptorOf(server),
        publish: (final) => linkSync(path, final),
        close: () => closeServer(server),
      });
    });
  });
}

/** Node passes a listening descriptor only to other Node processes, so its number is read from Node's internals. */
function descriptorOf(server: Server): number {
  const { _handle: handle } = server as Server & { readonly _handle?: { readonly fd?: unknown } };
  if (typeof handle?.fd === "number" && handle.fd >= 0) return handle.fd;
  throw new SandlotError("internal", { problem: `Node ${process.version} does not tell a server's descriptor` });
}

function closeServer(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
  });
}
