/**
 * The inner end of the egress: listens on the sandbox's own loopback and forwards every connection to the proxy's
 * socket.
 *
 *   node forwarder.mjs 3128 /run/sandlot/egress/proxy.sock
 *
 * Runs inside the sandbox, alone, on the daemon's Node: it imports nothing but Node. It decides nothing, so a sandbox
 * gains nothing by replacing it. It opens the socket anew for each connection: a replaced proxy is found at the same
 * path. Prints one line when it listens.
 */

import { writeSync } from "node:fs";
import { connect, createServer, type Socket } from "node:net";

/** More than one sandbox's proxy takes. */
const CONNECTIONS_MAX = 512;
const NO_PROXY =
  "Sandlot: the proxy of this sandbox does not run at the moment, so nothing outside can be reached. " +
  "It comes back when the sandbox is next used.\n";

// The name that `pkill node` and `pkill -f node` match.
process.title = "sandlot-forwarder";
main(process.argv[2], process.argv[3]);

function main(port: string | undefined, socketPath: string | undefined): void {
  if (port === undefined || socketPath === undefined || !/^\d+$/.test(port)) {
    process.stderr.write("usage: forwarder <port> <socket path>\n");
    process.exit(2);
  }
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (client) => carry(client, socketPath));
  server.maxConnections = CONNECTIONS_MAX;
  server.on("error", (error) => {
    process.stderr.write(`sandlot-forwarder: ${error.message}\n`);
    process.exit(1);
  });
  server.listen({ host: "127.0.0.1", port: Number(port) }, () => writeSync(1, "listening\n"));
  // The process that started us may be gone; that ends nothing here.
  for (const name of ["SIGHUP", "SIGPIPE"] as const) process.on(name, () => {});
}

function carry(client: Socket, socketPath: string): void {
  const proxy = connect({ path: socketPath, allowHalfOpen: true });
  const endBoth = (): void => {
    client.destroy();
    proxy.destroy();
  };
  client.on("error", endBoth);
  proxy.once("connect", () => {
    proxy.off("error", explain);
    // A proxy that is ending accepts connections and sends nothing.
    proxy.on("error", () => (proxy.bytesRead === 0 ? explain() : endBoth()));
    proxy.once("end", () => (proxy.bytesRead === 0 ? explain() : client.end()));
    client.pipe(proxy).pipe(client, { end: false });
    // An orderly end means that both directions are done. Otherwise one side failed.
    const endUnlessThrough = () => {
      if (!client.readableEnded || !proxy.readableEnded) endBoth();
    };
    client.once("close", endUnlessThrough);
    proxy.once("close", () => (proxy.bytesRead === 0 ? explain() : endUnlessThrough()));
  });
  const explain = (): void => {
    if (client.writableEnded) return;
    const head = "HTTP/1.1 502 Bad Gateway\r\ncontent-type: text/plain\r\nconnection: close\r\n";
    client.end(`${head}content-length: ${Buffer.byteLength(NO_PROXY)}\r\n\r\n${NO_PROXY}`);
    client.resume();
  };
  proxy.once("error", explain);
}
