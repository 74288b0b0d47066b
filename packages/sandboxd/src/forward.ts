/**
 * The inner end of the egress, where only a process inside can listen on the sandbox's loopback. It forwards every
 * connection on a port to a unix socket, opened anew for each, so that a replaced proxy is found at the same path.
 */

import { connect, createServer, type Socket } from "node:net";

/** More than one sandbox's proxy takes. */
const CONNECTIONS_MAX = 512;
const NO_LISTENER =
  "Sandlot: the proxy of this sandbox does not run at the moment, so nothing outside can be reached. " +
  "It comes back when the sandbox is next used.\n";

/** Resolves when it listens; rejects when it cannot. */
export function forward({ port, socketPath }: { readonly port: number; readonly socketPath: string }): Promise<void> {
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (client) => carry(client, socketPath));
  server.maxConnections = CONNECTIONS_MAX;
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen({ host: "127.0.0.1", port, exclusive: true }, () => {
      server.off("error", reject);
      server.on("error", () => {});
      resolve();
    });
  });
}

function carry(client: Socket, socketPath: string): void {
  const proxy = connect({ path: socketPath, allowHalfOpen: true });
  client.on("error", () => proxy.destroy());
  const explain = (): void => {
    const head = "HTTP/1.1 502 Bad Gateway\r\ncontent-type: text/plain\r\nconnection: close\r\n";
    client.end(`${head}content-length: ${Buffer.byteLength(NO_LISTENER)}\r\n\r\n${NO_LISTENER}`);
    client.resume();
  };
  proxy.once("error", explain);
  proxy.once("connect", () => {
    proxy.off("error", explain);
    proxy.on("error", () => client.destroy());
    client.pipe(proxy).pipe(client);
    // `pipe` passes on a regular end, after all earlier bytes.
    client.once("close", () => client.readableEnded || proxy.destroy());
    proxy.once("close", () => proxy.readableEnded || client.destroy());
  });
}
